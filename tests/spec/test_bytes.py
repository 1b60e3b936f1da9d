"""Malformed packets of every type, after CONNECT: closed with the right reason, and counted. Chapters 1, 2 and 4.13."""
import pytest

import wire
from statement import both, v5, v311


def tells_and_counts(broker, v, packet, reason):
    before = broker.count("malformed")
    broker.connect(v).send(packet, wire.pingreq()).closed(reason)
    assert broker.count("malformed") == before + 1


FLAGS = [(kind, flags) for kind, right in (
    (wire.PUBACK, 0), (wire.PUBREC, 0), (wire.PUBREL, 2), (wire.PUBCOMP, 0), (wire.SUBSCRIBE, 2), (wire.UNSUBSCRIBE, 2),
    (wire.PINGREQ, 0), (wire.DISCONNECT, 0)) for flags in (0, 1, 2, 3, 8, 15) if flags != right]


@both
@v311("MQTT-2.2.2-1", "MQTT-2.2.2-2", "MQTT-3.6.1-1", "MQTT-3.8.1-1", "MQTT-3.10.1-1", "MQTT-3.14.1-1", "MQTT-4.8.0-1")
@v5("MQTT-2.1.3-1", "MQTT-3.6.1-1", "MQTT-3.8.1-1", "MQTT-3.10.1-1", "MQTT-3.14.1-1", "MQTT-4.13.1-1", "MQTT-4.13.2-1")
@pytest.mark.parametrize("kind, flags", FLAGS, ids=lambda x: str(x))
def test_reserved_flags(broker, v, kind, flags):
    bodies = {wire.SUBSCRIBE: wire.subscribe(v, "t")[2:], wire.UNSUBSCRIBE: wire.unsubscribe(v, "t")[2:], wire.PINGREQ: b"",
              wire.DISCONNECT: b""}
    tells_and_counts(broker, v, wire.packet(kind, flags, bodies.get(kind, b"\0\1")), 0x81)


@v5("MQTT-3.15.1-1")
def test_flags_of_auth(broker):
    for flags in (1, 2, 4, 8):
        broker.connect(5).send(wire.auth(flags=flags)).closed(0x81)


@both
@v5("MQTT-4.13.1-1")
def test_packets_that_only_a_server_sends(broker, v):
    for kind, body in ((wire.CONNACK, b"\0\0" + b"\0" * (v == 5)), (wire.SUBACK, b"\0\1" + b"\0" * (v == 5) + b"\0"),
                       (wire.UNSUBACK, b"\0\1" + b"\0\0" * (v == 5)), (wire.PINGRESP, b"")):
        tells_and_counts(broker, v, wire.packet(kind, 0, body), 0x82)


@both
def test_packet_type_0(broker, v):
    for packet in (b"\0\0", b"\x01\0", b"\x0f\x02ab"):
        tells_and_counts(broker, v, packet, 0x81)


def test_auth_before_version_5(broker):
    broker.connect(4).send(wire.packet(wire.AUTH, 0, b"")).closed()


@both
@v5("MQTT-1.5.5-1")
def test_remaining_length_of_five_bytes(broker, v):
    tells_and_counts(broker, v, b"\xc0\x80\x80\x80\x80\x01", 0x81)
    tells_and_counts(broker, v, b"\xc0\xff\xff\xff\xff\x7f", 0x81)


@v5("MQTT-1.5.5-1")
def test_remaining_length_longer_than_needed(broker):
    for size in (2, 3, 4):
        tells_and_counts(broker, 5, wire.packet(wire.PINGREQ, 0, b"", wire.varint(0, size)), 0x81)
        body = wire.publish(5, "t", "x")[2:]
        tells_and_counts(broker, 5, wire.packet(wire.PUBLISH, 0, body, wire.varint(len(body), size)), 0x81)
    # 3.1.1 does not forbid it.
    broker.connect(4).send(wire.packet(wire.PINGREQ, 0, b"", wire.varint(0, 2))).expect("pingresp")


@both
def test_packet_over_the_servers_maximum(broker, v):
    # The header tells: nothing of the body has to be there.
    tells_and_counts(broker, v, b"\x30" + wire.varint(1024 * 1024), 0x95)
    tells_and_counts(broker, v, b"\x30\xff\xff\xff\x7f", 0x95)
    topic, c = broker.name(), broker.connect(v)
    c.subscribe(topic)
    head = len(wire.publish(v, topic, b"x" * 1024 * 1000)) - 1024 * 1000
    most = b"x" * (1024 * 1024 - head)
    c.send(wire.publish(v, topic, most))  # exactly the maximum
    c.message(topic, most)


