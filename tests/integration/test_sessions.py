"""The broker's sessions over kill -9: what it acknowledged is there afterwards."""
import subprocess
import time

import pytest

import packets as mqtt
from packets import Mqtt
from waiting import patience, wait_until

FILES = [{"name": "all", "to": ["files"]}]


def broker(net, **keys):
    more = keys.pop("broker", {})
    return net.node("broker", listener=True, broker={"workers": 2, "session_expiry": "1h", **more}, **keys).start()


def again(node):
    node.kill()
    return node.start()


def settled(node):
    wait_until(lambda: node.status()["mqtt"]["journal_waiting"] == 0, 10)


def publish_all(node, count, qos=1, topic="t/1", name="p"):
    """Publishes 1..count; returns once all are acknowledged."""
    p = Mqtt(node.mqtt_port, name, clean=True)
    window = 50
    for n in range(1, count + 1):
        p.publish(topic, str(n), qos, n)
        if n > window:
            p.expect(mqtt.PUBACK, n - window)
    for n in range(max(1, count - window + 1), count + 1):
        p.expect(mqtt.PUBACK, n)
    p.disconnect()


def drain(client, count):
    got = []
    while len(got) < count:
        payload, qos, packet_id, _, _ = client.message()
        got.append(int(payload))
        if qos == 1:
            client.ack(mqtt.PUBACK, packet_id)
    return got


def test_offline_subscriber_gets_all_10000_after_a_kill(net):
    node = broker(net, broker={"mqueue_messages_max": 20000, "mqueue_bytes_max": "64MiB"})
    s = Mqtt(node.mqtt_port, "s")
    assert not s.session_present
    s.subscribe("t/#", 1)
    s.disconnect()
    publish_all(node, 10000)
    again(node)
    s = Mqtt(node.mqtt_port, "s")
    assert s.session_present
    assert drain(s, 10000) == list(range(1, 10001))
    s.disconnect()
    settled(node)  # that a client has acknowledged is told to nobody: a kill may come before it is written
    again(node)
    s = Mqtt(node.mqtt_port, "s")
    publish_all(node, 1)
    assert drain(s, 1) == [1]
    assert node.status()["mqtt"]["damaged_records"] == 0
    node.stop()


# B2
def test_500_queued_and_a_half_done_qos_2(net):
    node = broker(net)
    s = Mqtt(node.mqtt_port, "s")
    s.subscribe("t/#", 2)
    p = Mqtt(node.mqtt_port, "p")
    p.publish("t/2", "half", 2, 7)
    p.expect(mqtt.PUBREC, 7)
    payload, qos, packet_id, _, _ = s.message()
    assert (payload, qos) == ("half", 2)
    s.ack(mqtt.PUBREC, packet_id)
    s.expect(mqtt.PUBREL, packet_id)
    s.drop()  # before PUBCOMP
    publish_all(node, 500, name="q")
    again(node)
    # The publisher has seen PUBREC; and it may not have: both repeats change nothing.
    p = Mqtt(node.mqtt_port, "p")
    assert p.session_present
    p.publish("t/2", "half", 2, 7, dup=True)
    p.expect(mqtt.PUBREC, 7)
    p.ack(mqtt.PUBREL, 7)
    p.expect(mqtt.PUBCOMP, 7)
    s = Mqtt(node.mqtt_port, "s")
    assert s.session_present
    s.expect(mqtt.PUBREL, packet_id)
    s.ack(mqtt.PUBCOMP, packet_id)
    assert drain(s, 500) == list(range(1, 501))
    p.publish("t/2", "last", 1, 1)
    assert s.message()[0] == "last"
    settled(node)
    # A packet id that is free again means another message, also right after a kill.
    again(node)
    p = Mqtt(node.mqtt_port, "p")
    p.publish("t/3", "another", 2, 7)
    p.expect(mqtt.PUBREC, 7)
    s = Mqtt(node.mqtt_port, "s")
    assert [s.message()[0], s.message()[0]] == ["last", "another"]
    node.stop()


