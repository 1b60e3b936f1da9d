"""Routes with `when = "subscribed"`: only what somebody at the far end wants is kept and sent."""
import json
import time

import mqtt
from test_mesh import OPEN
from waiting import holds_for, patience, wait_until


def far_node(net, name="far", routes=None, **more):
    return net.node(name, receiver={}, listener=True, broker=OPEN,
                    routes=routes or [{"name": "mqtt", "categories": ["news"], "to": [{"mqtt": "{topic}"}]},
                                      {"name": "rest", "to": ["files"]}], **more)


def near_node(net, far, name="near"):
    return net.node(name, listener=True, broker=OPEN, upstreams={"far": [far.link]},
                    routes=[{"name": "news", "topics": ["#"], "to": ["far"], "when": "subscribed"}])


def demand(node):
    return {row["name"]: row.get("wanted_filters") for row in node.status()["upstreams"]}["far"]


def wait_demand(node, filters, seconds=10):
    wait_until(lambda: demand(node) == filters, seconds, lambda: json.dumps(node.status()["upstreams"]))


def publish(client, topic, payload):
    client.publish(topic, payload, 1)


def test_only_what_is_wanted_is_kept_and_a_new_subscription_flows_within_a_second(net):
    far = far_node(net)
    near = near_node(net, far)
    net.start()
    wait_demand(near, 0)
    pub = mqtt.Client(near.mqtt_port, "pub")
    for n in range(50):
        publish(pub, f"a/{n}", b"nobody")
    assert near.route("news")["in"] == 0
    sub = mqtt.Client(far.mqtt_port, "sub")
    sub.subscribe([("a/7", 1), ("$share/g/b/+", 1)])
    began, n = time.monotonic(), 0
    while not sub.messages:
        assert time.monotonic() - began < patience(10)
        publish(pub, "a/7", b"%d" % n)
        n += 1
        time.sleep(0.02)
    print(f"flowed after {time.monotonic() - began:.2f} s")
    publish(pub, "b/x", b"shared")
    publish(pub, "a/8", b"nobody")
    wait_until(lambda: b"shared" in sub.payloads(), 20)
    assert "a/8" not in sub.topics()
    wait_demand(near, 2)
    sub.paho.unsubscribe("a/7")
    wait_demand(near, 1, 30)  # after its linger
    before = near.route("news")["in"]
    publish(pub, "a/7", b"nobody")
    assert near.route("news")["in"] == before
    net.wait_drained()
    near.balanced()
    sub.close()
    pub.close()
    net.stop()


def test_interest_survives_the_outage_and_restarts_of_both_ends(net):
    """A durable session that is away is known while the link is down, and gets what it missed, once."""
    far = far_node(net)
    near = near_node(net, far)
    net.start()
    sub = mqtt.Client(far.mqtt_port, "sub", clean=False)
    sub.subscribe("kept/#", 1)
    wait_demand(near, 1)
    sub.close()
    holds_for(lambda: demand(near) == 1, 12)  # longer than the linger
    far.kill()
    near.restart()
    assert demand(near) == 1
    pub = mqtt.Client(near.mqtt_port, "pub")
    for n in range(20):
        publish(pub, f"kept/{n}", b"%d" % n)
        publish(pub, f"other/{n}", b"no")
    assert near.route("news")["in"] == 20
    far.start()
    net.wait_drained()
    sub.connect()
    wait_until(lambda: len(sub.messages) >= 20, 20, lambda: str(sub.topics()))
    holds_for(lambda: sorted(sub.payloads()) == sorted(b"%d" % n for n in range(20)), 1)
    wait_demand(near, 1)
    sub.close()
    pub.close()
    net.stop()


def test_what_is_wanted_behind_a_relay_and_under_a_template(net):
    """The relay asks on; the far end publishes under another name; files there want everything."""
    far = far_node(net, routes=[{"name": "mqtt", "categories": ["news"], "to": [{"mqtt": "from/{category}/{topic}"}]},
                                {"name": "rest", "to": ["files"]}])
    relay = net.relay("relay", [far])
    near = near_node(net, relay)
    net.start()
    wait_demand(near, 0)
    pub = mqtt.Client(near.mqtt_port, "pub")
    sub = mqtt.Client(far.mqtt_port, "sub")
    sub.subscribe([("from/news/a/#", 1), ("from/other/b/#", 1), ("from/+/c", 1)])
    wait_demand(near, 2)
    for topic in ("a/1", "c", "d", "c/d"):
        publish(pub, topic, b"x")
    wait_until(lambda: len(sub.messages) == 2, 20, lambda: str(sub.topics()))
    assert sorted(sub.topics()) == ["from/news/a/1", "from/news/c"]
    assert near.route("news")["in"] == 2
    far.kill()
    publish(pub, "a/2", b"while the far end is away")
    relay.restart()
    publish(pub, "a/3", b"x")
    publish(pub, "d", b"x")
    assert near.route("news")["in"] == 4
    far.start()
    net.wait_drained()
    near.balanced()
    sub.close()
    pub.close()
    net.stop()


def test_two_sites_that_want_from_each_other_forget_it_again(net):
    """Each one's wish reaches the other and is not handed back: nothing is wanted once nobody subscribes."""
    links = {name: f"127.0.0.1:{net.ports.take()}" for name in ("a", "b", "c")}
    for name in links:
        others = [other for other in links if other != name]
        net.node(name, receiver={"link": links[name], "dir": None}, listener=True, broker=OPEN,
                 upstreams={other: [links[other]] for other in others},
                 routes=[{"name": "to-" + other, "topics": ["#"], "to": [other], "when": "subscribed"} for other in others]
                 + [{"name": "in", "to": [{"mqtt": "{topic}"}]}])
    net.start()
    wanted = lambda: [row["wanted_filters"] for one in net.nodes for row in one.status()["upstreams"]]
    wait_until(lambda: wanted() == [0] * 6, 20, lambda: str(wanted()))
    a, b, c = net.nodes
    sub = mqtt.Client(a.mqtt_port, "sub")
    sub.subscribe("x/#", 1)
    wait_until(lambda: wanted().count(1) >= 4, 10, lambda: str(wanted()))
    pub = mqtt.Client(c.mqtt_port, "pub")
    for n in range(10):
        publish(pub, f"x/{n}", b"%d" % n)
        publish(pub, f"y/{n}", b"no")
    wait_until(lambda: len(sub.messages) >= 10, 20)
    net.wait_drained()
    holds_for(lambda: len(sub.messages) == 10, 1)
    sub.close()
    wait_until(lambda: wanted() == [0] * 6, 60, lambda: str(wanted()))
    pub.close()
    net.stop()
