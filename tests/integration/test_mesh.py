"""Sites that pass everything on to each other: case L5, and the loops that templates can make."""
import mqtt
import pytest
from waiting import holds_for, wait_until

SITES = ("ams", "fra", "lon")
OPEN = {"authz": {"default_rules": False}}  # else nobody may subscribe to a bare #


def mesh(net, sites=SITES, way=lambda here, there: True, route_of=lambda here: "all", **route):
    """Every site sends `#` to every other one, and publishes what comes from there."""
    links = {name: f"127.0.0.1:{net.ports.take()}" for name in sites}
    for name in sites:
        others = [other for other in sites if other != name and way(name, other)]
        taking = [{"name": route_of(name), "topics": ["#"], "to": others, **route}] if others else []
        net.node(name, receiver={"link": links[name], "dir": None}, listener=True, broker=OPEN,
                 upstreams={other: [links[other]] for other in others},
                 routes=taking + [{"name": "in", "to": [{"mqtt": "{topic}"}]}])
    net.start()
    wait_until(lambda: all(row["state"] == "ready" for one in net.nodes for up in one.status()["upstreams"]
                           for row in up["receivers"]), 30, lambda: str([one.status()["upstreams"] for one in net.nodes]))
    return net.nodes


def carried(nodes):
    """Messages that came over any link, whatever became of them."""
    return sum(one.status()["receiver"][kind] for one in nodes for kind in ("events", "duplicates", "looped"))


def subscribers(nodes):
    out = [mqtt.Client(one.mqtt_port, f"sub-{one.name}", clean=False) for one in nodes]
    for one in out:
        assert one.subscribe("#", 1) == [1]
    return out


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("names", [lambda here: "all", lambda here: "from-" + here], ids=["one-name", "own-names"])
def test_each_site_of_a_triangle_gets_exactly_one(net, version, names):
    nodes = mesh(net, route_of=names)
    subs = subscribers(nodes)
    publisher = mqtt.Client(nodes[0].mqtt_port, "publisher", version=version)
    publisher.publish("news/today", b"once", 1)
    wait_until(lambda: all(one.messages for one in subs), 20, lambda: str([one.payloads() for one in subs]))
    net.wait_drained()
    holds_for(lambda: [one.payloads() for one in subs] == [[b"once"]] * 3, 2, lambda: str([one.payloads() for one in subs]))
    assert carried(nodes) <= 4
    for n in range(200):
        publisher.publish(f"news/{n}", b"%d" % n, n % 3, wait=False)
    wait_until(lambda: all(len(one.messages) == 201 for one in subs), 60, lambda: str([len(one.messages) for one in subs]))
    net.wait_drained()
    assert carried(nodes) <= 4 * 201
    for one in subs:
        assert sorted(one.payloads()[1:]) == sorted(b"%d" % n for n in range(200))
        one.close()
    for one in nodes:
        one.balanced()
    publisher.close()
    net.stop()


@pytest.mark.parametrize("ended", ["stop", "kill"])
@pytest.mark.parametrize("which", [0, 1])
def test_one_site_restarts_meanwhile(net, ended, which):
    """The publisher's own site restarts right behind the acknowledgement, or one that has to pass on is away for it."""
    nodes = mesh(net)
    subs = subscribers(nodes)
    publisher = mqtt.Client(nodes[0].mqtt_port, "publisher")
    away = nodes[which]
    if which:
        getattr(away, ended)()
    for n in range(20):
        publisher.publish(f"t/{n}", b"%d" % n, 1)
    publisher.close()
    if not which:
        getattr(away, ended)()
    away.start()
    expected = sorted(b"%d" % n for n in range(20))
    wait_until(lambda: all(sorted(one.payloads()) == expected for one in subs), 60,
               lambda: str([(len(one.messages), sorted(one.payloads())[:5]) for one in subs]))
    net.wait_drained()
    holds_for(lambda: all(len(one.messages) == 20 for one in subs), 2)
    assert carried(nodes) <= 4 * 20
    for one in subs:
        one.close()
    net.stop()


def test_a_ring_in_one_direction_ends_where_it_began(net):
    """ams -> fra -> lon -> ams: two messages on the links."""
    nodes = mesh(net, way=lambda here, there: SITES[(SITES.index(here) + 1) % 3] == there)
    subs = subscribers(nodes)
    publisher = mqtt.Client(nodes[1].mqtt_port, "publisher")
    publisher.publish("a", b"1", 2)
    wait_until(lambda: all(one.messages for one in subs), 20)
    net.wait_drained()
    holds_for(lambda: all(len(one.messages) == 1 for one in subs), 2)
    assert carried(nodes) == 2 and sum(one.status()["mqtt"]["passed_on"] for one in nodes) == 2
    for one in subs:
        one.close()
    net.stop()


def test_templates_that_feed_each_other_end(net):
    """Each route publishes what the other one takes: every route has the event once."""
    node = net.node("one", listener=True, broker=OPEN, routes=[
        {"name": "a", "topics": ["a/#"], "to": [{"mqtt": "b/{topic}"}]},
        {"name": "b", "topics": ["b/#"], "to": [{"mqtt": "a/{topic}"}]},
        {"name": "all", "topics": ["#"], "to": [{"mqtt": "copy/{topic}"}]}])
    net.start()
    sub = subscribers([node])[0]
    publisher = mqtt.Client(node.mqtt_port, "publisher")
    publisher.publish("a/x", b"1", 1)
    wait_until(lambda: len(sub.messages) >= 4, 20, lambda: str(sub.topics()))
    node.wait_idle()
    holds_for(lambda: sorted(sub.topics()) == ["a/b/a/x", "a/x", "b/a/x", "copy/a/x"], 2, lambda: str(sub.topics()))
    node.balanced()
    sub.close()
    publisher.close()
    net.stop()