@pytest.mark.parametrize("durability", ["fsync", "lazy"])
def test_retained_survive_and_expired_do_not(net, durability):
    node = broker(net, broker={"durability": durability})
    sent = subprocess.run(["mosquitto_pub", "-p", str(node.mqtt_port), "-V", "5", "-t", "r/short", "-m", "x", "-r", "-q", "1",
                           "-D", "publish", "message-expiry-interval", "1"], check=True, timeout=patience(30))
    assert sent.returncode == 0
    expires = time.monotonic() + 1.5
    p = Mqtt(node.mqtt_port, "p", clean=True)
    for n in range(1, 101):
        p.publish(f"r/{n % 10}", str(n), 1, n, retain=True)
    for n in range(1, 101):
        p.expect(mqtt.PUBACK, n)
    p.publish("r/3", "", 1, 101, retain=True)
    p.expect(mqtt.PUBACK, 101)
    if durability == "lazy":
        settled(node)
    node.kill()
    wait_until(lambda: time.monotonic() > expires, 5)
    node.start()
    s = Mqtt(node.mqtt_port, "s", clean=True)
    s.subscribe("r/+", 1)
    got = {}
    for _ in range(9):
        payload, _, packet_id, _, retain = s.message()
        assert retain
        got[int(payload) % 10] = int(payload)
        s.ack(mqtt.PUBACK, packet_id)
    assert got == {n % 10: n for n in range(91, 101) if n != 93}
    node.stop()


def test_orderly_stop_keeps_everything_in_lazy_mode(net):
    node = broker(net, broker={"durability": "lazy"})
    s = Mqtt(node.mqtt_port, "s")
    s.subscribe("t/#", 1)
    s.disconnect()
    publish_all(node, 900)
    node.restart()
    s = Mqtt(node.mqtt_port, "s")
    assert s.session_present
    assert drain(s, 900) == list(range(1, 901))
    node.stop()


def test_will_of_a_client_that_was_connected_when_the_broker_died(net):
    node = broker(net)
    watcher = Mqtt(node.mqtt_port, "watcher")
    watcher.subscribe("wills", 1)
    Mqtt(node.mqtt_port, "mortal", will=("wills", "mortal is gone", 1, False))
    quiet = Mqtt(node.mqtt_port, "quiet", will=("wills", "quiet is gone", 1, False))
    quiet.disconnect()
    again(node)
    watcher = Mqtt(node.mqtt_port, "watcher")
    assert watcher.session_present
    payload, _, packet_id, _, _ = watcher.message()
    watcher.ack(mqtt.PUBACK, packet_id)
    assert payload == "mortal is gone"
    p = Mqtt(node.mqtt_port, "p", clean=True)
    p.publish("wills", "end", 1, 1)
    assert watcher.message()[0] == "end"
    node.stop()


def test_qos_2_over_kills_arrives_once(net, rng):
    """Publisher and subscriber repeat what MQTT wants repeated; the broker dies at random moments in between."""
    node = broker(net)
    s = Mqtt(node.mqtt_port, "s")
    s.subscribe("t/#", 2)
    open_ids, handed, acked = set(), [], []
    p, todo, current = None, list(range(1, 201)), None
    kills = 0
    while todo or current:
        if rng.random() < 0.05 and kills < 12:
            node.kill()
            node.start()
            kills += 1
            p = s = None
        try:
            if p is None:
                p = Mqtt(node.mqtt_port, "p")
                repeat = current is not None
            if s is None:
                s = Mqtt(node.mqtt_port, "s")
            if current is None:
                current, repeat, stage = todo.pop(0), False, "publish"
            if stage == "publish":
                p.publish("t/1", str(current), 2, 5, dup=repeat)
                p.expect(mqtt.PUBREC, 5)
                acked.append(current)
                stage = "release"
            if rng.random() < 0.1:
                p.drop()
                p = None
                continue
            p.ack(mqtt.PUBREL, 5)
            p.expect(mqtt.PUBCOMP, 5)
            current = None
            while len(handed) < len(acked):
                kind, flags, body = s.read()
                if kind == mqtt.PUBLISH:
                    s.unread.append((flags, body))
                    payload, qos, packet_id, _, _ = s.message()
                    assert qos == 2
                    if packet_id not in open_ids:
                        handed.append(int(payload))
                    open_ids.add(packet_id)
                    s.ack(mqtt.PUBREC, packet_id)
                elif kind == mqtt.PUBREL:
                    packet_id = body[0] << 8 | body[1]
                    open_ids.discard(packet_id)
                    if rng.random() < 0.9:
                        s.ack(mqtt.PUBCOMP, packet_id)
        except (mqtt.Gone, OSError):
            p = s = None
    assert kills > 0
    assert handed == list(range(1, 201))
    node.stop()


