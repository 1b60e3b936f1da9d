"""Sessions, wills, keep-alive, DISCONNECT: sections 3.1.2, 3.14, 4.1."""
import time

import pytest

import wire
from statement import both, v5, v311

BROKER = {"workers": 1, "keep_alive_max": "1h"}
KEEP = {"clean": False, "props": {"session_expiry": 60}}


@both
@v311("MQTT-3.1.2-4", "MQTT-3.1.2-5", "MQTT-3.1.2-6", "MQTT-3.1.4-3", "MQTT-3.2.2-1", "MQTT-3.2.2-2", "MQTT-3.2.2-3",
      "MQTT-4.1.0-1", "MQTT-4.1.0-2", "MQTT-3.1.3-2")
@v5("MQTT-3.1.2-4", "MQTT-3.1.2-5", "MQTT-3.1.2-6", "MQTT-3.1.4-4", "MQTT-3.2.2-2", "MQTT-3.2.2-3", "MQTT-3.1.2-23",
    "MQTT-3.1.3-2")
def test_a_session_is_kept_taken_up_and_thrown_away(broker, v):
    topic, name, p = broker.name(), broker.name(), broker.connect(v)
    s = broker.connect(v, name, **KEEP)
    assert not s.connack.present
    s.subscribe(topic, 2)
    s.disconnect()
    for qos in (1, 2):
        p.publish(topic, f"away {qos}", qos)
    s = broker.connect(v, name, **KEEP)
    assert s.connack.present
    s.message(topic, "away 1", qos=1, dup=False)
    s.message(topic, "away 2", qos=2, dup=False)
    s.drop()
    s = broker.connect(v, name, clean=True)
    assert not s.connack.present
    p.publish(topic, "for nobody", 1)
    s.nothing()
    s.disconnect()
    assert not broker.connect(v, name, **KEEP).connack.present


@v5("MQTT-4.1.0-2", "MQTT-3.1.2-23")
def test_sessions_expire(broker):
    name = broker.name()
    broker.connect(5, name, clean=False, props={"session_expiry": 1}).drop()
    assert broker.connect(5, name, clean=False, props={"session_expiry": 1}).connack.present
    broker.connect(5, name, clean=False, props={"session_expiry": 1}).disconnect()
    time.sleep(2)
    assert not broker.connect(5, name, clean=False).connack.present
    for how in ({}, {"props": {"session_expiry": 0}}):
        broker.connect(5, name, clean=False, **how).disconnect()
        assert not broker.connect(5, name, clean=False).connack.present


@v5("MQTT-4.1.0-2")
def test_disconnect_changes_the_expiry_but_not_from_0(broker):
    name = broker.name()
    broker.connect(5, name, **KEEP).disconnect(0, {"session_expiry": 0})
    assert not broker.connect(5, name, **KEEP).connack.present
    broker.connect(5, name, **KEEP).disconnect(0, {"session_expiry": 0xFFFFFFFF})
    assert broker.connect(5, name).connack.present is False  # clean start
    broker.connect(5, name).send(wire.disconnect(5, 0, {"session_expiry": 5})).closed(0x82)
    broker.connect(5, name).disconnect(0, {"session_expiry": 0})


@both
@v311("MQTT-3.1.3-2", "MQTT-3.1.4-2")
@v5("MQTT-3.1.4-3", "MQTT-3.1.2-5")
def test_takeover_keeps_the_session(broker, v):
    topic, name = broker.name(), broker.name()
    a = broker.connect(v, name, **KEEP)
    a.subscribe(topic, 1)
    b = broker.connect(v, name, **KEEP)
    assert b.connack.present
    a.closed(0x8E)
    broker.connect(v).publish(topic, "x", 1)
    b.message(topic, "x")


# --- wills

def watched(broker, v, topic, qos=2):
    w = broker.connect(v)
    w.subscribe(topic, qos)
    return w


@both
@v311("MQTT-3.1.2-8", "MQTT-3.1.2-10", "MQTT-3.1.2-16", "MQTT-3.1.2-17")
@v5("MQTT-3.1.2-7", "MQTT-3.1.2-8", "MQTT-3.1.2-10", "MQTT-3.1.2-14", "MQTT-3.1.2-15")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_will_of_a_lost_connection(broker, v, qos, retain):
    topic = broker.name()
    w = watched(broker, v, topic)
    broker.connect(v, will={"topic": topic, "payload": b"\0gone", "qos": qos, "retain": retain}).drop()
    w.message(topic, b"\0gone", qos=qos, retain=False)
    w.nothing()
    late = watched(broker, v, topic)
    if retain:
        late.message(topic, b"\0gone", retain=True, qos=qos)
    late.nothing()


@both
@v311("MQTT-3.1.2-8", "MQTT-4.8.0-1")
@v5("MQTT-3.1.2-8", "MQTT-4.13.2-1")
def test_will_after_a_violation_and_after_a_takeover(broker, v):
    topic, name = broker.name(), broker.name()
    w = watched(broker, v, topic)
    broker.connect(v, will={"topic": topic, "payload": "bad"}).send(b"\0\0").closed(0x81)
    w.message(topic, "bad")
    a = broker.connect(v, name, will={"topic": topic, "payload": "old"})
    b = broker.connect(v, name)
    a.closed(0x8E)
    w.message(topic, "old")
    b.drop()
    w.nothing()


