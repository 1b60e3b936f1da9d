"""The clients of test_abuse.py again, through TLS, WebSocket and both: what is bounded in MQTT must not be unbounded in what
carries it. Then what only these layers have."""
import contextlib
import os
import random
import socket
import ssl
import struct
import subprocess
import time

import pytest

import test_abuse
import wire
from client import Broker, Client
from node import Node, Ports, binary
from waiting import patience, wait_until

MIB = 1024 * 1024
UPGRADE = (b"GET /mqtt HTTP/1.1\r\nHost: gw\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
           b"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n")
BINARY, CLOSE = 2, 8
KINDS = {"plain": {}, "tls": {"tls": True}, "ws": {"protocol": "ws"}, "wss": {"protocol": "ws", "tls": True}}


def frame(payload, opcode=BINARY):
    size, mask = len(payload), os.urandom(4)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 65536 else b"\xff" + struct.pack(">Q", size)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return bytes([0x80 | opcode]) + length + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


class WebSocketBytes:
    """A WebSocket as a stream of bytes, which is what MQTT sees."""

    def __init__(self, of):
        self.of, self.raw, self.ended = of, b"", False
        of.sendall(UPGRADE)
        while b"\r\n\r\n" not in self.raw:
            more = of.recv(4096)
            assert more, self.raw
            self.raw += more
        head, self.raw = self.raw.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101 "), head

    def __getattr__(self, name):
        return getattr(self.of, name)

    def sendall(self, data):
        for at in range(0, len(data), 1 << 18):
            self.of.sendall(frame(data[at:at + (1 << 18)]))

    def need(self, size):
        while len(self.raw) < size:
            more = self.of.recv(262144)
            if not more:
                return False
            self.raw += more
        return True

    def recv(self, _):
        while not self.ended and self.need(2):
            size, used = self.raw[1], 2
            if size == 126:
                assert self.need(4)
                size, used = int.from_bytes(self.raw[2:4], "big"), 4
            if not self.need(used + size):
                break
            opcode, payload = self.raw[0] & 15, self.raw[used:used + size]
            self.raw = self.raw[used + size:]
            if opcode == BINARY and payload:
                return payload
            self.ended = opcode == CLOSE
        return b""


class LayerBroker(Broker):
    """Its clients come by one kind of listener."""
    given = 0  # names

    def __init__(self, node, ports, context, kind):
        super().__init__(node)
        self.ports, self.context, self.kind = ports, context, kind

    def open(self, v=5, kind=None):
        kind = kind or self.kind
        client = Client(self.ports[kind], v)
        self.clients.append(client)
        if "tls" in KINDS[kind]:
            client.socket = self.context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        if "protocol" in KINDS[kind]:
            client.socket = WebSocketBytes(client.socket)
        return client

    @staticmethod
    def try_send(client, data):
        """To a peer that may have closed: TLS has an error of its own for that."""
        with contextlib.suppress(OSError):
            client.send(data)

    def name(self):
        """No other test's, of any of these brokers: they are one process."""
        LayerBroker.given += 1
        return f"{self.kind}{LayerBroker.given}"


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    program = binary()
    if program is None:
        pytest.skip("posthouse is not built")
    folder, taken = tmp_path_factory.mktemp("layers"), Ports(random.SystemRandom())
    pki, ports = folder / "pki", {kind: taken.take() for kind in KINDS}
    for verb in (["init", str(pki)], ["issue", str(pki), "gw", "--ip", "127.0.0.1"]):
        subprocess.run([str(program), "pki", *verb], check=True, stdout=subprocess.DEVNULL)
    node = Node(program, folder, "layers", {
        "tls": {"ca": pki / "ca.crt", "cert": pki / "gw.crt", "key": pki / "gw.key"},
        "listener": [{"name": kind, "bind": f"127.0.0.1:{ports[kind]}", "allow_anonymous": True, **keys} for kind, keys in KINDS.items()],
        "broker": {"workers": 2, "connect_timeout": "5s", "retained_max": 200}}).start()
    yield node, ports, ssl.create_default_context(cafile=str(pki / "ca.crt"))
    try:
        node.stop()
    finally:
        node.end()


@pytest.fixture(params=[kind for kind in KINDS if kind != "plain"])
def broker(request, doors):
    made = LayerBroker(*doors, request.param)
    yield made
    made.end()
    assert made.node.running(), made.node.log()[-3000:]


AGAIN = [test_abuse.test_ten_thousand_filters_in_one_packet, test_abuse.test_deep_topic_against_wildcards_at_every_level,
         test_abuse.test_slashes, test_abuse.test_slow_readers_lose_qos_0_and_nobody_else_does]
AGAIN_5 = [test_abuse.test_as_many_filters_as_a_packet_holds, test_abuse.test_thousands_of_user_properties,
           test_abuse.test_qos_2_without_pubrel_in_version_5, test_abuse.test_topic_aliases_of_the_longest_kind,
           test_abuse.test_half_a_packet_and_silence, test_abuse.test_slow_writers_of_large_packets_are_bounded,
           test_abuse.test_one_bad_client_among_good_ones]


@pytest.mark.parametrize("what", AGAIN, ids=lambda f: f.__name__[5:])
def test_again(broker, what):
    what(broker, 5)


