"""Shared subscriptions: section 4.8.2."""
import time

import pytest

import wire
from statement import v5

KEEP = {"clean": False, "props": {"session_expiry": 60}}


@pytest.fixture(autouse=True)
def _built(broker):
    if broker.connect(5).connack.props.get("shared_available") == 0:
        pytest.skip("this broker has no shared subscriptions")


def members(broker, topic, *options, **how):
    out = []
    for option in options:
        c = broker.connect(5, **{"client_id": broker.name(), **how})
        assert c.subscribe(f"$share/g/{topic}", option) == [option & 3]
        out.append(c)
    return out


@v5("MQTT-4.8.2-1", "MQTT-4.8.2-2")
def test_each_message_goes_to_one_member_of_each_group(broker):
    topic, p = broker.name(), broker.connect(5)
    group, alone = members(broker, topic, 1, 1, 1), broker.connect(5)
    alone.subscribe([f"$share/other/{topic}", topic], 1)
    for i in range(30):
        p.publish(topic, str(i), 1)
    got = [[int(m.payload) for m in c.ping()] for c in group]
    assert sorted(sum(got, [])) == list(range(30))
    assert all(got) and all(part == sorted(part) for part in got)
    assert len(alone.ping()) >= 30


@v5("MQTT-4.8.2-3", "MQTT-3.8.4-8")
def test_each_member_gets_its_own_qos(broker):
    topic, p = broker.name(), broker.connect(5)
    group = members(broker, topic, 0, 1, 2)
    for i in range(30):
        p.publish(topic, str(i), 2)
    for granted, c in enumerate(group):
        got = c.ping()
        assert got and all(m.qos == granted for m in got)


@v5("MQTT-4.8.2-2")
def test_wildcards_and_no_retained_messages(broker):
    topic, p = broker.name(), broker.connect(5)
    p.publish(topic + "/kept", "x", 1, retain=True)
    (c,) = members(broker, topic + "/+", 1)
    c.nothing()
    p.publish(topic + "/a", "x", 1)
    c.message(topic + "/a", "x")
    assert c.unsubscribe(f"$share/g/{topic}/+") == [0]
    assert c.unsubscribe(f"$share/g/{topic}/+") == [0x11]
    p.publish(topic + "/a", "x", 1)
    c.nothing()


@v5("MQTT-4.8.2-4")
def test_a_members_qos_2_is_completed_when_it_is_back(broker):
    topic, p, name = broker.name(), broker.connect(5), broker.name()
    (a,) = members(broker, topic, 2, client_id=name, **KEEP)
    (b,) = members(broker, topic, 2)
    held = []
    for i in range(4):
        p.publish(topic, str(i), 2)
    held = [m for m in a.ping()]
    assert held
    a.send(wire.ack(wire.PUBREC, held[0].id)).expect("pubrel", id=held[0].id)
    for m in b.ping():
        b.send(wire.ack(wire.PUBREC, m.id)).expect("pubrel")
        b.send(wire.ack(wire.PUBCOMP, m.id))
    a.drop()
    a = broker.connect(5, name, **KEEP)
    assert a.connack.present
    a.expect("pubrel", id=held[0].id)
    a.send(wire.ack(wire.PUBCOMP, held[0].id))
    for m in held[1:]:
        again = a.expect("publish", id=m.id, dup=True, payload=m.payload)
        a.send(wire.ack(wire.PUBREC, again.id)).expect("pubrel", id=m.id)
        a.send(wire.ack(wire.PUBCOMP, m.id))
    a.nothing()
    b.nothing()


@v5("MQTT-4.8.2-5")
def test_a_qos_2_message_of_a_session_that_ended_goes_to_nobody_else(broker):
    topic, p = broker.name(), broker.connect(5)
    (a,) = members(broker, topic, 2)
    p.publish(topic, "released", 2)
    m = a.message(topic, answer=False)
    a.send(wire.ack(wire.PUBREC, m.id)).expect("pubrel", id=m.id)
    (b,) = members(broker, topic, 2)
    a.drop()
    time.sleep(0.2)
    b.nothing()


@v5("MQTT-4.8.2-6")
def test_a_message_that_a_member_refused_goes_to_nobody_else(broker):
    topic, p = broker.name(), broker.connect(5)
    a, b = members(broker, topic, 2, 2)
    for qos, kind in ((1, wire.PUBACK), (2, wire.PUBREC)):
        for i in range(6):
            p.publish(topic, str(i), qos)
        got = [a.ping(), b.ping()]
        assert sum(map(len, got)) == 6
        for c, part in zip((a, b), got):
            c.send(*[wire.ack(kind, m.id, 0x83) for m in part])
            c.nothing()
    a.nothing()
    b.nothing()