@both
@v311("MQTT-3.14.4-3", "MQTT-3.1.2-10", "MQTT-3.1.2-12")
@v5("MQTT-3.14.4-3", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
def test_no_will_after_disconnect(broker, v):
    topic, name = broker.name(), broker.name()
    w = watched(broker, v, topic)
    broker.connect(v, name, will={"topic": topic}, **KEEP).disconnect()
    broker.connect(v, name, **KEEP).drop()  # this connection has none
    broker.connect(v, name, **KEEP).disconnect()
    w.nothing()


@v5("MQTT-3.1.2-8", "MQTT-3.14.4-3")
def test_will_after_disconnect_with_a_reason(broker):
    topic = broker.name()
    w = watched(broker, 5, topic)
    for reason in (0x04, 0x80, 0x81, 0x98):
        broker.connect(5, will={"topic": topic, "payload": "x"}).disconnect(reason)
        w.message(topic, "x")
    w.nothing()


@v5("MQTT-3.1.3-10", "MQTT-3.3.2-4", "MQTT-3.3.2-6")
def test_properties_of_a_will(broker):
    topic, pairs = broker.name(), [("z", "1"), ("a", "2"), ("z", "1")]
    given = [("payload_format", 1), ("message_expiry", 50), ("content_type", "c"), ("response_topic", "r"),
             ("correlation_data", b"\0")]
    w = watched(broker, 5, topic)
    broker.connect(5, will={"topic": topic, "payload": "x", "props": [("will_delay", 0), *given,
                                                                     *[("user_property", p) for p in pairs]]}).drop()
    m = w.message(topic, "x")
    assert m.props.user == pairs and m.props.all == dict(given)


@v5("MQTT-3.1.2-8", "MQTT-3.1.3-9")
def test_will_delay(broker):
    t = broker.name()
    w = watched(broker, 5, t + "/#")

    def lose(what, delay, expiry):
        name = broker.name()
        broker.connect(5, name, clean=False, will={"topic": f"{t}/{what}", "props": {"will_delay": delay}},
                       props={"session_expiry": expiry}).drop()
        return name

    began = time.monotonic()
    lose("no session, no delay", 60, 0)
    w.message(t + "/no session, no delay")
    back = lose("back in time", 1, 60)
    anew = lose("clean start ends the session", 60, 60)
    lose("session ends first", 60, 1)
    lose("delay", 2, 60)
    assert broker.connect(5, back, clean=False).connack.present
    assert not broker.connect(5, anew, clean=True).connack.present
    w.message(t + "/clean start ends the session")
    w.nothing()
    w.message(t + "/session ends first")
    assert time.monotonic() - began >= 1
    w.message(t + "/delay")
    assert time.monotonic() - began >= 2
    w.nothing()


@both
@v311("MQTT-3.1.2-24")
@v5("MQTT-3.1.2-22", "MQTT-3.2.2-22")
def test_keep_alive(broker, v):
    topic = broker.name()
    w = watched(broker, v, topic)
    quiet = broker.connect(v, keep_alive=1, will={"topic": topic, "payload": "quiet"})
    busy = broker.connect(v, keep_alive=1, will={"topic": topic, "payload": "busy"})
    none = broker.connect(v, keep_alive=0)
    began, before = time.monotonic(), broker.count("keep_alive_timeouts")
    while time.monotonic() - began < 3:
        busy.nothing()
        time.sleep(0.2)
    quiet.closed(0x8D)
    w.message(topic, "quiet")
    w.nothing()
    none.nothing()
    assert broker.count("keep_alive_timeouts") >= before + 1


@v5("MQTT-3.2.2-22")
def test_the_servers_keep_alive(broker):
    for asked, told in ((0, 3600), (3600, None), (3601, 3600), (65535, 3600), (10, None)):
        assert broker.connect(5, keep_alive=asked).connack.props.get("server_keep_alive") == told


@both
@v311("MQTT-3.14.4-1", "MQTT-3.14.4-2")
@v5("MQTT-3.14.4-1", "MQTT-3.14.4-2", "MQTT-3.14.2-2")
def test_nothing_behind_disconnect_is_processed(broker, v):
    topic = broker.name()
    w = watched(broker, v, topic)
    broker.connect(v).send(wire.disconnect(v), wire.publish(v, topic, "late"), wire.pingreq()).closed()
    w.nothing()


@v5("MQTT-3.1.2-29")
def test_no_problem_information_where_none_is_wanted(broker):
    c = broker.connect(5, props={"request_problem_information": 0})
    c.send(wire.publish(5, broker.name(), "x", 1, 9))
    p = c.expect("puback", id=9)
    assert not hasattr(p, "props") or ("reason_string" not in p.props.all and not p.props.user)
    c.send(wire.subscribe(5, ["a", "/".join("a" * 129)], 3))
    p = c.expect("suback", id=3)
    assert "reason_string" not in p.props.all and not p.props.user