@pytest.mark.parametrize("what", AGAIN_5, ids=lambda f: f.__name__[5:])
def test_again_in_version_5(broker, what):
    what(broker)


@pytest.mark.parametrize("v", [4, 5])
def test_one_client_id_comes_by_all_doors_at_once(broker, v):
    """Takeovers race across workers and layers: one of them is left, and its session is whole."""
    name = broker.name()
    how = {"clean": False, "props": {"session_expiry": 60}}
    first = broker.connect(v, name, **how)
    first.subscribe(name, 1)
    storm = [broker.open(v, list(KINDS)[i % 4]) for i in range(80)]
    for c in storm:
        c.send(wire.connect(v, name, **how))
    before = broker.count("connections")
    wait_until(lambda: broker.count("connections") <= before - 80 or broker.count("connections") == 1, 60, "one is left")
    helper = broker.connect(v)
    helper.publish(name, "for the last", 1)
    got = 0
    for c in [first, *storm]:
        c.socket.settimeout(patience(1))
        try:
            while True:
                p = c.receive()
                if p.type == "publish":
                    assert p.payload == b"for the last"
                    got += 1
                    break
        except Exception:  # noqa: BLE001, S110: closed before, or nothing there
            pass
    assert got == 1
    broker.alive()


def test_one_byte_at_a_time_is_read_and_given_up_in_time(broker):
    """A CONNECT that trickles in is closed in time, and a PUBLISH that does is no burden: everybody else goes on."""
    trickle = [broker.open(5) for _ in range(10)]
    inside = [broker.connect(5) for _ in range(10)]
    said, sent = wire.connect(5, "trickle", keep_alive=60), wire.publish(5, "t", b"x" * 4096)
    s, p = broker.connect(5), broker.connect(5)
    topic = broker.name()
    s.subscribe(topic)
    begun, at = time.monotonic(), 0
    while broker.count("connections") > len(inside) + 2 and time.monotonic() - begun < patience(30):
        for c in trickle:
            if at < len(said) - 1:
                broker.try_send(c, said[at:at + 1])
        for c in inside:
            c.send(sent[at:at + 1])
        p.publish(topic, str(at), 1)
        s.message(topic, str(at))
        at += 1
        time.sleep(0.3)
    assert broker.count("connections") == len(inside) + 2
    assert at * 0.3 > 2, "each had its time"
    for c in inside:
        assert c.send(sent[at:]).ping() == []


def test_wills_that_wait_are_bounded(broker):
    """Sessions that stay, each with a will of the largest kind that comes in years: memory has an end, and it is counted."""
    before, refused = test_abuse.rss(broker), broker.count("limit_wills")
    topic = broker.name()
    pairs = [("k" * 1000, "v" * 60_000)] * 14
    will = {"topic": topic, "payload": b"w" * 65535, "props": [("will_delay", 10_000_000), *[("user_property", pair) for pair in pairs]]}
    let_in = 0
    for i in range(400):
        c = broker.open(5)
        c.send(wire.connect(5, f"{topic}-{i}", clean=False, props={"session_expiry": 0xFFFFFFFF}, will=will))
        answer = c.expect("connack")
        let_in += answer.reason == 0
        assert answer.reason in (0, 0x97)
        c.drop()
        if answer.reason:
            break
    assert 100 < let_in < 400 and broker.count("limit_wills") == refused + 1
    assert test_abuse.rss(broker) - before < 512 * MIB
    for i in range(let_in):  # who comes back takes its will along
        broker.connect(5, f"{topic}-{i}", clean=True).disconnect()
    broker.connect(5, f"{topic}-x", will=will).disconnect()


def test_frames_of_one_byte(broker):
    """Six bytes of header for each byte of MQTT: it costs the sender more than the broker."""
    if "protocol" not in KINDS[broker.kind]:
        pytest.skip("no frames")
    c, topic = broker.connect(5), broker.name()
    s = broker.connect(5)
    s.subscribe(topic)
    data = b"".join(wire.publish(5, topic, str(i).encode()) for i in range(500))
    c.socket.of.sendall(b"".join(frame(data[i:i + 1]) for i in range(len(data))))
    for i in range(500):
        s.message(topic, str(i))
    before = test_abuse.rss(broker)
    for _ in range(20):
        c.socket.of.sendall(frame(b"", BINARY) * 20_000)  # and of none
    c.nothing()
    assert test_abuse.rss(broker) - before < 16 * MIB


def test_handshakes_that_stop_anywhere(broker):
    """Every prefix of what a client says first: closed in time, counted, its memory given back."""
    raw = {"tls": b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03" + os.urandom(32), "ws": UPGRADE, "wss": b"\x16\x03\x01\x00\xf4\x01\x00"}[broker.kind]
    before = test_abuse.rss(broker)
    left = []
    for cut in range(0, len(raw), max(1, len(raw) // 40)):
        for _ in range(3):
            of = socket.create_connection(("127.0.0.1", broker.ports[broker.kind]), 60)
            of.sendall(raw[:cut])
            left.append(of)
    broker.alive()
    for of in left:
        of.settimeout(patience(60))
        try:
            while of.recv(4096):
                pass
        except ConnectionError:
            pass
        of.close()
    test_abuse.grown(broker, before, 16 * MIB)
