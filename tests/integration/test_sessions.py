"""The broker's sessions over kill -9: what it acknowledged is there afterwards."""
import subprocess
import time

import pytest

import packets as mqtt
from packets import Mqtt
from waiting import wait_until

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
                           "-D", "publish", "message-expiry-interval", "1"], check=True, timeout=30)
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
