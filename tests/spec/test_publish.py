"""PUBLISH and its answers: sections 3.3 to 3.7, 4.3 to 4.6, 4.9."""
import time

import pytest

import wire
from statement import both, every, v5, v311

QOS = pytest.mark.parametrize("qos", [0, 1, 2])


@every
@QOS
@v311("MQTT-3.3.4-1", "MQTT-4.3.1-1", "MQTT-4.3.2-2", "MQTT-4.3.3-2", "MQTT-2.3.1-5", "MQTT-2.3.1-6", "MQTT-4.5.0-1", "MQTT-3.3.2-3")
@v5("MQTT-3.3.4-1", "MQTT-4.3.1-1", "MQTT-4.3.2-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11", "MQTT-2.2.1-2", "MQTT-2.2.1-5",
    "MQTT-4.5.0-1", "MQTT-3.3.2-3", "MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.7.2-1", "MQTT-3.6.2-1")
def test_each_qos_is_answered_and_delivered(broker, v, qos):
    topic, s = broker.name(), broker.connect(v)
    s.subscribe(topic, qos)
    broker.connect(v).publish(topic, "x", qos)
    s.message(topic, "x", qos=qos, dup=False, retain=False)
    s.nothing()


@both
@v311("MQTT-3.8.4-6")
@v5("MQTT-3.8.4-8")
def test_the_lower_qos_counts(broker, v):
    topic, p = broker.name(), broker.connect(v)
    for granted in range(3):
        s = broker.connect(v)
        s.subscribe(topic, granted)
        for sent in range(3):
            p.publish(topic, "x", sent)
            s.message(topic, qos=min(granted, sent))
        s.nothing()


@v5("MQTT-3.4.2-1", "MQTT-3.5.2-1")
def test_nobody_wants_it(broker):
    p = broker.connect(5)
    p.send(wire.publish(5, broker.name(), "x", 1, 5)).expect("puback", id=5, reason=0x10)
    p.send(wire.publish(5, broker.name(), "x", 2, 6)).expect("pubrec", id=6, reason=0x10)
    p.send(wire.ack(wire.PUBREL, 6)).expect("pubcomp", id=6, reason=0)


@both
@v311("MQTT-3.3.1-4")
@v5("MQTT-3.3.1-4")
def test_qos_3(broker, v):
    broker.connect(v).send(wire.packet(wire.PUBLISH, 6, wire.text("t") + b"\0\1" + b"\0" * (v == 5))).closed(0x81)


@both
@v311("MQTT-3.3.1-2")
@v5("MQTT-3.3.1-2")
def test_dup_at_qos_0(broker, v):
    broker.connect(v).send(wire.publish(v, "t", dup=True)).closed(0x81)


