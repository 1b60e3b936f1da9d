"""CONNECT and CONNACK: sections 3.1 and 3.2 of both standards."""
import pytest

import wire
from statement import both, every, v5, v311

BROKER = {"workers": 1, "client_id_max": 40}


@every
@v311("MQTT-3.1.4-4", "MQTT-3.2.0-1", "MQTT-3.2.2-1", "MQTT-7.0.0-2", "MQTT-7.1.1-1")
@v5("MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.2-1", "MQTT-3.2.2-2", "MQTT-3.2.2-8", "MQTT-4.2.0-1")
def test_connect_is_answered(broker, v):
    assert not broker.connect(v).connack.present


@every
@v311("MQTT-3.1.0-1", "MQTT-4.8.0-1")
@v5("MQTT-3.1.0-1", "MQTT-3.14.0-1", "MQTT-4.13.1-1")
def test_whatever_comes_before_connect_closes(broker, v):
    for first in (wire.pingreq(), wire.publish(v, "t"), wire.subscribe(v, "t"), wire.disconnect(v), wire.auth(),
                  wire.ack(wire.PUBACK, 1), b"GET / HTTP/1.1\r\n\r\n", b"\0\0", wire.packet(wire.CONNACK, 0, b"\0\0")):
        broker.open(v).send(first).closed()


@every
@v311("MQTT-3.1.0-2", "MQTT-4.8.0-1")
@v5("MQTT-3.1.0-2", "MQTT-3.2.0-2", "MQTT-4.13.1-1", "MQTT-4.13.2-1", "MQTT-3.14.2-1", "MQTT-3.14.4-1", "MQTT-3.14.4-2")
def test_second_connect_is_a_violation(broker, v):
    c = broker.connect(v, "twice")
    c.send(wire.connect(v, "twice"), wire.pingreq()).closed(0x82)


@both
@v311("MQTT-3.1.2-1")
@v5("MQTT-3.1.2-1")
def test_wrong_protocol_name(broker, v):
    for name in ("MQTTX", "mqtt", "", "MQT", "MQIsdp"):
        c = broker.open(v).send(wire.connect(v, "x", name=name))
        if v == 5:
            c.refused(0x84)
        else:
            c.refused(None, 1)


@v311("MQTT-3.1.2-2", "MQTT-3.2.2-5", "MQTT-3.2.2-4")
def test_unknown_level_of_version_3(broker):
    for level in (0, 1, 2, 3):
        broker.open(4).send(wire.connect(4, "x", level=level)).refused(None, 1)


@v5("MQTT-3.1.2-2", "MQTT-3.2.2-6", "MQTT-3.2.2-7")
def test_unknown_level_above_5(broker):
    for level in (6, 7, 127, 132, 255):
        broker.open(5).send(wire.connect(5, "x", level=level)).refused(0x84)


@both
@v311("MQTT-3.1.2-3", "MQTT-3.1.4-1", "MQTT-3.2.2-6")
@v5("MQTT-3.1.2-3", "MQTT-3.1.4-1")
def test_reserved_connect_flag(broker, v):
    broker.open(v).send(wire.connect(v, "x", flags=3)).refused(0x81)


@both
@v311("MQTT-3.1.2-11", "MQTT-3.1.2-13", "MQTT-3.1.2-15")
@v5("MQTT-3.1.2-11", "MQTT-3.1.2-13")
def test_will_flags_without_a_will(broker, v):
    for flags in (0x02 | 0x08, 0x02 | 0x10, 0x02 | 0x20):
        broker.open(v).send(wire.connect(v, "x", flags=flags)).refused(0x81)


@both
@v311("MQTT-3.1.2-14")
@v5("MQTT-3.1.2-12")
def test_will_qos_3(broker, v):
    broker.open(v).send(wire.connect(v, "x", will={"topic": "w", "qos": 3})).refused(0x81)


@both
@v311("MQTT-3.1.2-9", "MQTT-3.1.3-1", "MQTT-3.1.3-3")
@v5("MQTT-3.1.2-9", "MQTT-3.1.3-1", "MQTT-3.1.3-3")
def test_will_flag_without_its_fields(broker, v):
    broker.open(v).send(wire.connect(v, "x", flags=6)).refused(0x81)
    half = (b"\0" if v == 5 else b"") + wire.text("w")
    broker.open(v).send(wire.connect(v, "x", flags=6, tail=half)).refused(0x81)
    broker.open(v).send(wire.packet(wire.CONNECT, 0, wire.text("MQTT") + bytes([v, 2, 0, 0]) + b"\0" * (v == 5))).refused(0x81)


