"""SUBSCRIBE, UNSUBSCRIBE and what matches: sections 3.8 to 3.11, 4.7."""
import pytest

import wire
from statement import both, every, v5, v311


@every
@v311("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.3.1-7", "MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2", "MQTT-3.8.4-4")
@v5("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.2.1-6", "MQTT-3.8.4-6", "MQTT-3.9.3-1", "MQTT-3.9.3-2", "MQTT-3.8.4-5", "MQTT-3.8.4-7")
def test_suback_has_a_reason_per_filter_in_order(broker, v):
    c = broker.connect(v)
    for pid in (1, 255, 256, 65535):
        c.send(wire.subscribe(v, [("a", 2), ("b", 0), ("c", 1), ("a", 1)], pid)).expect("suback", id=pid, reasons=[2, 0, 1, 1])


@both
@v311("MQTT-3.8.3-3")
@v5("MQTT-3.8.3-2")
def test_subscribe_without_filters(broker, v):
    broker.connect(v).send(wire.subscribe(v, [])).closed(0x82)


@both
@v311("MQTT-3.10.3-2")
@v5("MQTT-3.10.3-2")
def test_unsubscribe_without_filters(broker, v):
    broker.connect(v).send(wire.unsubscribe(v, [])).closed(0x82)


@both
@v311("MQTT-3.8.3-4")
@v5("MQTT-3.8.3-5")
def test_reserved_bits_and_qos_3_in_the_options(broker, v):
    for options in (3, 0x40, 0x80, 0xFF) + ((4, 8, 16, 32) if v == 4 else ()):
        broker.connect(v).send(wire.subscribe(v, [("ok", 0), ("t", options)])).closed(0x81)


@v5("MQTT-4.13.1-1")
def test_retain_handling_3(broker):
    broker.connect(5).send(wire.subscribe(5, [("t", 0x30)])).closed(0x82)


@both
@v311("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.3-1", "MQTT-4.8.0-1")
@v5("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.3-1")
def test_filters_that_are_none(broker, v):
    for bad in ("", "a#", "#/a", "a/#/b", "a/b#", "##", "+a", "a+/b", "a/+b", "++", "a/++", "a/#/"):
        for packet in (wire.subscribe(v, bad), wire.unsubscribe(v, bad), wire.subscribe(v, ["good", bad])):
            broker.connect(v).send(packet).closed(0x8F)


@v5("MQTT-4.8.2-1", "MQTT-4.8.2-2", "MQTT-3.8.3-4")
def test_shared_filters_that_are_none(broker):
    for bad in ("$share/", "$share//t", "$share/g", "$share/g/", "$share/g+/t", "$share/g#/t", "$share/+/t", "$share/g/a#"):
        broker.connect(5).send(wire.subscribe(5, bad)).closed(0x8F)
    broker.connect(5).send(wire.subscribe(5, [("$share/g/t", 4)])).closed(0x82)


MATCHES = [
    ("#", "a", True), ("#", "a/b/c", True), ("#", "/", True), ("#", "$a", False), ("#", "$a/b", False),
    ("+", "a", True), ("+", "/a", False), ("+", "a/b", False), ("+", "$a", False), ("+/b", "$a/b", False),
    ("+/+", "/a", True), ("/+", "/a", True), ("/+", "a", False), ("/#", "/", True), ("/#", "/a/b", True), ("/#", "a", False),
    ("a/#", "a", True), ("a/#", "a/", True), ("a/#", "a/b", True), ("a/#", "ab", False), ("a/#", "A/b", False),
    ("a/+", "a", False), ("a/+", "a/", True), ("a/+", "a/b", True), ("a/+", "a/b/c", False), ("a/+/c", "a//c", True),
    ("+/a/#", "x/a", True), ("+/a/#", "/a/b", True), ("a/b", "a/b/", False), ("a/b/", "a/b", False), ("/", "/", True),
    ("//", "//", True), ("+//+", "a//b", True), ("$a/#", "$a/b", True), ("$a/+", "$a/b", True), ("$a", "$a", True),
    ("+/+/+", "a/b/c", True), ("+/+/#", "a/b", True), ("+/+/#", "a", False), ("a b/+", "a b/c d", True), ("+/tennis/#", "sport/tennis/p1/x", True),
]