@both
def test_body_of_packets_that_have_none(broker, v):
    tells_and_counts(broker, v, wire.packet(wire.PINGREQ, 0, b"x"), 0x81)
    if v < 5:
        tells_and_counts(broker, v, wire.packet(wire.DISCONNECT, 0, b"\0"), 0x81)


@both
@v311("MQTT-2.3.1-1")
@v5("MQTT-2.2.1-3")
def test_packet_id_0(broker, v):
    for packet in (wire.publish(v, "t", qos=1, pid=0), wire.publish(v, "t", qos=2, pid=0), wire.subscribe(v, "t", 0),
                   wire.unsubscribe(v, "t", 0), wire.ack(wire.PUBACK, 0), wire.ack(wire.PUBREC, 0), wire.ack(wire.PUBREL, 0),
                   wire.ack(wire.PUBCOMP, 0)):
        tells_and_counts(broker, v, packet, 0x82)


@both
def test_truncations_of_every_packet(broker, v):
    """Shorter bodies in whole packets: none is taken for something else, all close."""
    for packet in (wire.publish(v, "topic", b"", 1, 7), wire.subscribe(v, "filter", 7), wire.unsubscribe(v, "filter", 7),
                   wire.ack(wire.PUBACK, 7), wire.ack(wire.PUBREL, 7)):
        kind, flags, body = packet[0] >> 4, packet[0] & 15, packet[2:]
        for size in range(len(body)):
            c = broker.connect(v).send(wire.packet(kind, flags, body[:size]))
            if v == 5:
                assert c.expect("disconnect").reason in (0x81, 0x82)
            c.closed()


@v5("MQTT-4.13.1-1")
@pytest.mark.parametrize("kind", [wire.PUBACK, wire.PUBREC, wire.PUBREL, wire.PUBCOMP], ids=lambda k: wire.NAMES[k])
def test_acks_of_version_5(broker, kind):
    # Undefined reasons, bytes too many, properties that have no place there or run past the end.
    for bad in (wire.ack(kind, 1, 0x7F), wire.ack(kind, 1, 0x01), wire.ack(kind, 1, 0x8E), wire.ack(kind, 1, 0, b"\0\0"),
                wire.ack(kind, 1, 0, b"\x05"), wire.ack(kind, 1, 0, b"\x02\x7f\0"), wire.ack(kind, 1, 0, b"\x80\0"),
                wire.ack(kind, 1, 0, {"reason_string": b"\xff"})):
        tells_and_counts(broker, 5, bad, 0x81)
    tells_and_counts(broker, 5, wire.ack(kind, 1, 0, {"topic_alias": 1}), 0x82)
    tells_and_counts(broker, 5, wire.ack(kind, 1, 0, [("reason_string", "a"), ("reason_string", "b")]), 0x82)


def test_acks_of_version_3_have_no_reason(broker):
    for kind in (wire.PUBACK, wire.PUBREC, wire.PUBREL, wire.PUBCOMP):
        tells_and_counts(broker, 4, wire.ack(kind, 1, 0), 0x81)


@v5("MQTT-3.14.2-1", "MQTT-1.5.7-1")
def test_bad_disconnect(broker):
    for bad in (wire.disconnect(5, 0x01), wire.disconnect(5, 0x7F), wire.disconnect(5, 0, b"\x05"),
                wire.disconnect(5, 0, b"\x80\0"), wire.disconnect(5, 0, [("user_property", (b"\xff", "x"))])):
        broker.connect(5).send(bad).closed(0x81)
    for bad in ([("session_expiry", 1), ("session_expiry", 1)], [("topic_alias", 1)], [("assigned_client_id", "x")]):
        broker.connect(5, props={"session_expiry": 5}).send(wire.disconnect(5, 0, bad)).closed(0x82)