@both
@v311("MQTT-3.1.2-18", "MQTT-3.1.2-19", "MQTT-3.1.2-20", "MQTT-3.1.2-21")
@v5("MQTT-3.1.2-16", "MQTT-3.1.2-17", "MQTT-3.1.2-18", "MQTT-3.1.2-19")
def test_user_name_and_password_are_as_their_flags_say(broker, v):
    broker.connect(v, user="u", password="p")
    broker.connect(v, user="u")
    for flags, tail in ((2, wire.text("u")), (2 | 128, b""), (2 | 128, wire.text("u") + wire.text("p")),
                        (2 | 128 | 64, wire.text("u")), (2 | 128 | 64, wire.text("u") + b"\0\5abc")):
        broker.open(v).send(wire.connect(v, "x", flags=flags, tail=tail)).refused(0x81)


@v311("MQTT-3.1.2-22")
@v5("MQTT-3.1.2-19")
def test_password_without_user_name(broker):
    broker.open(4).send(wire.connect(4, "x", password="p")).refused(0x81)
    broker.connect(5, password="p")


def test_version_31_may_set_the_flags_and_send_neither(broker):
    broker.open(3).send(wire.connect(3, "x", flags=2 | 128 | 64)).expect("connack", reason=0)


@both
@v311("MQTT-1.5.3-1", "MQTT-1.5.3-2", "MQTT-3.1.3-4", "MQTT-3.1.3-10", "MQTT-3.1.3-11", "MQTT-3.1.4-1")
@v5("MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12", "MQTT-3.1.4-1")
def test_strings_in_connect_are_utf_8(broker, v):
    for bad in (b"a\xff", b"\xc0\x80", b"a\0b", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"):
        broker.open(v).send(wire.connect(v, bad)).refused(0x81)
        broker.open(v).send(wire.connect(v, "x", will={"topic": bad})).refused(0x81)
        broker.open(v).send(wire.connect(v, "x", user=bad)).refused(0x81)
    broker.open(v).connect("pass", user="u", password=b"\xff\0\xc0")  # binary


@both
@v311("MQTT-3.1.3-5")
@v5("MQTT-3.1.3-5")
def test_plain_client_ids_are_allowed(broker, v):
    for name in ("a", "0", "ABCDEFGHIJKLMNOPQRSTUVW", "xyzabcdefghijklmnopqrst", "01234567890123456789012"):
        broker.connect(v, name).disconnect()


@both
@v311("MQTT-3.1.3-9", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
@v5("MQTT-3.1.3-8", "MQTT-3.2.2-7", "MQTT-3.1.4-2")
def test_too_long_client_id(broker, v):
    broker.connect(v, "x" * 40).disconnect()
    broker.open(v).send(wire.connect(v, "x" * 41)).refused(0x85, 2)


@v311("MQTT-3.1.3-6")
def test_nameless_client_of_311_gets_a_session_of_its_own(broker):
    a, b = broker.connect(4, ""), broker.connect(4, "")
    a.nothing()
    b.nothing()


@v5("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_nameless_client_of_5_is_told_its_name(broker):
    names = set()
    for clean in (True, False):
        a = broker.connect(5, "", clean=clean, props={"session_expiry": 60})
        names.add(a.connack.props.get("assigned_client_id"))
        b = broker.connect(5, "")
        names.add(b.connack.props.get("assigned_client_id"))
        a.nothing()
    assert len(names) == 4 and all(names)
    name = names.pop()
    assert "assigned_client_id" not in broker.connect(5, name).connack.props.all


@v311("MQTT-3.1.3-8", "MQTT-3.1.3-7")
def test_nameless_client_of_3_with_a_session_to_keep(broker):
    broker.open(4).send(wire.connect(4, "", clean=False)).refused(0x85, 2)
    broker.open(3).send(wire.connect(3, "")).refused(0x85, 2)


@both
@v311("MQTT-3.1.3-2", "MQTT-3.1.4-2")
@v5("MQTT-3.1.3-2", "MQTT-3.1.4-3")
def test_newer_connection_of_a_client_closes_the_older(broker, v):
    name = broker.name()
    for _ in range(3):
        a = broker.connect(v, name)
        b = broker.connect(v, name)
        a.closed(0x8E)
        b.nothing()


@both
@v311("MQTT-3.1.4-5")
@v5("MQTT-3.1.4-6")
def test_nothing_behind_a_refused_connect_is_processed(broker, v):
    topic = broker.name()
    s = broker.connect(5)
    s.subscribe(topic)
    long = wire.connect(v, "y" * 41)
    broker.open(v).send(long, wire.publish(v, topic, "no"), wire.subscribe(v, topic), wire.pingreq()).refused(0x85, 2)
    broker.connect(v).publish(topic, "yes")
    s.message(topic, "yes")
    s.nothing()


@both
def test_what_comes_behind_connect_in_one_piece_is_taken(broker, v):
    topic = broker.name()
    c = broker.open(v).send(wire.connect(v, "z"), wire.subscribe(v, topic, 7), wire.publish(v, topic, "at once"), wire.pingreq())
    c.expect("connack", reason=0)
    c.expect("suback", id=7)
    c.message(topic, "at once")
    c.expect("pingresp")


@both
def test_packets_byte_by_byte(broker, v):
    topic = broker.name()
    c = broker.open(v)
    for byte in wire.connect(v, "slow") + wire.subscribe(v, topic, 3) + wire.publish(v, topic, "x"):
        c.send(bytes([byte]))
    c.expect("connack", reason=0)
    c.expect("suback", id=3)
    c.message(topic, "x")


@v5("MQTT-3.1.2-28", "MQTT-3.2.2-22", "MQTT-4.12.0-6")
def test_connack_has_what_the_client_must_know_and_no_more(broker):
    props = broker.connect(5, keep_alive=30, props={"request_response_information": 0}).connack.props
    assert props.get("receive_maximum", 65535) > 0
    assert props.get("maximum_packet_size") == 1024 * 1024
    assert props.get("topic_alias_maximum") == 32
    for absent in ("response_information", "server_keep_alive", "assigned_client_id", "authentication_method",
                   "authentication_data", "maximum_qos", "retain_available", "session_expiry"):
        assert absent not in props.all, absent


@v5("MQTT-4.12.0-1")
def test_unknown_authentication_method(broker):
    broker.open(5).send(wire.connect(5, "x", props={"authentication_method": "NO-SUCH", "authentication_data": b"x"})).refused(0x8C)


@v5("MQTT-4.12.0-7")
def test_auth_without_a_method(broker):
    broker.connect(5).send(wire.auth(0x18, {"authentication_method": "x"})).closed(0x82)
    broker.connect(5).send(wire.auth()).closed(0x82)


# What the table of properties says about CONNECT, and values out of range.
@pytest.mark.parametrize("props, reason", [
    ([("receive_maximum", 0)], 0x82),
    ([("maximum_packet_size", 0)], 0x82),
    ([("session_expiry", 1), ("session_expiry", 1)], 0x82),
    ([("request_problem_information", 2)], 0x82),
    ([("request_response_information", 2)], 0x82),
    ([("authentication_data", b"x")], 0x82),
    ([("topic_alias", 1)], 0x82),
    ([("will_delay", 1)], 0x82),
    ([("server_keep_alive", 1)], 0x82),
    ([("user_property", (b"\xff", "v"))], 0x81),
    ([("user_property", ("k", b"\0"))], 0x81),
    (b"\x05\x11\0\0\0", 0x81),            # runs past its end
    (b"\x80\x80\x80\x80\x01", 0x81),      # five bytes of length
    (b"\x80\0", 0x81),                    # longer than needed
    (b"\xff\xff\xff\x7f", 0x81),          # 256 MiB of properties
    (b"\x01\x7f", 0x81),                  # no such property
    (b"\x02\x80\x00", 0x81),              # a property's number longer than needed
    (b"", 0x81),
])
@v5("MQTT-3.1.4-1", "MQTT-1.5.5-1", "MQTT-1.5.7-1", "MQTT-2.2.2-1")
def test_bad_properties_in_connect(broker, props, reason):
    packet = wire.connect(5, "x", props=props)
    if props == b"":
        packet = wire.packet(wire.CONNECT, 0, wire.text("MQTT") + bytes([5, 2, 0, 0]))
    broker.open(5).send(packet).refused(reason)


@both
@v311("MQTT-2.2.2-1", "MQTT-2.2.2-2")
@v5("MQTT-2.1.3-1")
def test_flags_in_connects_fixed_header(broker, v):
    for fixed in (1, 2, 4, 8, 15):
        broker.open(v).send(wire.connect(v, "x", fixed=fixed)).refused(0x81)


@both
def test_bytes_behind_connects_payload(broker, v):
    broker.open(v).send(wire.connect(v, "x", tail=b"\0")).refused(0x81)


@both
def test_every_truncation_of_connect_is_refused_or_waited_for(broker, v):
    whole = wire.connect(v, "trunc", will={"topic": "w", "payload": b"p", "qos": 1}, user="u", password="p")
    body = whole[2:]
    before = broker.count("refused") + broker.count("malformed")
    for size in range(len(body)):
        c = broker.open(v).send(wire.packet(wire.CONNECT, 0, body[:size]))
        if v == 5 and size >= 7:  # the version is known
            c.refused(0x81)
        else:
            c.closed()
    assert broker.count("refused") + broker.count("malformed") == before + len(body)


@v5("MQTT-3.1.2-24")
def test_client_that_allows_less_than_connack(broker):
    for size in (1, 2, 3, 5):
        broker.open(5).send(wire.connect(5, "tiny", props={"maximum_packet_size": size})).closed()
    broker.alive()