def newest_state_file(node):
    files = [path for path in (node.data / "store").rglob("*") if path.is_file() and path.suffix in (".log", ".ldb")]
    return max(files, key=lambda path: (path.stat().st_mtime_ns, path.stat().st_size))


# B1
def test_newest_state_file_of_zeros(net):
    node = broker(net)
    s = Mqtt(node.mqtt_port, "s")
    s.subscribe("t/#", 1)
    s.disconnect()
    p = Mqtt(node.mqtt_port, "p", clean=True)
    for n in range(1, 101):
        p.publish(f"r/{n}", str(n), 1, n, retain=True)
        p.expect(mqtt.PUBACK, n)
    publish_all(node, 100, name="q")
    node.kill()
    damaged = newest_state_file(node)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    node.start(seconds=5)
    s = Mqtt(node.mqtt_port, "s")
    assert s.session_present
    assert drain(s, 100) == list(range(1, 101))
    r = Mqtt(node.mqtt_port, "r", clean=True)
    r.subscribe("r/+", 0)
    assert sorted(int(r.message()[0]) for _ in range(100)) == list(range(1, 101))
    # Zeros only look like what a power cut leaves: told in the log. Other damage is an alarm.
    assert node.status()["alarms"] or "store_replayed" in node.log()
    node.stop()


def test_newest_state_file_cut_anywhere(net, rng):
    """Whatever is missing of it: clients are served within 5 s, and what is gone is told."""
    node = broker(net)
    s = Mqtt(node.mqtt_port, "s")
    s.subscribe("t/#", 1)
    s.disconnect()
    queued = 0
    for _ in range(4):
        publish_all(node, 100)
        queued += 100
        node.kill()
        cut = newest_state_file(node)
        with cut.open("r+b") as file:
            file.truncate(rng.randrange(cut.stat().st_size + 1))
        node.start(seconds=5)
        s = Mqtt(node.mqtt_port, "s")
        if node.status()["alarms"]:  # then it may be less
            s.drop()
            break
        assert s.session_present
        assert len([drain(s, 1) for _ in range(queued)]) == queued
        queued = 0
        s.disconnect()
        settled(node)
    Mqtt(node.mqtt_port, "another").disconnect()
    node.stop()


def test_messages_for_later_over_kills_come_once(net, rng):
    """Killed again and again around the time when they are due."""
    node = broker(net)
    for name in ("a", "b"):
        s = Mqtt(node.mqtt_port, name)
        s.subscribe("t/#", 1)
        s.disconnect()
    p = Mqtt(node.mqtt_port, "p", clean=True)
    count = 300
    for n in range(1, count + 1):
        p.publish(f"$delayed/{2 + n % 3}/t/x", str(n), 1, n)
        p.expect(mqtt.PUBACK, n)
    p.drop()
    for _ in range(8):
        again(node)
        time.sleep(rng.random() * 0.7)
    wait_until(lambda: node.status()["mqtt"]["delayed"] == 0, 20)
    for name in ("a", "b"):
        s = Mqtt(node.mqtt_port, name)
        assert sorted(drain(s, count)) == list(range(1, count + 1))
        p = Mqtt(node.mqtt_port, "p", clean=True)
        p.publish("t/end", "0", 1, 1)
        assert drain(s, 1) == [0], "one came twice"
        s.drop()
        p.drop()
    assert node.status()["mqtt"]["damaged_records"] == 0
    node.stop()


@pytest.mark.parametrize("durability", ["fsync", "lazy"])
def test_a_disconnect_holds_once_the_broker_has_closed(net, durability):
    node = broker(net, broker={"durability": durability})
    w = Mqtt(node.mqtt_port, "w")
    w.subscribe("w/#", 1)
    w.disconnect()
    for _ in range(5):
        s = Mqtt(node.mqtt_port, "s", will=("w/s", "gone", 1, False))
        s.disconnect()
        again(node)
    w = Mqtt(node.mqtt_port, "w")
    p = Mqtt(node.mqtt_port, "p", clean=True)
    p.publish("w/p", "1", 1, 1)
    assert drain(w, 1) == [1], "a will was sent"
    node.stop()
