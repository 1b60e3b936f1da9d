"""Shared subscriptions with real clients over several workers."""
import collections

import mqtt
from waiting import wait_until


def broker(net, **keys):
    node = net.node("one", listener=True, broker={"workers": 3, **keys})
    net.start()
    return node


def test_a_group_shares_evenly_and_inherits_from_a_member_that_ends(net):
    node = broker(net)
    members = [mqtt.Client(node.mqtt_port, f"m{n}", version=5, expiry=600, clean=True) for n in range(3)]
    assert members[0].connack[2].json().get("SharedSubscriptionAvailable", 1) == 1
    for one in members:
        assert one.subscribe("$share/g/jobs/#", 1) == [1]
    sender = mqtt.Client(node.mqtt_port, "sender")
    for n in range(900):
        sender.publish("jobs/x", b"%d" % n, 1, wait=False)
    total = lambda: sum(len(one.messages) for one in members)
    wait_until(lambda: total() >= 900, 30, lambda: str([len(one.messages) for one in members]))
    got = collections.Counter(payload for one in members for payload in one.payloads())
    assert len(got) == 900 and set(got.values()) == {1}
    for one in members:
        assert abs(len(one.messages) - 300) <= 30

    # All but one offline with messages queued; then their sessions are ended by somebody who connects clean.
    for one in members:
        one.close()
    for n in range(900, 1200):
        sender.publish("jobs/x", b"%d" % n, 1, wait=n == 1199)
    last = mqtt.Client(node.mqtt_port, "m0", version=5, expiry=600, clean=False)
    assert last.connack[0]["session present"] == 1 if isinstance(last.connack[0], dict) else True
    wait_until(lambda: len(last.messages) >= 90, 20)
    for n in (1, 2):
        mqtt.Client(node.mqtt_port, f"m{n}", version=5, clean=True).close()
    wait_until(lambda: len(set(last.payloads())) == 300, 20, lambda: f"{len(last.messages)} {node.status()['mqtt']}")
    assert node.status()["mqtt"]["dropped_session_ended"] == 0
    last.close()
    sender.close()
    net.stop()
