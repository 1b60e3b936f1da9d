"""MQTT messages as events: everything that a message has survives the trip, to subscribers and to files."""
import base64
import json
import time

import mqtt
import pytest
import readers
from test_mesh import OPEN
from waiting import holds_for, wait_until

properties = pytest.importorskip("paho.mqtt.properties")
from paho.mqtt.packettypes import PacketTypes  # noqa: E402

USER = [("b", "2"), ("a", "1"), ("b", "again"), ("ü", "ö")]


def rich(expiry=None):
    out = properties.Properties(PacketTypes.PUBLISH)
    out.PayloadFormatIndicator = 1
    out.ContentType = "text/plain"
    out.ResponseTopic = "answers/here"
    out.CorrelationData = b"\x00\xffid"
    out.UserProperty = USER
    if expiry is not None:
        out.MessageExpiryInterval = expiry
    return out


def pair(net, template="{topic}", near_routes=None, **far_tables):
    far = net.node("far", receiver={}, listener=True, broker=OPEN,
                   routes=[{"name": "mqtt", "categories": ["up"], "to": [{"mqtt": template}, "files"]},
                           {"name": "rest", "to": ["files"]}], **far_tables)
    relay = net.relay("relay", [far])
    near = net.node("near", listener=True, broker=OPEN, upstreams={"far": [relay.link]},
                    routes=near_routes or [{"name": "up", "topics": ["up/#", "big/+"], "to": ["far"]}])
    net.start()
    return near, relay, far


def subscriber(node, name="sub", topic="#"):
    out = mqtt.Client(node.mqtt_port, name, version=5, clean=False, expiry=3600)
    assert out.subscribe(topic, options=mqtt.paho.SubscribeOptions(qos=2, retainAsPublished=True)) == [2]
    return out


def test_a_message_keeps_all_that_it_has(net):
    near, relay, far = pair(net)
    sub = subscriber(far)
    pub = mqtt.Client(near.mqtt_port, "pub", version=5)
    for qos in (0, 1, 2):
        pub.publish(f"up/{qos}", f"text {qos}".encode(), qos, retain=qos == 1, properties=rich(1000))
    pub.publish("up/plain", b"\x00\xff\n", 1)
    wait_until(lambda: len(sub.messages) == 4, 20, lambda: str(sub.topics()))
    got = {one.topic: one for one in sub.messages}
    for qos in (0, 1, 2):
        one = got[f"up/{qos}"]
        assert (one.qos, one.payload, bool(one.retain)) == (qos, f"text {qos}".encode(), qos == 1)
        p = one.properties
        assert (p.PayloadFormatIndicator, p.ContentType, p.ResponseTopic) == (1, "text/plain", "answers/here")
        assert p.CorrelationData == b"\x00\xffid" and p.UserProperty == USER
        assert 900 < p.MessageExpiryInterval <= 1000
    assert got["up/plain"].payload == b"\x00\xff\n" and not got["up/plain"].properties.json()
    late = subscriber(far, "late")
    wait_until(lambda: late.messages, 20)
    assert late.topics() == ["up/1"] and late.messages[0].properties.UserProperty == USER
    net.wait_drained()
    for one in (sub, late, pub):
        one.close()
    net.stop()


def test_expiry_goes_on_while_a_message_waits(net):
    near, relay, far = pair(net)
    sub = subscriber(far)
    relay.stop()
    pub = mqtt.Client(near.mqtt_port, "pub", version=5)
    pub.publish("up/short", b"gone by then", 1, properties=rich(1))
    pub.publish("up/long", b"kept", 1, properties=rich(100))
    began = time.monotonic()
    holds_for(lambda: not sub.messages, 3)
    relay.start()
    wait_until(lambda: sub.messages, 30)
    spent = time.monotonic() - began
    net.wait_drained()
    assert sub.payloads() == [b"kept"]
    left = sub.messages[0].properties.MessageExpiryInterval
    assert 100 - spent - 2 <= left <= 100 - 3, (left, spent)
    row = far.route("mqtt", "mqtt:{topic}")
    assert (row["dropped"], row["delivered"]) == (1, 1), row
    far.balanced()
    sub.close()
    pub.close()
    net.stop()


def test_templates_fill_in_where_it_came_from_and_who_publishes(net):
    near, relay, far = pair(net, template="from/{origin}/{category}/at/{site}/{node}/{topic}")
    sub = subscriber(far)
    pub = mqtt.Client(near.mqtt_port, "pub")
    pub.publish("up/a/b", b"1", 1)
    wait_until(lambda: sub.messages, 20)
    assert sub.topics() == ["from/near/up/at/far/far/up/a/b"]
    sub.close()
    pub.close()
    net.stop()


def test_a_route_says_how_its_messages_become_lines(net):
    """raw by default, json for one route; at the far end as the receiver there says."""
    far = net.receiver("far", category=[{"match": ["j"], "format": "json"}])
    node = net.node("near", receiver={"link": None, "category": [{"match": ["*"], "chunk_interval": "1s"}]}, listener=True,
                    broker=OPEN, upstreams={"far": [far.link]},
                    routes=[{"name": "r", "topics": ["a/#"], "to": ["files", "far"]},
                            {"name": "j", "topics": ["a/#"], "to": ["files", "far"], "format": "json"},
                            {"name": "rest", "to": ["files"]}])
    net.start()
    pub = mqtt.Client(node.mqtt_port, "pub", version=5)
    pub.publish("a/text", b"line one\nline \\ two", 1, properties=rich())
    pub.publish("a/bytes", b"\xff\x00", 2, retain=True)
    net.wait_drained()
    for one in (node, far):
        wait_until(lambda: len(readers.lines(one.events_dir, "j")) == 2 and len(readers.lines(one.events_dir, "r")) == 2, 20)
        assert readers.lines(one.events_dir, "r") == [b"line one\\nline \\\\ two", b"\xff\x00"]
        text, data = (json.loads(line) for line in readers.lines(one.events_dir, "j"))
        assert (text["topic"], text["payload"], text["qos"]) == ("a/text", "line one\nline \\ two", 1)
        assert text["properties"]["content_type"] == "text/plain"
        assert text["properties"]["user"] == [list(pair) for pair in USER]
        assert base64.b64decode(text["properties"]["correlation_data"]) == b"\x00\xffid"
        assert (data["topic"], data["retain"], base64.b64decode(data["payload_base64"])) == ("a/bytes", True, b"\xff\x00")
    pub.close()
    net.stop()
