"""Lines of files to MQTT subscribers: `to = [{ mqtt = ... }]`."""
import subprocess

import mqtt
from waiting import wait_until
from writers import append

LINES = 20_000


def publisher(net, **broker):
    node = net.node("one", agent={}, listener=True, routes=[{"name": "all", "to": [{"mqtt": "lines/{category}"}]}],
                    **({"broker": broker} if broker else {}))
    net.start()
    return node


def test_a_prompt_subscriber_gets_a_whole_backlog(net):
    """20,000 lines at once are twenty times what a session may queue."""
    node = publisher(net, workers=2)
    got = mqtt.Client(node.mqtt_port, "prompt", clean=False)
    assert got.subscribe("lines/#", 1) == [1]
    expected = [b"line %06d" % n for n in range(LINES)]
    append(node.source_dir / "c/1.log", b"".join(one + b"\n" for one in expected))
    wait_until(lambda: len(got.messages) >= LINES, 120, lambda: f"{len(got.messages)} of {LINES}: {node.status()}")
    node.wait_idle()
    assert got.payloads() == expected
    status = node.status()
    assert status["mqtt"]["dropped_queue_full"] == 0
    assert node.route("all")["delivered"] == LINES
    node.balanced()
    got.close()
    net.stop()


def test_one_that_does_not_read_stops_nobody_for_ever(net, tmp_path):
    """A client that is stopped in the middle: the other one, and the route, go on without it."""
    node = publisher(net)
    stuck = subprocess.Popen(["mosquitto_sub", "-p", str(node.mqtt_port), "-t", "lines/#", "-q", "1", "-i", "stuck", "-c"],
                             stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: node.status()["mqtt"]["subscriptions"] == 1, 20)
        stuck.send_signal(19)
        got = mqtt.Client(node.mqtt_port, "prompt")
        got.subscribe("lines/#", 1)
        append(node.source_dir / "c/1.log", b"".join(b"line %06d\n" % n for n in range(LINES)))
        wait_until(lambda: len(got.messages) >= LINES, 180, lambda: f"{len(got.messages)}: {node.status()}")
        node.wait_idle(60)
        assert node.status()["mqtt"]["dropped_queue_full"] > 0
        node.balanced()
        got.close()
    finally:
        stuck.kill()
        stuck.wait()
    net.stop()