@pytest.mark.parametrize("props, reason", [
    ([("payload_format", 2)], 0x82),
    ([("payload_format", 0), ("payload_format", 0)], 0x82),
    ([("message_expiry", 1), ("message_expiry", 1)], 0x82),
    ([("topic_alias", 0)], 0x94),
    ([("topic_alias", 1), ("topic_alias", 1)], 0x82),
    ([("response_topic", "a/+")], 0x82),
    ([("response_topic", "#")], 0x82),
    ([("response_topic", "")], 0x82),
    ([("response_topic", b"\xff")], 0x81),
    ([("content_type", b"\xc0\x80")], 0x81),
    ([("content_type", "a"), ("content_type", "b")], 0x82),
    ([("user_property", ("k", b"\xed\xbf\xbf"))], 0x81),
    ([("subscription_id", 0)], 0x82),
    ([("subscription_id", 5)], 0x82),
    ([("session_expiry", 5)], 0x82),
    ([("reason_string", "x")], 0x82),
    (b"\x03\x01\x00", 0x81),
    (b"\x81\0\x01", 0x81),
    (b"\x80\x80\x80\x80\x00", 0x81),
    (b"\x01\x04", 0x81),
])
@v5("MQTT-3.3.2-8", "MQTT-3.3.2-13", "MQTT-3.3.2-14", "MQTT-3.3.2-19", "MQTT-3.3.4-6", "MQTT-1.5.4-1", "MQTT-1.5.7-1",
    "MQTT-1.5.5-1")
def test_bad_properties_in_publish(broker, props, reason):
    tells_and_counts(broker, 5, wire.publish(5, "t", "", props=props), reason)


@pytest.mark.parametrize("props, reason", [
    ([("subscription_id", 0)], 0x82),
    ([("subscription_id", 1), ("subscription_id", 2)], 0x82),
    ([("topic_alias", 1)], 0x82),
    ([("reason_string", "x")], 0x82),
    (b"\x02\x0b\x80", 0x81),
    (b"\x03\x0b\x81\x00", 0x81),          # longer than needed
    (b"\x06\x0b\x80\x80\x80\x80\x01", 0x81),
])
@v5("MQTT-4.13.1-1", "MQTT-1.5.5-1")
def test_bad_properties_in_subscribe(broker, props, reason):
    tells_and_counts(broker, 5, wire.subscribe(5, "t", props=props), reason)


@both
@v311("MQTT-1.5.3-1", "MQTT-1.5.3-2", "MQTT-3.3.2-1", "MQTT-3.8.3-1", "MQTT-3.10.3-1", "MQTT-4.7.3-2")
@v5("MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-3.3.2-1", "MQTT-3.8.3-1", "MQTT-3.10.3-1", "MQTT-4.7.3-2")
def test_topics_and_filters_are_utf_8(broker, v):
    for bad in (b"a\xff", b"\xc0\x80", b"a\0b", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"):
        tells_and_counts(broker, v, wire.publish(v, bad), 0x81)
        tells_and_counts(broker, v, wire.subscribe(v, bad), 0x81)
        tells_and_counts(broker, v, wire.unsubscribe(v, bad), 0x81)


@both
@v311("MQTT-1.5.3-3", "MQTT-4.7.3-4")
@v5("MQTT-1.5.4-3", "MQTT-4.7.3-4")
def test_byte_order_marks_and_odd_characters_stay(broker, v):
    s, p = broker.connect(v), broker.connect(v)
    bom, name = "\ufeff", broker.name()
    for topic in (name + bom, bom + name, name + "/\u00e9", name + "/e\u0301", name + "/\U0001F600", name + "/\uffff", name + " "):
        s.subscribe(topic)
        p.publish(topic, "x", 1)
        s.message(topic)
    # Composed and decomposed characters, a mark and none, cases and slashes are not the same.
    for other in (name, name + "/E\u0301", name + "//\u00e9", name.upper() + " "):
        p.publish(other, "x", 1)
    s.nothing()


@v5("MQTT-1.5.4-2")
def test_noise(broker):
    """Random bytes after CONNECT, from a fixed seed: whatever they are, the broker goes on."""
    import random
    dice = random.Random(20)
    for _ in range(150):
        v = dice.choice((3, 4, 5))
        c = broker.connect(v, "noise")
        kind = dice.randrange(16)
        c.send(wire.packet(kind, dice.choice((0, 2, dice.randrange(16))), dice.randbytes(dice.randrange(40))), dice.randbytes(30))
        c.drop()
    broker.alive()
