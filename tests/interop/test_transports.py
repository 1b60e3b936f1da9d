"""The program itself with other people's clients over each transport: TCP, TLS, WebSocket and WebSocket over TLS, with
mosquitto_pub and mosquitto_sub, paho for Python, and MQTT.js, in versions 3.1.1 and 5.

Environment: POSTHOUSE, the program; MQTT_JS, the folder with node_modules (see tools/dev install)."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

WAIT = 180  # never waited for when all is well
TRANSPORTS = ("tcp", "tls", "ws", "wss")
VERSIONS = {"mqttv311": paho.MQTTv311, "mqttv5": paho.MQTTv5}
HERE = pathlib.Path(__file__).parent


class Program:
    """`posthouse run` with a listener for each transport and certificates of its own making."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="posthouse-interop-"))
        program = os.environ["POSTHOUSE"]
        pki = self.folder / "pki"
        for arguments in (["init", pki], ["issue", pki, "server", "--ip", "127.0.0.1"]):
            subprocess.run([program, "pki", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
        self.ca = str(pki / "ca.crt")
        self.ports = {transport: self.free_port() for transport in TRANSPORTS}
        text = f"""[node]
name = "gw"
data_dir = "{self.folder}/data"
[api]
socket = "{self.folder}/api.sock"
[tls]
ca = "{self.ca}"
cert = "{pki}/server.crt"
key = "{pki}/server.key"
[broker]
workers = 2
mqueue_bytes_max = "64MiB"
"""
        for transport, port in self.ports.items():
            text += (f'[[listener]]\nname = "{transport}"\nbind = "127.0.0.1:{port}"\n'
                     f'protocol = "{"ws" if "ws" in transport else "mqtt"}"\n'
                     f'tls = {"true" if transport in ("tls", "wss") else "false"}\n')
        config = self.folder / "posthouse.toml"
        config.write_text(text)
        self.process = subprocess.Popen([program, "run", "-c", str(config)], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if "posthouse_ready" in line:
                break
        else:
            raise AssertionError("".join(self.log))
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    @staticmethod
    def free_port():
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            return one.getsockname()[1]

    def counters(self):
        said = subprocess.run([os.environ["POSTHOUSE"], "status", "--json", "--socket", str(self.folder / "api.sock")],
                              stdout=subprocess.PIPE, check=True, text=True, timeout=WAIT)
        return json.loads(said.stdout)["mqtt"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT)
        self.reader.join(WAIT)
        self.process.stderr.close()
        shutil.rmtree(self.folder)
        return code


def setUpModule():
    global program
    program = Program()


def tearDownModule():
    code = program.end()
    assert code == 0, (code, program.log[-20:])


def until(condition):
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, condition
        time.sleep(0.02)


class Client:
    """A paho client over any transport, which keeps what it gets."""

    def __init__(self, transport, version, name, clean=True, will=None):
        self.messages, self.changed = [], threading.Condition()
        self.acked, self.connack = set(), None
        more = {} if version == paho.MQTTv5 else {"clean_session": clean}
        self.c = paho.Client(name, protocol=version, transport="websockets" if "ws" in transport else "tcp", **more)
        if transport in ("tls", "wss"):
            self.c.tls_set(program.ca)
        if will:
            self.c.will_set(*will)
        self.c.on_message = lambda c, u, m: self.note(self.messages.append, m)
        self.c.on_connect = lambda c, u, flags, *rest: self.note(setattr, self, "connack", flags)
        self.c.on_subscribe = lambda c, u, mid, *rest: self.note(self.acked.add, ("sub", mid))
        self.c.on_publish = lambda c, u, mid: self.note(self.acked.add, ("pub", mid))
        self.c.max_queued_messages_set(0)
        args = {}
        if version == paho.MQTTv5:
            args = {"clean_start": clean, "properties": Properties(PacketTypes.CONNECT)}
            if not clean:
                args["properties"].SessionExpiryInterval = 300
        self.c.connect("127.0.0.1", program.ports[transport], **args)
        self.c.loop_start()
        self.wait(lambda: self.connack is not None, "CONNACK")

    def note(self, change, *args):
        with self.changed:
            change(*args)
            self.changed.notify_all()

    def wait(self, condition, what):
        with self.changed:
            assert self.changed.wait_for(condition, WAIT), f"waited for {what}, have {len(self.messages)} messages"

    def subscribe(self, topic, qos):
        mid = self.c.subscribe(topic, qos)[1]
        self.wait(lambda: ("sub", mid) in self.acked, "SUBACK")

    def publish(self, topic, payload, qos=0, retain=False):
        mid = self.c.publish(topic, payload, qos, retain).mid
        self.wait(lambda: ("pub", mid) in self.acked, "an acknowledgement")

    def take(self, count):
        """The next messages, exactly so many."""
        self.wait(lambda: len(self.messages) >= count, f"{count} messages")
        got, self.messages = self.messages[:count], self.messages[count:]
        assert not self.messages, self.messages
        return got

    def close(self):
        self.c.disconnect()
        self.c.loop_stop()

    def cut(self):
        """The end of the connection without DISCONNECT."""
        of = self.c.socket()
        self.c.loop_stop()
        of = getattr(of, "_socket", of)
        of.shutdown(socket.SHUT_RDWR)
        of.close()


class Transports(unittest.TestCase):
    def each(self, transports=TRANSPORTS):
        for transport in transports:
            for name, version in VERSIONS.items():
                with self.subTest(transport=transport, version=name):
                    yield transport, name, version, f"{self._testMethodName}/{transport}/{name}"

    def test_paho(self):
        for transport, _, version, prefix in self.each():
            a, b = (Client(transport, version, f"{prefix}/{name}") for name in "ab")
            for qos in (0, 1, 2):
                a.subscribe(f"{prefix}/q{qos}", qos)
                for i in range(20):
                    b.publish(f"{prefix}/q{qos}", str(i), qos)
                self.assertEqual([(m.payload.decode(), m.qos) for m in a.take(20)], [(str(i), qos) for i in range(20)])
            a.subscribe(f"{prefix}/large", 1)
            b.publish(f"{prefix}/large", b"x" * 700_000, 1)
            self.assertEqual(a.take(1)[0].payload, b"x" * 700_000)

            b.publish(f"{prefix}/kept", "kept", 1, True)
            a.subscribe(f"{prefix}/kept", 1)
            m = a.take(1)[0]
            self.assertEqual((m.payload, m.retain), (b"kept", True))

            a.subscribe(f"{prefix}/will", 1)
            victim = Client(transport, version, f"{prefix}/victim", will=(f"{prefix}/will", "dead", 1, False))
            polite = Client(transport, version, f"{prefix}/polite", will=(f"{prefix}/will", "not sent", 1, False))
            polite.close()
            victim.cut()
            self.assertEqual(a.take(1)[0].payload, b"dead")

            away = Client(transport, version, f"{prefix}/away", clean=False)
            away.subscribe(f"{prefix}/queued", 2)
            away.close()
            for i in range(10):
                b.publish(f"{prefix}/queued", str(i), 1 + i % 2)
            away = Client(transport, version, f"{prefix}/away", clean=False)
            self.assertEqual(away.connack["session present"], 1)
            # A client hands out a message of QoS 2 later: the order is that of each QoS.
            self.assertEqual([m.payload.decode() for m in sorted(away.take(10), key=lambda m: m.qos)],
                             [str(i) for i in (*range(0, 10, 2), *range(1, 10, 2))])
            for one in (a, b, away):
                one.close()

    def test_mosquitto(self):
        for transport, name, _, prefix in self.each(("tcp", "tls")):
            common = ["-h", "127.0.0.1", "-p", str(program.ports[transport]), "-V", name]
            if transport == "tls":
                common += ["--cafile", program.ca]
            for qos in ("0", "1", "2"):
                topic = f"{prefix}/{qos}"
                before = program.counters()["subscriptions"]
                sub = subprocess.Popen(["mosquitto_sub", *common, "-q", qos, "-t", topic, "-C", "3", "-F", "%q %r %p"],
                                       stdout=subprocess.PIPE, text=True)
                until(lambda: program.counters()["subscriptions"] == before + 1)
                for i in range(3):
                    subprocess.run(["mosquitto_pub", *common, "-q", qos, "-t", topic, "-m", f"m{i}", "-r"], check=True,
                                   timeout=WAIT)
                out, _ = sub.communicate(timeout=WAIT)
                until(lambda: program.counters()["subscriptions"] == before)
                self.assertEqual(out.splitlines(), [f"{qos} 0 m{i}" for i in range(3)])
                late = subprocess.run(["mosquitto_sub", *common, "-q", qos, "-t", topic, "-C", "1", "-F", "%r %p"], check=True,
                                      timeout=WAIT, stdout=subprocess.PIPE, text=True)
                self.assertEqual(late.stdout, "1 m2\n")
            # A session that outlives its client.
            keep = [*common, "-i", f"{prefix}/s", "-c", "-q", "1", "-t", f"{prefix}/s"]
            if name == "mqttv5":
                keep += ["-x", "300"]
            subprocess.run(["mosquitto_sub", *keep, "-E"], check=True, timeout=WAIT)
            subprocess.run(["mosquitto_pub", *common, "-q", "1", "-t", f"{prefix}/s", "-l"], check=True, timeout=WAIT,
                           input="one\ntwo\n", text=True)
            out = subprocess.run(["mosquitto_sub", *keep, "-C", "2"], check=True, timeout=WAIT, stdout=subprocess.PIPE,
                                 text=True).stdout
            self.assertEqual(out, "one\ntwo\n")

    def test_mqtt_js(self):
        modules = os.environ.get("MQTT_JS", "")
        if not shutil.which("node") or not (pathlib.Path(modules) / "node_modules/mqtt").is_dir():
            self.skipTest("MQTT.js is not installed: tools/dev install interop")
        for transport, _, version, prefix in self.each():
            scheme = {"tcp": "mqtt", "tls": "mqtts"}.get(transport, transport)
            url = f"{scheme}://127.0.0.1:{program.ports[transport]}" + ("/mqtt" if "ws" in transport else "")
            task = {"url": url, "ca": program.ca if transport in ("tls", "wss") else "", "version": int(version),
                    "prefix": prefix, "wait": WAIT}
            done = subprocess.run(["node", str(HERE / "transports.js"), json.dumps(task)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=2 * WAIT)
            self.assertEqual((done.returncode, done.stdout.split()), (0, ["qos", "large", "retained", "will", "session"]),
                             done.stderr)

    def test_all_of_them_get_the_same(self):
        clients = [Client(transport, version, prefix) for transport, _, version, prefix in self.each()]
        for one in clients:
            one.subscribe("all/#", 2)
        for i, one in enumerate(clients):
            one.publish(f"all/{i}", "x" * (1 + i * 40_000), i % 3)
        for one in clients:
            self.assertEqual(sorted((m.topic, len(m.payload)) for m in one.take(len(clients))),
                             sorted((f"all/{i}", 1 + i * 40_000) for i in range(len(clients))))
        for one in clients:
            one.close()

    @classmethod
    def tearDownClass(cls):
        counters = program.counters()
        for figure in ("malformed", "tls_failures", "websocket_refused", "websocket_faults"):
            assert counters[figure] == 0, counters


if __name__ == "__main__":
    unittest.main()
