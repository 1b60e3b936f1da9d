"""What a person tries first, as the issue of the product's first day words it."""
import re
import subprocess

import readers
from waiting import patience, wait_until
from writers import append


def three(net):
    """edge (files and MQTT) -> relay (spools only) -> far (files and MQTT)."""
    far = net.receiver("far", listener=True, routes=[
        {"name": "all", "to": ["files"]},
        {"name": "sensors", "categories": ["sensors"], "to": ["files", {"mqtt": "{topic}"}]}])
    relay = net.relay("relay", [far])
    edge = net.edge("edge", [relay], listener=True, routes=[
        {"name": "all", "to": ["next"]}, {"name": "sensors", "topics": ["sensors/#"], "to": ["next"]}])
    net.start()
    return edge, relay, far


def test_a_line_in_a_file_appears_in_the_far_chunk(net):
    edge, _, far = three(net)
    path = edge.source_dir / "clicks/202611300900.log"
    path.parent.mkdir()
    subprocess.run(f"echo hello >> {path}", shell=True, check=True)
    wait_until(lambda: readers.lines(far.events_dir, "clicks") == [b"hello"], 10)
    names = [chunk.name for chunk in readers.chunks(far.events_dir, "clicks")]
    assert re.fullmatch(r"clicks-\d{4}-\d\d-\d\d_000001", names[0])
    readers.check_current(far.events_dir, "clicks")
    net.wait_drained()
    for node in net.nodes:
        node.balanced()
    net.stop()


def test_a_message_appears_at_the_far_subscriber_and_in_its_files(net, tmp_path):
    edge, _, far = three(net)
    got = open(tmp_path / "got", "w+b")
    subscriber = subprocess.Popen(["stdbuf", "-oL", "mosquitto_sub", "-p", str(far.mqtt_port), "-t", "sensors/#", "-q", "1", "-v", "-d"],
                                  stdout=got, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: b"SUBACK" in (tmp_path / "got").read_bytes(), 10, "the subscription")
        subprocess.run(["mosquitto_pub", "-p", str(edge.mqtt_port), "-t", "sensors/a/temperature", "-m", "21.5", "-q", "1"],
                       check=True, timeout=patience(10))
        wait_until(lambda: b"sensors/a/temperature 21.5\n" in (tmp_path / "got").read_bytes(), 10,
                   lambda: (tmp_path / "got").read_text())
        wait_until(lambda: readers.lines(far.events_dir, "sensors") == [b"21.5"], 10)
    finally:
        subscriber.kill()
        subscriber.wait()
    net.wait_drained()
    assert (tmp_path / "got").read_bytes().count(b"sensors/a/temperature 21.5\n") == 1
    net.stop()


def test_a_publish_is_acknowledged_only_when_it_cannot_be_lost(net):
    """kill -9 at once after the PUBACK: the message arrives after the restart."""
    edge, relay, far = three(net)
    relay.stop()
    for n in range(20):
        subprocess.run(["mosquitto_pub", "-p", str(edge.mqtt_port), "-t", "sensors/x", "-m", f"m{n}", "-q", "1"], check=True,
                       timeout=patience(10))
        if n % 5 == 0:
            edge.kill()
            edge.start()
    edge.kill()
    relay.start()
    edge.start()
    wait_until(lambda: len(readers.lines(far.events_dir, "sensors")) >= 20, 20)
    net.wait_drained()
    assert readers.lines(far.events_dir, "sensors") == [b"m%d" % n for n in range(20)]


def test_status_names_what_waits_and_where(net):
    edge, relay, far = three(net)
    relay.stop()
    append(edge.source_dir / "clicks/1.log", b"".join(b"line %d\n" % n for n in range(100)))
    wait_until(edge.waiting, 10, edge.status)
    row = edge.route("all")
    assert row["target"] == "next" and row["delivered"] == 0
    assert row["queued"] == 100 or row["unread_bytes"] == 790, row
    wait_until(lambda: edge.route("all")["oldest_unacked_seconds"] >= 1, 10)
    text = edge.command("status", "-c", str(edge.config_path))
    assert text.returncode == 0 and "all" in text.stdout and "next" in text.stdout and re.search(r"\b(790 B|100)\b", text.stdout), text
    by_socket = edge.command("status", "--json", "--socket", str(edge.folder / "api.sock"))
    assert by_socket.returncode == 0 and '"routes"' in by_socket.stdout
    upstream = edge.status()["upstreams"][0]
    assert upstream["receivers"][0]["address"] == relay.link and upstream["receivers"][0]["last_error"]
    relay.start()
    net.wait_drained()
    assert edge.route("all")["delivered"] == 100 and edge.route("all")["oldest_unacked_seconds"] == 0
    assert far.route("all")["delivered"] == 100
    net.stop()


def test_status_of_a_node_that_is_down_says_so(net):
    far = net.receiver("far")
    done = far.command("status", "-c", str(far.config_path))
    assert done.returncode != 0 and done.stderr.strip() and "Traceback" not in done.stderr
    assert str(far.folder / "api.sock") in done.stderr


def test_an_unknown_command_and_a_missing_file_are_told(net):
    far = net.receiver("far")
    assert far.command("frobnicate").returncode != 0
    done = far.command("run", "-c", str(far.folder / "none.toml"))
    assert done.returncode == 2 and "none.toml" in done.stderr
    assert far.command("version").stdout.strip()