@both
@v311("MQTT-4.7.2-1", "MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.3-4", "MQTT-3.3.2-3")
@v5("MQTT-4.7.2-1", "MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.3-4", "MQTT-3.3.2-3")
def test_what_matches_live_and_retained(broker, v):
    p = broker.connect(v)
    for filter_, topic, does in MATCHES:
        live, late = broker.connect(v), broker.connect(v)
        live.subscribe(filter_, 1)
        p.publish(topic, "x", 1, retain=True)
        late.subscribe(filter_, 1)
        p.publish(topic, "", 1, retain=True)
        assert [m.payload for m in live.ping()] == ([b"x", b""] if does else []), (filter_, topic)
        assert [m.payload for m in late.ping()] == ([b"x", b""] if does else []), (filter_, topic)
        live.disconnect()
        late.disconnect()


@both
@v311("MQTT-3.3.5-1")
@v5("MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4")
def test_overlapping_subscriptions_give_one_copy_at_the_highest_qos(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe(topic + "/+", 2, {"subscription_id": 268435455})
    s.subscribe(topic + "/#", 1, {"subscription_id": 1})
    s.subscribe(topic + "/a", 0)
    s.subscribe(topic + "/b", 0, {"subscription_id": 7})
    p.publish(topic + "/a", "x", 2)
    m = s.message(topic + "/a", "x", qos=2)
    if v == 5:
        assert sorted(m.props.ids) == [1, 268435455]
    s.nothing()


@v5("MQTT-3.3.4-3", "MQTT-3.8.4-3")
def test_subscription_identifiers(broker):
    topic, s, p = broker.name(), broker.connect(5), broker.connect(5)
    p.publish(topic, "kept", 1, retain=True)
    s.subscribe(topic, 1, {"subscription_id": 5})
    assert s.message(topic, "kept").props.ids == [5]
    p.publish(topic, "a", 1)
    assert s.message(topic, "a").props.ids == [5]
    s.subscribe(topic, 0x21, {"subscription_id": 6})
    p.publish(topic, "b", 1)
    assert s.message(topic, "b").props.ids == [6]
    s.subscribe(topic, 0x21)
    p.publish(topic, "c", 1)
    assert s.message(topic, "c").props.ids == []


@both
@v311("MQTT-3.8.4-3")
@v5("MQTT-3.8.4-3", "MQTT-3.8.4-4")
def test_the_same_filter_replaces_the_subscription(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    p.publish(topic, "kept", 1, retain=True)
    for qos in (2, 0, 1):
        assert s.subscribe(topic, qos) == [qos]
        s.message(topic, "kept", retain=True, qos=min(qos, 1))
        p.publish(topic, "live", 2)
        s.message(topic, "live", qos=qos)
    s.nothing()


@both
@v311("MQTT-3.8.4-3")
@v5("MQTT-3.8.4-4")
def test_nothing_is_lost_while_a_subscription_is_replaced(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe(topic, 1)
    for i in range(20):
        p.send(wire.publish(v, topic, str(i), 1, i + 1))
        s.send(wire.subscribe(v, [(topic, 1)], 100 + i))
    for i in range(20):
        p.expect("puback", id=i + 1)
    got = [m for m in s.ping() if m.type == "publish"]
    assert [int(m.payload) for m in got] == list(range(20))


@v5("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.8.4-4")
def test_retain_handling(broker):
    topic, p = broker.name(), broker.connect(5)
    p.publish(topic, "kept", 1, retain=True)
    s = broker.connect(5)
    for options, sent in ((0x11, True), (0x11, False), (0x01, True), (0x21, False), (0x01, True), (0x11, False)):
        s.subscribe(topic, options)
        assert [m.payload for m in s.ping()] == [b"kept"] * sent, hex(options)
    t = broker.connect(5)
    t.subscribe(topic, 0x21)
    t.nothing()
    # Set again while subscribed: live, and not once more on the next SUBSCRIBE.
    p.publish(topic, "newer", 1, retain=True)
    s.message(topic, "newer", retain=False)
    s.ping()
    s.subscribe(topic, 0x11)
    s.nothing()
    # After UNSUBSCRIBE it is new again.
    s.unsubscribe(topic)
    s.subscribe(topic, 0x11)
    s.message(topic, "newer", retain=True)


@v5("MQTT-3.3.1-12", "MQTT-3.3.1-13")
def test_retain_as_published(broker):
    topic, p, as_is, plain = broker.name(), broker.connect(5), broker.connect(5), broker.connect(5)
    as_is.subscribe(topic, 0x08)
    plain.subscribe(topic, 0x00)
    for retain in (True, False):
        p.publish(topic, "x", retain=retain)
        as_is.message(topic, retain=retain)
        plain.message(topic, retain=False)


@v5("MQTT-3.8.3-3")
def test_no_local(broker):
    topic, a, b = broker.name(), broker.connect(5), broker.connect(5)
    a.subscribe(topic, 0x05)
    b.subscribe(topic, 0x05)
    a.send(wire.publish(5, topic, "from a", 1, 50)).expect("puback", id=50)
    b.message(topic, "from a")
    a.nothing()
    # The client, not the subscription: another filter without it gets the message.
    a.subscribe(topic + "/#", 0x01)
    a.send(wire.publish(5, topic, "again", 1, 51))
    assert sorted(x.type for x in a.ping()) == ["puback", "publish"]


@both
@v311("MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6", "MQTT-2.3.1-7")
@v5("MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6", "MQTT-2.2.1-6", "MQTT-3.11.3-1",
    "MQTT-3.11.3-2")
def test_unsubscribe(broker, v):
    t, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe([t + "/a", t + "/+", t + "/c"], 1)
    # Compared as characters: none of these names one of them, though they match.
    reasons = s.unsubscribe([t + "/#", t + "/b", t + "/A", t + "/c/"])
    assert reasons == ([0x11] * 4 if v == 5 else [])
    p.publish(t + "/c", "x", 1)
    s.message(t + "/c")
    reasons = s.unsubscribe([t + "/nothing", t + "/a", t + "/+", t + "/a"])
    assert reasons == ([0x11, 0, 0, 0x11] if v == 5 else [])
    p.publish(t + "/a", "x", 1)
    p.publish(t + "/c", "y", 1)
    s.message(t + "/c", "y")
    s.nothing()


@both
@v311("MQTT-3.10.4-3")
@v5("MQTT-3.10.4-3")
def test_what_was_begun_before_unsubscribe_is_completed(broker, v):
    topic, name = broker.name(), broker.name()
    how = {"clean": False, "props": {"session_expiry": 60}}
    s, p = broker.connect(v, name, **how), broker.connect(v)
    s.subscribe(topic, 2)
    p.publish(topic, "one", 1)
    p.publish(topic, "two", 2)
    one, two = (s.message(topic, answer=False) for _ in range(2))
    s.unsubscribe(topic)
    p.publish(topic, "three", 2)
    s.nothing()
    s.drop()
    s = broker.connect(v, name, **how)
    assert s.expect("publish", dup=True).id == one.id
    s.send(wire.ack(wire.PUBACK, one.id))
    assert s.expect("publish", dup=True).id == two.id
    s.send(wire.ack(wire.PUBREC, two.id)).expect("pubrel", id=two.id)
    s.send(wire.ack(wire.PUBCOMP, two.id)).nothing()


@both
@v311("MQTT-3.12.4-1")
@v5("MQTT-3.12.4-1")
def test_ping(broker, v):
    c = broker.connect(v)
    c.send(*[wire.pingreq()] * 100)
    for _ in range(100):
        c.expect("pingresp")


@both
@v311("MQTT-4.7.3-3")
@v5("MQTT-4.7.3-3")
def test_longest_topic(broker, v):
    topic, s = "x" * 65535, broker.connect(v)
    s.subscribe(topic, 1)
    broker.connect(v).publish(topic, "x", 1, retain=True)
    s.message(topic)
    broker.connect(v).publish(topic, "", 1, retain=True)
    s.message(topic)


@pytest.mark.parametrize("v", [4, 5])
def test_levels_are_bounded(broker, v):
    most = "/".join("a" * 128)
    s = broker.connect(v)
    s.subscribe([most, "/".join(["+"] * 128)], 1)
    broker.connect(v).publish(most, "x", 1)
    s.message(most)
    s.nothing()
    deep = "/".join("a" * 129)
    assert s.subscribe([("ok", 0), (deep, 0)]) == [0, 0x8F if v == 5 else 0x80]
    broker.connect(v).send(wire.publish(v, deep)).closed(0x90)
    broker.open(v).send(wire.connect(v, "x", will={"topic": deep})).refused(0x90)
