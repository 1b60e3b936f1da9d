"""$SYS, $delayed, rewriting, mountpoints, auto- and exclusive subscriptions with real clients."""
import subprocess
import time

import mqtt
from waiting import wait_until


def broker(net, listeners=1, **keys):
    node = net.node("one", listener=True, broker={"workers": 2, **keys})
    if listeners == 2:
        node.tables["listener"].append({"name": "mounted", "bind": f"127.0.0.1:{net.ports.take()}",
                                        "mountpoint": "tenants/%c/"})
        node.write_config()
    net.start()
    return node


def test_mosquittos_tools_read_sys(net):
    node = broker(net, sys_interval="1s", authz={"default_rules": False})
    done = subprocess.run(["mosquitto_sub", "-p", str(node.mqtt_port), "-t", "$SYS/broker/version", "-t", "$SYS/broker/uptime",
                           "-t", "$SYS/broker/clients/connected", "-C", "3", "-W", "20", "-v"], stdout=subprocess.PIPE, text=True)
    got = dict(line.split(" ", 1) for line in done.stdout.strip().split("\n"))
    assert got["$SYS/broker/version"].startswith("posthouse version ") and got["$SYS/broker/uptime"].endswith(" seconds"), got
    everything = mqtt.Client(node.mqtt_port, "all")
    everything.subscribe("#", 0)
    own = mqtt.Client(node.mqtt_port, "own")
    own.subscribe("$SYS/brokers/one/#", 0)
    wait_until(lambda: any(topic.endswith("/uptime") for topic in own.topics()), 20)
    assert everything.topics() == []
    everything.close()
    own.close()
    net.stop()


def test_delayed_rewritten_automatic_and_exclusive(net):
    node = broker(net, rewrite=[{"from": "old/+/#", "to": "new/{2}/{1}"}],
                  auto_subscribe=[{"filter": "inbox/%c", "qos": 1}], delayed_max=10)
    a = mqtt.Client(node.mqtt_port, "a", version=5)
    b = mqtt.Client(node.mqtt_port, "b", version=5)
    assert a.subscribe("new/#", 1) == [1]
    b.publish("old/x/y", b"rewritten", 1)
    b.publish("inbox/a", b"automatic", 1)
    began = time.monotonic()
    b.publish("$delayed/2/new/z", b"delayed", 1)
    wait_until(lambda: len(a.messages) == 3, 20, lambda: str(a.topics()))
    assert time.monotonic() - began >= 1.9
    assert list(zip(a.topics(), a.payloads())) == [("new/y/x", b"rewritten"), ("inbox/a", b"automatic"), ("new/z", b"delayed")]
    assert a.subscribe("$exclusive/only", 1) == [1]
    assert b.subscribe("$exclusive/only", 1) == [0x97]
    a.close()
    wait_until(lambda: b.subscribe("$exclusive/only", 1) == [1], 20)
    b.close()
    net.stop()


def test_a_mountpoint_hides_the_rest_and_bounds_are_counted(net):
    node = broker(net, listeners=2, sessions_max=3)
    port = int(node.tables["listener"][1]["bind"].rsplit(":", 1)[1])
    outside = mqtt.Client(node.mqtt_port, "outside")
    outside.subscribe("tenants/#", 1)
    a, b = (mqtt.Client(port, name, version=5) for name in ("a", "b"))
    for one in (a, b):
        one.subscribe("+", 1)
    a.publish("hello", b"from a", 1)
    outside.publish("tenants/b/hello", b"to b", 1)
    wait_until(lambda: len(outside.messages) == 2 and a.messages and b.messages, 20)
    assert a.topics() == ["hello"] and b.payloads() == [b"to b"] and b.topics() == ["hello"]
    assert outside.topics() == ["tenants/a/hello", "tenants/b/hello"]
    fourth = mqtt.Client(node.mqtt_port, "fourth", version=5)
    assert fourth.connack[1] == 0x97
    assert node.status()["mqtt"]["limit_sessions"] >= 1
    fourth.close()
    for one in (outside, a, b):
        one.close()
    net.stop()
