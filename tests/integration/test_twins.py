"""Two nodes with a copied data_dir take turns on a link: the receiver names both."""
import shutil

import writers
from waiting import wait_until


def test_two_nodes_with_one_id_are_named(net):
    far = net.receiver("far")
    one, two = (net.edge(name, [far]) for name in ("one", "two"))
    far.start()
    one.start()
    writers.append_lines(one.source_dir / "clicks/1.log", "s", 0, 10)
    one.wait_idle()
    one.restart()  # another incarnation, and no twin
    one.wait_idle()
    assert not [alarm for alarm in far.status()["alarms"] if alarm["code"] == "node_id_twice"]
    one.stop()
    shutil.rmtree(two.data)
    shutil.copytree(one.data, two.data)
    one.start()
    two.start()
    for node in (one, two):
        writers.append_lines(node.source_dir / "clicks/2.log", "s", 10, 10)

    def twins():
        return [alarm for alarm in far.status()["alarms"] if alarm["code"] == "node_id_twice"]
    wait_until(twins, 60, lambda: far.log()[-3000:])
    text = str(twins()[0])
    assert "one at 127.0.0.1" in text and "two at 127.0.0.1" in text, text
    assert "node_id_twice" in far.log()