@both
@v311("MQTT-3.3.1-3")
@v5("MQTT-3.3.1-3")
def test_dup_is_not_passed_on(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe(topic, 2)
    p.send(wire.publish(v, topic, "a", 1, 1, dup=True)).expect("puback")
    s.message(topic, "a", dup=False)
    p.send(wire.publish(v, topic, "b", 2, 2, dup=True)).expect("pubrec")
    s.message(topic, "b", dup=False)


@both
@v311("MQTT-3.3.2-2", "MQTT-4.7.1-1", "MQTT-3.3.5-2")
@v5("MQTT-3.3.2-2", "MQTT-4.7.0-1")
def test_wildcards_in_a_topic_name(broker, v):
    for bad in ("#", "+", "a/#", "a/+/b", "a+", "a#b"):
        broker.connect(v).send(wire.publish(v, bad)).closed(0x90)
        broker.open(v).send(wire.connect(v, "x", will={"topic": bad})).refused(0x90)


@both
@v311("MQTT-4.7.3-1")
@v5("MQTT-4.7.3-1")
def test_empty_topic_name(broker, v):
    c = broker.connect(v).send(wire.publish(v, ""))
    if v == 5:
        assert c.expect("disconnect").reason in (0x82, 0x90)
    c.closed()


# --- QoS 1 and 2 from the client

@both
@v311("MQTT-4.3.2-2")
@v5("MQTT-4.3.2-5")
def test_qos_1_id_is_free_after_puback(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe(topic)
    for payload, dup in (("a", False), ("b", True), ("b", True)):
        p.send(wire.publish(v, topic, payload, 1, 9, dup=dup)).expect("puback", id=9, reason=0)
        s.message(topic, payload)


@both
@v311("MQTT-4.3.3-2")
@v5("MQTT-4.3.3-10", "MQTT-4.3.3-12")
def test_qos_2_repeats_are_not_delivered_until_pubrel(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe(topic, 2)
    for dup in (False, True, False, True):
        p.send(wire.publish(v, topic, "once", 2, 4, dup=dup)).expect("pubrec", id=4, reason=0)
    s.message(topic, "once")
    s.nothing()
    p.send(wire.ack(wire.PUBREL, 4)).expect("pubcomp", id=4, reason=0)
    p.send(wire.publish(v, topic, "again", 2, 4, dup=True)).expect("pubrec", id=4, reason=0)
    s.message(topic, "again")


@both
@v5("MQTT-4.3.3-11", "MQTT-3.7.2-1")
@v311("MQTT-4.3.3-2")
def test_pubrel_of_an_unknown_id(broker, v):
    c = broker.connect(v).send(wire.ack(wire.PUBREL, 77))
    c.expect("pubcomp", id=77, reason=0x92 if v == 5 else 0)


@both
@v311("MQTT-4.3.3-2", "MQTT-4.4.0-1")
@v5("MQTT-4.3.3-10")
def test_qos_2_state_outlives_the_connection(broker, v):
    topic, s, name = broker.name(), broker.connect(v), broker.name()
    how = {"clean": False, "props": {"session_expiry": 60}}
    s.subscribe(topic, 2)
    p = broker.connect(v, name, **how)
    p.send(wire.publish(v, topic, "once", 2, 4)).expect("pubrec", id=4)
    p.drop()
    s.message(topic, "once")
    p = broker.connect(v, name, **how)
    assert p.connack.present
    p.send(wire.publish(v, topic, "once", 2, 4, dup=True)).expect("pubrec", id=4, reason=0)
    p.send(wire.ack(wire.PUBREL, 4)).expect("pubcomp", id=4, reason=0)
    s.nothing()


@both
@v311("MQTT-4.6.0-2", "MQTT-4.6.0-3", "MQTT-4.6.0-4", "MQTT-4.6.0-5", "MQTT-4.6.0-6")
@v5("MQTT-4.6.0-5", "MQTT-4.6.0-6", "MQTT-4.3.3-4")
def test_order_of_acks_and_messages(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe(topic, 2)
    # QoS by QoS: order is promised for a topic and QoS, and a window of the subscriber may part them.
    for qos in (1, 2):
        p.send(*[wire.publish(v, topic, str(i), qos, i) for i in range(1, 31)])
        for i in range(1, 31):
            p.expect("puback" if qos == 1 else "pubrec", id=i)
        if qos == 2:
            p.send(*[wire.ack(wire.PUBREL, i) for i in range(1, 31)])
            for i in range(1, 31):
                p.expect("pubcomp", id=i)
        ids = []
        for i in range(1, 31):
            m = s.message(topic, str(i), answer=False, qos=qos)
            ids.append(m.id)
        if qos == 1:
            s.send(*[wire.ack(wire.PUBACK, i) for i in ids])
            continue
        s.send(*[wire.ack(wire.PUBREC, i) for i in ids])
        for i in ids:
            s.expect("pubrel", id=i)
        s.send(*[wire.ack(wire.PUBCOMP, i) for i in ids])
    s.nothing()


# --- QoS 1 and 2 to the client

@both
@v311("MQTT-2.3.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1")
@v5("MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-4.3.3-1", "MQTT-4.3.3-2")
def test_packet_ids_in_flight_are_all_different(broker, v):
    topic, s, p = broker.name(), broker.connect(v), broker.connect(v)
    s.subscribe(topic, 2)
    for i in range(16):
        p.publish(topic, "1", 1)
        p.publish(topic, "2", 2)
    ids = [s.message(topic, answer=False, dup=False).id for _ in range(32)]
    assert len(set(ids)) == 32 and all(ids)


@both
@v311("MQTT-3.3.1-1", "MQTT-4.3.2-1", "MQTT-4.3.3-1", "MQTT-4.4.0-1", "MQTT-4.6.0-1", "MQTT-4.1.0-1")
@v5("MQTT-3.3.1-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-4.3.3-5", "MQTT-4.3.3-6", "MQTT-4.4.0-1", "MQTT-4.1.0-1")
def test_what_was_unacknowledged_comes_again_in_order(broker, v):
    topic, name, p = broker.name(), broker.name(), broker.connect(v)
    how = {"clean": False, "props": {"session_expiry": 60}}
    s = broker.connect(v, name, **how)
    s.subscribe(topic, 2)
    for i, qos in enumerate((1, 2, 2, 1, 2)):
        p.publish(topic, str(i), qos)
    first = [s.message(topic, str(i), answer=False) for i in range(5)]
    s.send(wire.ack(wire.PUBREC, first[1].id)).expect("pubrel", id=first[1].id)
    s.send(wire.ack(wire.PUBACK, first[3].id))
    s.nothing()  # and nothing is repeated on a connection that lasts
    s.drop()
    s = broker.connect(v, name, **how)
    assert s.connack.present
    s.expect("publish", id=first[0].id, payload=b"0", dup=True)
    s.expect("pubrel", id=first[1].id)
    s.expect("publish", id=first[2].id, payload=b"2", dup=True)
    s.expect("publish", id=first[4].id, payload=b"4", dup=True)
    s.send(wire.ack(wire.PUBCOMP, first[1].id), wire.ack(wire.PUBACK, first[0].id))
    s.nothing()


@v5("MQTT-4.4.0-2", "MQTT-4.3.3-4")
def test_negative_acks_end_the_exchange(broker):
    topic, name, p = broker.name(), broker.name(), broker.connect(5)
    how = {"clean": False, "props": {"session_expiry": 60}}
    s = broker.connect(5, name, **how)
    s.subscribe(topic, 2)
    for qos, kind in ((1, wire.PUBACK), (2, wire.PUBREC)):
        p.publish(topic, "no", qos)
        s.send(wire.ack(kind, s.message(topic, answer=False).id, 0x97))
        s.nothing()
    s.drop()
    s = broker.connect(5, name, **how)
    s.nothing()


@v5("MQTT-3.6.2-1", "MQTT-2.2.1-5")
def test_acks_for_nothing(broker):
    c = broker.connect(5)
    c.send(wire.ack(wire.PUBREC, 3)).expect("pubrel", id=3, reason=0x92)
    c.send(wire.ack(wire.PUBACK, 3), wire.ack(wire.PUBCOMP, 3), wire.ack(wire.PUBREC, 3, 0x80)).nothing()


@both
def test_acks_of_the_wrong_qos(broker, v):
    for qos, kind in ((1, wire.PUBREC), (2, wire.PUBACK), (2, wire.PUBCOMP)):
        topic, s = broker.name(), broker.connect(v)
        s.subscribe(topic, 2)
        broker.connect(v).publish(topic, "x", qos)
        s.send(wire.ack(kind, s.message(topic, answer=False).id)).closed(0x82)


# --- flow control

@v5("MQTT-3.3.4-9", "MQTT-3.3.4-10", "MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-4.9.0-3")
def test_the_clients_receive_maximum(broker):
    topic, p, s = broker.name(), broker.connect(5), broker.connect(5, props={"receive_maximum": 3})
    s.subscribe(topic, 2)
    for i in range(6):
        p.publish(topic, str(i), 1 + i % 2)
    got = s.ping()
    assert [m.payload for m in got] == [b"0", b"1", b"2"]
    # Everything else goes on.
    p.publish(topic, "qos 0", 0)
    s.message(topic, "qos 0", qos=0)
    assert s.unsubscribe("none") == [0x11] and s.subscribe("other") == [0]
    # PUBREC does not free a place, PUBACK and PUBCOMP do.
    s.send(wire.ack(wire.PUBREC, got[1].id)).expect("pubrel")
    s.nothing()
    s.send(wire.ack(wire.PUBCOMP, got[1].id), wire.ack(wire.PUBACK, got[0].id))
    assert [m.payload for m in s.ping()] == [b"3", b"4"]


@v5("MQTT-3.3.4-7")
def test_the_servers_receive_maximum(broker):
    topic, p = broker.name(), broker.connect(5)
    most = p.connack.props.get("receive_maximum")
    p.send(*[wire.publish(5, topic, "x", 2, i + 1) for i in range(most)])
    for i in range(most):
        p.expect("pubrec", id=i + 1)
    p.send(wire.ack(wire.PUBREL, 1)).expect("pubcomp", id=1)
    p.send(wire.publish(5, topic, "x", 2, 1)).expect("pubrec", id=1)  # a place was free again
    p.send(wire.publish(5, topic, "x", 1, most + 1)).closed(0x93)


# --- properties

@v5("MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20", "MQTT-2.2.2-1")
def test_properties_of_a_message_go_on_as_they_are(broker):
    topic, s, old, p = broker.name(), broker.connect(5), broker.connect(4), broker.connect(5)
    s.subscribe(topic, 1)
    old.subscribe(topic, 1)
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("a", "\ufeff")]
    given = [("payload_format", 1), ("content_type", "text/plain"), ("response_topic", "re/ply"),
             ("correlation_data", b"\0\xff\1")] + [("user_property", pair) for pair in pairs]
    p.publish(topic, "x", 1, props=given)
    m = s.message(topic, "x")
    assert m.props.user == pairs
    assert m.props.all == dict(given[:4])
    old.message(topic, "x")
    p.publish(topic, "y", 1)
    assert s.message(topic, "y").props.all == {}


@v5("MQTT-3.3.2-6", "MQTT-3.3.2-5", "MQTT-4.3.3-13", "MQTT-4.3.3-7")
def test_message_expiry(broker):
    topic, name, p = broker.name(), broker.name(), broker.connect(5)
    how = {"clean": False, "props": {"session_expiry": 60, "receive_maximum": 1}}
    s = broker.connect(5, name, **how)
    s.subscribe(topic, 2)
    p.publish(topic, "in flight", 2, props={"message_expiry": 1})
    held = s.message(topic, "in flight", answer=False)
    assert held.props.get("message_expiry") == 1
    dropped = broker.count("dropped_expired")
    p.publish(topic, "waits too long", 1, props={"message_expiry": 1})
    p.publish(topic, "long", 1, props={"message_expiry": 100})
    p.publish(topic, "for ever", 1)
    s.drop()
    time.sleep(2.1)
    s = broker.connect(5, name, **how)
    again = s.expect("publish", id=held.id, dup=True, payload=b"in flight")  # it was sent before: it is completed
    s.send(wire.ack(wire.PUBREC, again.id)).expect("pubrel", id=held.id)
    s.send(wire.ack(wire.PUBCOMP, held.id))
    assert 90 <= s.message(topic, "long").props.get("message_expiry") <= 98
    assert s.message(topic, "for ever").props.get("message_expiry") is None
    assert broker.count("dropped_expired") == dropped + 1


@v5("MQTT-3.1.2-25", "MQTT-3.1.2-24")
def test_messages_over_the_clients_maximum_are_dropped(broker):
    topic, p = broker.name(), broker.connect(5)
    s = broker.connect(5, props={"maximum_packet_size": 60, "receive_maximum": 1})
    s.subscribe(topic, 2)
    dropped = broker.count("dropped_too_large")
    room = 60 - len(wire.publish(5, topic, b"", 1, 1))
    for qos in range(3):
        p.publish(topic, b"x" * 200, qos)
    p.publish(topic, b"y" * (room + 1), 1)
    p.publish(topic, b"z" * room, 1)
    assert s.message(topic, b"z" * room).size == 60
    assert broker.count("dropped_too_large") == dropped + 4


# --- topic aliases in

@v5("MQTT-3.3.2-12", "MQTT-3.3.2-7")
def test_topic_aliases(broker):
    topic, s, p = broker.name(), broker.connect(5), broker.connect(5)
    s.subscribe([topic, topic + "/2"], 1)
    most = p.connack.props.get("topic_alias_maximum")
    for alias in (1, most):
        p.publish(topic, "set", 1, props={"topic_alias": alias})
        p.publish("", "use", 1, props={"topic_alias": alias})
        p.publish(topic + "/2", "set again", 1, props={"topic_alias": alias})
        p.publish("", "use again", 1, props={"topic_alias": alias})
        for where, what in ((topic, "set"), (topic, "use"), (topic + "/2", "set again"), (topic + "/2", "use again")):
            assert s.message(where, what).props.all.get("topic_alias") is None
    p.drop()
    broker.connect(5).send(wire.publish(5, "", "gone", props={"topic_alias": 1})).closed(0x94)


@v5("MQTT-3.3.2-8", "MQTT-3.3.2-9")
def test_bad_topic_aliases(broker):
    for topic, alias in (("t", 0), ("", 0), ("", 1), ("t", 33), ("", 33), ("t", 65535)):
        broker.connect(5).send(wire.publish(5, topic, "x", 1, 1, props={"topic_alias": alias}), wire.pingreq()).closed(0x94)


@v5("MQTT-3.1.2-27", "MQTT-3.3.2-11")
def test_no_alias_to_a_client_that_allows_none(broker):
    topic, s, p = broker.name(), broker.connect(5, props={"topic_alias_maximum": 0}), broker.connect(5)
    none = broker.connect(5)
    s.subscribe(topic)
    none.subscribe(topic)
    for _ in range(5):
        p.publish(topic, "x", 1, props={"topic_alias": 1})
        assert "topic_alias" not in s.message(topic).props.all
        assert "topic_alias" not in none.message(topic).props.all


@v5("MQTT-3.1.2-26", "MQTT-3.3.2-11", "MQTT-3.3.2-7")
def test_aliases_to_a_client_stay_below_its_maximum_and_mean_what_they_said(broker):
    topics, s, p = [broker.name() for _ in range(4)], broker.connect(5, props={"topic_alias_maximum": 2}), broker.connect(5)
    s.subscribe(topics)
    known = {}
    for topic in topics * 4:
        p.publish(topic, topic, 1)
        m = s.message()
        alias = m.props.get("topic_alias")
        if alias is not None:
            assert 1 <= alias <= 2
            if m.topic:
                known[alias] = m.topic
        assert (m.topic or known[alias]) == topic


# --- retained messages

@both
@v311("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8", "MQTT-3.3.1-9", "MQTT-3.1.2-7")
@v5("MQTT-3.3.1-5", "MQTT-3.3.1-9", "MQTT-3.3.1-12")
def test_retained_messages(broker, v):
    topic, live = broker.name(), broker.connect(v)
    live.subscribe(topic, 2)
    for qos in range(3):
        p = broker.connect(v)
        p.publish(topic, f"value {qos}", qos, retain=True)
        p.disconnect()
        live.message(topic, f"value {qos}", retain=False, qos=qos)
        s = broker.connect(v)
        s.subscribe(topic, 2)
        s.message(topic, f"value {qos}", retain=True, qos=qos)
        s.nothing()


@both
@v311("MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.3.1-12")
@v5("MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8")
def test_clearing_what_is_retained(broker, v):
    topic, p, live = broker.name(), broker.connect(v), broker.connect(v)
    live.subscribe(topic, 1)
    p.publish(topic, "keep", 1, retain=True)
    p.publish(topic, "pass by", 1)
    p.publish(topic, "", 1)  # empty, yet not retained: clears nothing
    for payload in ("keep", "pass by", ""):
        live.message(topic, payload, retain=False)
    s = broker.connect(v)
    s.subscribe(topic, 1)
    s.message(topic, "keep", retain=True)
    p.publish(topic, "", 1, retain=True)
    s.message(topic, "", retain=False)
    live.message(topic, "", retain=False)
    t = broker.connect(v)
    t.subscribe(topic, 1)
    t.nothing()


@v5("MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_retained_messages_expire(broker):
    topic, p = broker.name(), broker.connect(5)
    p.publish(topic + "/short", "x", 1, retain=True, props={"message_expiry": 1})
    p.publish(topic + "/long", "x", 1, retain=True, props={"message_expiry": 100})
    time.sleep(2.1)
    s = broker.connect(5)
    s.subscribe(topic + "/#", 1)
    assert 90 <= s.message(topic + "/long").props.get("message_expiry") <= 98
    s.nothing()
