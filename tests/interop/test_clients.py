"""The broker with other people's clients: mosquitto_pub, mosquitto_sub and paho, over real sockets.

Environment: BROKER_MAIN, the program made of broker_main.cc."""
import os
import re
import socket
import subprocess
import threading
import time
import unittest

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

WAIT = 120  # never waited for when all is well


class Broker:
    def __init__(self, workers):
        self.process = subprocess.Popen([os.environ["BROKER_MAIN"], str(workers)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        first = self.process.stdout.readline()
        self.port = int(re.match(r"listening 127\.0\.0\.1:(\d+)", first).group(1))

    def stats(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return {k: int(v) for k, v in (w.split("=") for w in self.process.stdout.readline().split())}

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(WAIT)


class Client:
    """A paho client that keeps what it gets."""

    def __init__(self, port, name="", version=paho.MQTTv311, clean=True, will=None, keepalive=60, expiry=None,
                 connect=True):
        self.messages, self.arrived = [], threading.Condition()
        self.acked, self.subscribed, self.connected = set(), set(), threading.Event()
        self.connack, self.is_cut = None, False
        args = {} if version == paho.MQTTv5 else {"clean_session": clean}
        self.c = paho.Client(name, protocol=version, **args)
        self.version = version
        self.c.on_message = self._message
        self.c.on_connect = self._connect
        self.c.on_publish = lambda c, u, mid: self._note(self.acked, mid)
        self.c.on_subscribe = lambda c, u, mid, *rest: self._note(self.subscribed, mid)
        self.c.max_inflight_messages_set(50)
        if will:
            self.c.will_set(*will)
        more = {}
        if version == paho.MQTTv5:
            more["clean_start"] = clean
            more["properties"] = Properties(PacketTypes.CONNECT)
            if expiry is not None:
                more["properties"].SessionExpiryInterval = expiry
        if connect:
            self.c.connect("127.0.0.1", port, keepalive, **more)
            self.c.loop_start()
            assert self.connected.wait(WAIT), "no CONNACK"

    def _connect(self, c, u, flags, rc, *rest):
        self.connack = (flags, rc, rest)
        self.connected.set()

    def _message(self, c, u, m):
        with self.arrived:
            self.messages.append(m)
            self.arrived.notify_all()

    def _note(self, where, mid):
        with self.arrived:
            where.add(mid)
            self.arrived.notify_all()

    def wait(self, condition, what):
        with self.arrived:
            assert self.arrived.wait_for(condition, WAIT), f"waited for {what}, have {len(self.messages)} messages"

    def subscribe(self, *args, **kwargs):
        mid = self.c.subscribe(*args, **kwargs)[1]
        self.wait(lambda: mid in self.subscribed, "SUBACK")

    def publish(self, *args, **kwargs):
        info = self.c.publish(*args, **kwargs)
        self.wait(lambda: info.mid in self.acked, "PUBACK")

    def expect(self, count):
        self.wait(lambda: len(self.messages) >= count, f"{count} messages")
        return self.messages

    def close(self):
        self.c.disconnect()
        self.c.loop_stop()

    def cut(self):
        self.is_cut = True
        self.c.loop_stop()
        self.c.socket().shutdown(socket.SHUT_RDWR)
        self.c.socket().close()


def until(condition, what):
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(what)


def setUpModule():
    global broker
    broker = Broker(2)


def tearDownModule():
    assert broker.stop() == 0


class SharedBroker(unittest.TestCase):
    """One broker for all tests: each has topics and client ids of its own, and counts from where it began."""

    def setUp(self):
        self.broker = broker
        self.begin()

    def begin(self):
        """Counts from now. Who has just left may still be counted, and would be missing later."""
        until(lambda: broker.stats()["connections"] == 0, "the clients before are gone")
        self.base = broker.stats()

    def more(self, figure):
        return self.broker.stats()[figure] - self.base[figure]


class Mosquitto(SharedBroker):
    def sub(self, *args):
        return subprocess.Popen(["mosquitto_sub", "-p", str(self.broker.port), "-W", str(WAIT), *args],
                                stdout=subprocess.PIPE, text=True)

    def pub(self, *args, **kwargs):
        subprocess.run(["mosquitto_pub", "-p", str(self.broker.port), *args], check=True, timeout=WAIT, **kwargs)

    def test_every_version_and_qos(self):
        for version in ("mqttv31", "mqttv311", "mqttv5"):
            for qos in ("0", "1", "2"):
                self.begin()
                sub = self.sub("-V", version, "-q", qos, "-t", "v/+/#", "-C", "3", "-F", "%t %q %p")
                until(lambda: self.more("subscriptions") == 1, "subscribed")
                for i in range(3):
                    self.pub("-V", version, "-q", qos, "-t", f"v/{i}/x", "-m", f"message {i}")
                out, _ = sub.communicate(timeout=WAIT)
                self.assertEqual(out.splitlines(), [f"v/{i}/x {qos} message {i}" for i in range(3)], version + qos)

    def test_retained_and_cleared(self):
        self.pub("-r", "-t", "r/a", "-m", "kept")
        self.pub("-r", "-t", "r/b", "-m", "gone")
        self.pub("-r", "-t", "r/b", "-n")
        out, _ = self.sub("-t", "r/#", "-C", "1", "-F", "%t %r %p").communicate(timeout=WAIT)
        self.assertEqual(out, "r/a 1 kept\n")

    def test_properties_of_version_5(self):
        sub = self.sub("-V", "5", "-t", "p", "-C", "1", "-F", "%p|%R|%D|%C|%P|%E")
        until(lambda: self.more("subscriptions") == 1, "subscribed")
        self.pub("-V", "5", "-t", "p", "-m", "x", "-D", "publish", "response-topic", "answer", "-D", "publish",
                 "correlation-data", "id", "-D", "publish", "content-type", "text", "-D", "publish", "user-property", "k",
                 "v", "-D", "publish", "message-expiry-interval", "30")
        out, _ = sub.communicate(timeout=WAIT)
        self.assertEqual(out, "x|answer|id|text|k:v|30\n")

    def test_large_payload(self):
        data = os.urandom(3_000_000).hex()
        sub = self.sub("-q", "1", "-t", "large", "-C", "1")
        until(lambda: self.more("subscriptions") == 1, "subscribed")
        self.pub("-q", "1", "-t", "large", "-s", input=data, text=True)
        out, _ = sub.communicate(timeout=WAIT)
        self.assertEqual(out.strip(), data)

    def test_many_lines_keep_their_order(self):
        count = 20000
        sub = self.sub("-q", "1", "-t", "lines", "-C", str(count))
        until(lambda: self.more("subscriptions") == 1, "subscribed")
        lines = "".join(f"{i}\n" for i in range(count))
        self.pub("-q", "1", "-t", "lines", "-l", input=lines, text=True)
        out, _ = sub.communicate(timeout=WAIT)
        self.assertEqual(out, lines)


class Paho(SharedBroker):
    def setUp(self):
        super().setUp()
        self.clients = []

    def tearDown(self):
        for c in self.clients:
            if not c.is_cut:
                c.c.disconnect()
            c.c.loop_stop()

    def client(self, name="", **kwargs):
        c = Client(self.broker.port, name, **kwargs)
        self.clients.append(c)
        return c

    def test_order_at_each_qos_across_workers(self):
        for version in (paho.MQTTv31, paho.MQTTv311, paho.MQTTv5):
            subs = [self.client(f"s{i}", version=version) for i in range(4)]
            pubs = [self.client(f"p{i}", version=version) for i in range(2)]
            for s in subs:
                s.subscribe("o/+/+", qos=2)
            for i in range(100):
                for n, p in enumerate(pubs):
                    for qos in (0, 1, 2):
                        p.c.publish(f"o/{n}/{qos}", str(i), qos=qos)
            for s in subs:
                s.expect(600)
                for topic in {m.topic for m in s.messages}:
                    got = [int(m.payload) for m in s.messages if m.topic == topic]
                    self.assertEqual(got, list(range(100)), topic)
            for c in subs + pubs:
                c.close()

    def test_session_survives_on_any_worker(self):
        for version in (paho.MQTTv311, paho.MQTTv5):
            name = f"session{version}"
            expiry = 100 if version == paho.MQTTv5 else None
            s = self.client(name, version=version, clean=False, expiry=expiry)
            s.subscribe(f"q/{version}", qos=1)
            p = self.client("pub")
            sent = 0
            before = []
            # What paho had no time to acknowledge before it closed comes again: first arrivals count.
            first = lambda: list(dict.fromkeys(int(m.payload) for m in before + s.messages))
            for _ in range(6):
                s.close()
                before += s.messages
                for _ in range(20):
                    p.publish(f"q/{version}", str(sent), qos=1)
                    sent += 1
                s = self.client(name, version=version, clean=False, expiry=expiry)
                s.wait(lambda: len(first()) == sent, "all that was sent")
            self.assertEqual(first(), list(range(sent)))
            p.close()
            s.close()

    def test_takeover(self):
        first = self.client("same", version=paho.MQTTv5, expiry=60)
        gone = threading.Event()
        first.c.on_disconnect = lambda *args: gone.set()
        first.c.reconnect_delay_set(60)
        second = self.client("same", version=paho.MQTTv5, clean=False, expiry=60)
        self.assertTrue(gone.wait(WAIT))
        self.assertEqual(second.connack[0]["session present"], 1)

    def test_will(self):
        watcher = self.client("w")
        watcher.subscribe("will/#", qos=1)
        victim = self.client("v", will=("will/v", "dead", 1, True))
        polite = self.client("p", will=("will/p", "dead", 1, True))
        polite.close()
        victim.cut()
        self.assertEqual([(m.topic, m.payload) for m in watcher.expect(1)], [("will/v", b"dead")])
        late = self.client("l")
        late.subscribe("will/#")
        self.assertTrue(late.expect(1)[0].retain)

    def test_keep_alive(self):
        watcher = self.client("w")
        watcher.subscribe("will/k")
        raw = socket.create_connection(("127.0.0.1", self.broker.port))
        will = b"\0\6will/k\0\4dead"
        body = b"\0\4MQTT\4\6\0\1\0\1k" + will
        raw.sendall(bytes([0x10, len(body)]) + body)
        self.assertEqual(raw.recv(4), b"\x20\2\0\0")
        begin = time.monotonic()
        self.assertEqual(raw.recv(1), b"")
        self.assertTrue(1.4 < time.monotonic() - begin < WAIT)
        raw.close()
        watcher.expect(1)
        alive = self.client("alive", keepalive=1)
        time.sleep(3)
        self.assertTrue(alive.c.is_connected())

    def test_version_5_options(self):
        a = self.client("a", version=paho.MQTTv5)
        b = self.client("b", version=paho.MQTTv5)
        p = Properties(PacketTypes.SUBSCRIBE)
        p.SubscriptionIdentifier = 268435455
        a.subscribe("t", options=SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True), properties=p)
        a.publish("t", "mine", qos=1)
        b.publish("t", "yours", qos=1, retain=True)
        m = a.expect(1)[0]
        self.assertEqual((m.payload, m.retain, m.properties.SubscriptionIdentifier), (b"yours", True, [268435455]))
        a.subscribe("t", options=SubscribeOptions(qos=1, retainHandling=1))
        a.subscribe("t", options=SubscribeOptions(qos=1, retainHandling=0))
        self.assertEqual([x.payload for x in a.expect(2)], [b"yours", b"yours"])

    def test_two_hundred_clients(self):
        clients = [self.client(f"c{i}", version=paho.MQTTv5 if i % 2 else paho.MQTTv311) for i in range(200)]
        for i, c in enumerate(clients):
            c.subscribe([("all", 1), (f"one/{i}", 2)])
        self.assertEqual(self.more("connections"), 200)
        for i, c in enumerate(clients):
            c.c.publish(f"one/{(i + 77) % 200}", str(i), qos=i % 3)
        clients[0].publish("all", "x" * 2000, qos=1)
        for i, c in enumerate(clients):
            c.expect(2)
            self.assertEqual(sorted(m.topic for m in c.messages), ["all", f"one/{i}"])
        for c in clients:
            c.close()
        until(lambda: self.more("sessions") <= 0, "all gone")
        until(lambda: self.more("subscriptions") <= 0, "all gone")
        self.assertEqual(self.broker.stats()["malformed"], 0)


if __name__ == "__main__":
    unittest.main()
