"""Lines of files to MQTT subscribers: `to = [{ mqtt = ... }]`."""
import subprocess
import time

import mqtt
import packets
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


def test_kills_give_a_durable_session_everything_once(net, rng):
    """Lines of a file and messages of a spool, published from a cursor that moves with the sessions' queues."""
    node = net.node("one", agent={}, listener=True,
                    broker={"workers": 2, "mqueue_messages_max": 200_000, "mqueue_bytes_max": "64MiB"},
                    routes=[{"name": "lines", "to": [{"mqtt": "lines/{category}"}]},
                            {"name": "messages", "topics": ["in/#"], "to": [{"mqtt": "out/{topic}"}]}])
    net.start()
    away = {name: packets.Mqtt(node.mqtt_port, name) for name in ("a", "b")}
    for client in away.values():
        client.subscribe("lines/#", 1)
        client.subscribe("out/#", 1)
        client.disconnect()
    lines, acknowledged, asked = [], set(), 0
    for round_ in range(8):
        more = [b"line %d %d" % (round_, n) for n in range(rng.randrange(500, 4000))]
        lines += more
        append(node.source_dir / "c/1.log", b"".join(one + b"\n" for one in more))
        p = packets.Mqtt(node.mqtt_port, "p", clean=True)
        for n in range(1, 201):
            p.publish("in/x", f"message {round_} {n}", 1, n)
        for n in range(1, rng.randrange(2, 200)):
            p.expect(packets.PUBACK, n)
            acknowledged.add(f"message {round_} {n}")
        asked += 200
        time.sleep(rng.random() * 0.3)
        node.kill()
        p.drop()
        node.start()
    node.wait_idle(60)
    node.balanced()
    assert node.status()["mqtt"]["dropped_queue_full"] == 0
    total = len(lines) + node.route("messages")["delivered"]
    assert len(lines) + len(acknowledged) <= total <= len(lines) + asked
    for name in away:
        client = packets.Mqtt(node.mqtt_port, name)
        assert client.session_present
        got = []
        while len(got) < total:
            payload, qos, packet_id, _, _ = client.message()
            client.ack(packets.PUBACK, packet_id)
            got.append(payload)
        assert len(set(got)) == total, "twice"
        assert [one for one in got if one.startswith("line")] == [one.decode() for one in lines]
        assert acknowledged <= set(got)
        client.drop()
    net.stop()
