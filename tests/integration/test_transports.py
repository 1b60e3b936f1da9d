"""What a client may do to the broker over each of the four transports: nothing makes it crash, stall or grow. One node
serves the whole file: what one test leaves behind would show in the next ones."""
import contextlib
import itertools
import pathlib
import random
import resource
import socket
import ssl
import struct

import pytest
from mqtt_wire import PING, UPGRADE, gateway_of_each_kind
from net import Net
from waiting import wait_until
from wires import (CONNACK, DISCONNECT, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SMALL, SUBACK, TRANSPORTS, Gone, Wire, ack,
                   connect, counters, frame, open_stream, publish, resident, subscribe)

MIB = 1024 * 1024
WAIT = 120
CONNECT_SECONDS = 4  # broker.connect_timeout
INFLIGHT, QUEUED = 32, 1000  # broker.inflight_max, broker.mqueue_messages_max
SUBSCRIPTIONS = 1000  # broker.subscriptions_max
RECEIVE_MAX, AWAITING_V3 = 100, 10_000  # broker.receive_max; what version 3 may leave unreleased: base/limits.h
each_transport = pytest.mark.parametrize("kind", TRANSPORTS)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    from node import binary
    if binary() is None:
        pytest.skip("posthouse is not built")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    net = Net(binary(), tmp_path_factory.mktemp("transports"), random.Random())
    node = gateway_of_each_kind(net, binary(), net.folder, {"workers": 2, "connect_timeout": f"{CONNECT_SECONDS}s"})
    yield node
    print(node.log(whole=True)[-2500:])
    try:
        node.stop()  # in order, after all of this
    finally:
        net.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def node(gateway):
    """With nobody connected, and gone through the test alive."""
    wait_until(lambda: counters(gateway)["connections"] == 0, WAIT)
    yield gateway
    Wire.close_all()
    assert gateway.running(), gateway.log()[-3000:]


@pytest.fixture
def others(node):
    """Clients on both workers, over two transports, with a word for: all of them are served now."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(contextlib.closing(Wire(node, kind, connect(f"other-{kind}-{i}"), wait=WAIT)))
                 for kind in ("mqtt", "wss") for i in range(6)]  # the kernel shares them out to the workers as it likes
        for i, one in enumerate(wires):
            one.subscribe(f"others/{i}")

        def served():
            for i, one in enumerate(wires):
                one.send(publish(f"others/{i}", b"hello"))
            for one in wires:
                assert one.expect(PUBLISH).endswith(b"hello")
            return True
        served.count = len(wires)
        assert served()
        yield served


class Peak:
    """Growth of the node's memory between begin and end of a block, at its highest."""

    def __init__(self, node, bound):
        self.node, self.bound = node, bound

    def __enter__(self):
        self.before = resident(self.node)
        pathlib.Path(f"/proc/{self.node.pid}/clear_refs").write_text("5")  # the peak begins anew
        return self

    def __exit__(self, failed, *_):
        if failed:
            return
        lines = pathlib.Path(f"/proc/{self.node.pid}/status").read_text().split("\n")
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
        assert peak - self.before < self.bound, f"grew by {(peak - self.before) / MIB:.1f} MiB"


def more(node, before, name):
    return counters(node)[name] - before[name]


def publish_all(wire, topic, qos, payloads, at_once=50, meanwhile=lambda sent: None):
    """As a proper client does, so many at a time."""
    for at in range(0, len(payloads), at_once):
        part = payloads[at:at + at_once]
        wire.send(b"".join(publish(topic, one, qos, i + 1) for i, one in enumerate(part)))
        for answer in {0: [], 1: [PUBACK], 2: [PUBREC, PUBCOMP]}[qos]:
            if answer == PUBCOMP:
                wire.send(b"".join(ack(PUBREL, i + 1) for i in range(len(part))))
            for _ in part:
                wire.expect(answer)
        meanwhile(len(part))


class Reader(Wire):
    """A subscriber that acknowledges what it reads, when it reads."""

    def __init__(self, node, kind, name, topic, qos, buffers=None, **keys):
        super().__init__(node, kind, connect(name, **keys), buffers, WAIT)
        self.qos, self.version, self.seen, self.ids = qos, keys.get("version", 4), [], []
        assert self.subscribe(topic, qos, self.version)[-1] == qos

    def next(self, complete=True):
        """Payload of the next message, acknowledged to the end. complete: False: with PUBREC alone, of QoS 2."""
        while True:
            first, body = self.packet()
            if first & 0xF0 == PUBLISH:
                break
            assert first & 0xF0 == PUBREL, first
            if complete:
                self.send(ack(PUBCOMP, struct.unpack(">H", body[:2])[0]))
        at = 2 + struct.unpack(">H", body[:2])[0]
        if self.qos:
            packet_id = struct.unpack(">H", body[at:at + 2])[0]
            self.send(ack(PUBACK if self.qos == 1 else PUBREC, packet_id))
            at += 2
        return body[at + (1 if self.version == 5 else 0):]


# --- slow readers

def numbered(count, size):
    return [struct.pack(">I", i) + bytes(size - 4) for i in range(count)]


def numbers(payloads):
    return [struct.unpack(">I", one[:4])[0] for one in payloads]


@each_transport
def test_a_slow_reader_at_qos_0_loses_what_is_counted_and_nobody_else_does(node, others, kind):
    slow = [Reader(node, kind, f"slow-{i}", "flood", 0, SMALL) for i in range(3)]
    good = Reader(node, kind, "good", "flood", 0)
    before, sent = counters(node), numbered(3000, 4000)
    with Peak(node, 24 * MIB), contextlib.closing(Wire(node, kind, connect("fast"), wait=WAIT)) as fast:
        publish_all(fast, "flood", 0, sent, 50, lambda n: good.seen.extend(good.next() for _ in range(n)))
        assert others()
    assert numbers(good.seen) == list(range(3000))
    dropped = more(node, before, "dropped_slow_consumer")
    assert dropped > 3 * 500  # the budget is a MiB, the rest lies in the kernel's buffers
    got = 0
    for one in slow:
        one.send(b"\xc0\0")
        last = -1
        while (first := one.packet())[0] != PINGRESP:
            number = struct.unpack(">I", first[1][7:11])[0]
            assert number > last
            last, got = number, got + 1
        one.close()
    assert got + dropped == 3 * 3000, "each message came, or was counted"
    good.close()


@each_transport
@pytest.mark.parametrize("qos", [1, 2])
def test_a_slow_reader_at_qos_1_and_2_has_a_full_queue_and_no_more(node, others, kind, qos):
    count = 1300
    slow = [Reader(node, kind, f"slow-{qos}-{clean}", "flood", qos, SMALL, clean=clean) for clean in (True, False)]
    good = Reader(node, kind, "good", "flood", qos)
    before, sent = counters(node), numbered(count, 3000)
    with Peak(node, 24 * MIB), contextlib.closing(Wire(node, kind, connect("fast"), wait=WAIT)) as fast:
        publish_all(fast, "flood", qos, sent, 50, lambda n: good.seen.extend(good.next() for _ in range(n)))
        assert others()
    assert numbers(good.seen) == list(range(count))
    assert more(node, before, "dropped_queue_full") == len(slow) * (count - INFLIGHT - QUEUED)
    for one in slow:  # begins to read: what was sent, and of the rest the newest
        got = numbers(one.next() for _ in range(INFLIGHT + QUEUED))
        assert got == [*range(INFLIGHT), *range(count - QUEUED, count)]
        assert one.alive()
        one.close()
    good.close()
    for clean in (True, False):  # nothing is left of the sessions
        Wire(node, kind, connect(f"slow-{qos}-{clean}"), wait=WAIT).close()


@each_transport
@pytest.mark.parametrize("version", [4, 5])
def test_who_never_completes_gets_a_window_full(node, others, kind, version):
    """PUBREC for everything, PUBCOMP for nothing."""
    window = 5 if version == 5 else INFLIGHT
    wire = Reader(node, kind, "never", "flood", 2, version=version, receive_maximum=window if version == 5 else None)
    before = counters(node)
    with Peak(node, 16 * MIB), contextlib.closing(Wire(node, kind, connect("fast"), wait=WAIT)) as fast:
        publish_all(fast, "flood", 2, numbered(1200, 1000))
        assert others()
    assert numbers(wire.next(complete=False) for _ in range(window)) == list(range(window))
    wire.send(b"\xc0\0")
    left = [wire.packet() for _ in range(window + 1)]
    assert sorted(first & 0xF0 for first, _ in left) == [PUBREL] * window + [PINGRESP]
    assert more(node, before, "dropped_queue_full") == 1200 - window - QUEUED
    wire.close()


# --- slow writers

def byte_by_byte(wire, data):
    """Each in a frame, a record and a segment of its own; False when the broker has ended it."""
    for i in range(len(data)):
        try:
            wire.send(data[i:i + 1])
        except OSError:
            return False
        yield


def test_who_writes_byte_by_byte_is_served(node, others):
    wires = [Wire(node, kind, wait=WAIT) for kind in TRANSPORTS]
    writers = [byte_by_byte(one, connect(f"slow-{i}") + subscribe([f"bytes/{i}"]) + publish(f"bytes/{i}", b"x" * 40) + b"\xc0\0")
               for i, one in enumerate(wires)]
    for _ in itertools.zip_longest(*writers):
        pass
    for one in wires:
        assert one.packet()[0] == CONNACK
        assert {one.packet()[0] for _ in range(3)} == {SUBACK, PUBLISH, PINGRESP}
        one.close()
    assert others()


def test_who_writes_too_slowly_has_the_time_that_everybody_has(node, others):
    """CONNECT has to come within its time, and a packet within the keep-alive, however many bytes come meanwhile."""
    before = counters(node)
    late = [Wire(node, kind, wait=WAIT) for kind in TRANSPORTS]
    silent = [Wire(node, kind, connect(f"silent-{kind}", 5, keepalive=2), wait=WAIT) for kind in TRANSPORTS]
    writers = {one: byte_by_byte(one, connect("l" * 1000)) for one in late}
    writers |= {one: byte_by_byte(one, publish("t", bytes(5000), version=5)) for one in silent}

    def all_ended():
        for one in list(writers):
            if next(writers[one], StopIteration) is StopIteration:
                del writers[one]
        assert others()
        return counters(node)["connections"] == others.count
    wait_until(all_ended, 10 * CONNECT_SECONDS)
    assert more(node, before, "keep_alive_timeouts") == len(silent)
    for one in silent:
        assert one.expect(DISCONNECT)[:1] == b"\x8d"
    for one in late + silent:
        one.close()


# --- handshakes that stop half-way

class HalfTls:
    """A TLS client whose flights are in our hands."""

    def __init__(self, node, kind):
        self.socket = socket.create_connection(("127.0.0.1", node.ports_of[kind]), timeout=WAIT)
        self.input, self.output = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = node.context.wrap_bio(self.input, self.output, server_hostname="127.0.0.1")

    def flight(self):
        """What the client wants to send next."""
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            if out := self.output.read():
                return out
            self.input.write(self.socket.recv(65536))


def halfway(node):
    """Clients that stop, each at another place. What they hold open is returned."""
    out = []
    for kind in ("tls", "wss"):
        for flights, share in ((1, 2), (1, 1), (2, 2)):  # half of a ClientHello, a whole one, half of what follows
            client = HalfTls(node, kind)
            for i in range(flights):
                flight = client.flight()
                client.socket.sendall(flight[:len(flight) // share] if i == flights - 1 else flight)
            out.append(client.socket)
    for kind in ("ws", "wss"):
        of = socket.create_connection(("127.0.0.1", node.ports_of[kind]), timeout=WAIT)
        if kind == "wss":
            of = node.context.wrap_socket(of, server_hostname="127.0.0.1")
        of.sendall(UPGRADE[:-2])
        out.append(of)
    for kind in ("ws", "wss"):
        of = open_stream(node, kind, wait=WAIT)
        of.sendall(frame(connect("half"))[:-1])  # upgraded, and a frame that does not end
        out.append(of)
    return out


def test_handshakes_that_stop_half_way_end_in_time_and_cost_nobody(node, others):
    before, rounds = counters(node), 15
    with Peak(node, 24 * MIB):
        stopped = [of for _ in range(rounds) for of in halfway(node)]
        assert others()
        wait_until(lambda: others() and counters(node)["connections"] == others.count, 10 * CONNECT_SECONDS)
    for of in stopped:
        with contextlib.suppress(OSError):  # a reset, or a TLS connection that ends without a word
            while of.recv(65536):
                pass
        of.close()
    assert more(node, before, "tls_failures") == 6 * rounds
    assert more(node, before, "websocket_refused") == 2 * rounds


# --- floods

@each_transport
@pytest.mark.parametrize("version", [4, 5])
def test_a_flood_at_qos_2_that_releases_nothing_is_ended(node, others, kind, version):
    allowed, before = AWAITING_V3 if version == 4 else RECEIVE_MAX, counters(node)
    watcher = Wire(node, "mqtt", connect("watcher"), wait=WAIT)
    watcher.subscribe("flood")
    with Peak(node, 16 * MIB):
        wire = Wire(node, kind, connect("flood", version), wait=WAIT)
        data = b"".join(publish("flood", b"", 2, i + 1, version) for i in range(2 * allowed))
        with contextlib.suppress(OSError):  # ended before it was through
            wire.send(data)
        assert others()
        answers = []
        with contextlib.suppress(Gone, OSError):
            while True:
                answers.append(wire.packet())
    assert [struct.unpack(">H", body[:2])[0] for first, body in answers if first & 0xF0 == PUBREC] == list(range(1, allowed + 1))
    if version == 5:
        assert answers[-1] == (DISCONNECT, b"\x93")
    assert more(node, before, "limit_receive_maximum") == 1
    watcher.send(b"\xc0\0")
    assert sum(1 for _ in iter(lambda: watcher.packet()[0], PINGRESP)) == allowed
    watcher.close()


@each_transport
def test_a_flood_of_aliases_costs_what_the_aliases_may(node, others, kind):
    topics = [bytes([97 + i % 26]) * 65_000 + str(i).encode() for i in range(32)]
    before = counters(node)
    with Peak(node, 16 * MIB):  # 32 topics are 2 MiB, and 26 are sent
        wire = Wire(node, kind, connect("aliases", 5), wait=WAIT)
        for turn in range(13):
            for alias in range(32):
                wire.send(publish(topics[(alias + turn) % 32], b"", 0, 0, 5, alias + 1))
        wire.subscribe(topics[12].decode(), version=5)
        wire.send(publish(b"", b"by alias", 0, 0, 5, 1) * 10 + b"\xc0\0")
        got = list(iter(wire.packet, (PINGRESP, b"")))
        assert len(got) == 10 and all(body.endswith(b"by alias") and body[2:].startswith(topics[12]) for _, body in got)
        assert others()
    for alias, version_limit in ((33, 1), (65535, 1), (0, 0)):
        wire.send(publish("x", b"", 0, 0, 5, alias))
        first, body = wire.packet()
        assert first == DISCONNECT and body[:1] == (b"\x94"), (alias, body)
        assert wire.ended()
        wire = Wire(node, kind, connect("aliases", 5), wait=WAIT)
    assert more(node, before, "limit_topic_alias") == 2
    wire.close()


@each_transport
def test_a_flood_that_matches_much_is_no_pause_for_others(node, others, kind):
    """A topic of as many levels as there may be, against thousands of filters that have to be walked down to the end."""
    depth, choices = 128, 10
    for i in range(3):
        filters = ["/".join(["a+"[n >> level & 1] for level in range(choices)] + ["+"] * (depth - choices - i)) for n in range(SUBSCRIPTIONS)]
        Wire(node, kind, connect(f"walk-{i}"), wait=WAIT).subscribe(filters)
    wire = Wire(node, kind, connect("flood"), wait=WAIT)
    wire.send(publish("/".join("a" * depth), b"x") * 100 + b"\xc0\0")
    assert others()
    assert not wire.arrived(), "they waited for all of it"
    assert wire.packet()[0] == PINGRESP


def test_one_filter_a_hundred_thousand_times_is_one(node, others):
    asked = subscribe(["z"] * 200_000)
    wires = [Wire(node, "mqtt", connect(f"again-{i}", clean=False), wait=WAIT) for i in range(8)]
    with Peak(node, 128 * MIB):  # what is taken apart of one on each worker, and eight packets; kept were 32 MiB of each
        for one in wires:
            one.send(asked)
        assert others()
        for one in wires:
            assert one.expect(SUBACK)[2:] == bytes(200_000)
    assert counters(node)["subscriptions"] == others.count + len(wires)
    for i, one in enumerate(wires):
        one.close()
        Wire(node, "mqtt", connect(f"again-{i}"), wait=WAIT).close()  # nothing is left of the session


# --- storms

@each_transport
def test_a_storm_of_a_thousand_clients(node, others, kind):
    with Peak(node, 110 * MIB if kind in ("tls", "wss") else 32 * MIB):  # two records of 16 KiB are of each TLS client
        clients = []
        for i in range(1000):  # of those that come back, most have a ticket
            known = clients[i - i % 10].socket.session if i % 10 and kind in ("tls", "wss") else None
            clients.append(Wire(node, kind, wait=WAIT, session=known))
            clients[i].send(connect(f"storm-{i}", 4 + i % 2, keepalive=600) + subscribe(["storm"], 0, 1, 4 + i % 2))
        assert others()
        for one in clients:
            assert one.expect(CONNACK)[1] == 0
            one.expect(SUBACK)
        assert counters(node)["connections"] == 1000 + others.count
        clients[0].send(publish("storm", b"all"))
        for one in clients:
            assert one.expect(PUBLISH).endswith(b"all")
    for one in clients:
        one.close()
    assert others()
    wait_until(lambda: counters(node)["connections"] == others.count, WAIT)


@each_transport
def test_a_storm_of_reconnects_with_one_client_id(node, others, kind):
    """All at once, each with a will: one is left, with the session, and each of the others was told."""
    first = Wire(node, kind, connect("twin", clean=False), wait=WAIT)
    first.subscribe("twins", 1)
    before = counters(node)
    with Peak(node, 64 * MIB if kind in ("tls", "wss") else 32 * MIB):
        twins = []
        for burst in range(6):
            fresh = [Wire(node, kind, wait=WAIT, session=getattr(first.socket, "session", None)) for _ in range(50)]
            for i, one in enumerate(fresh):
                version = 4 + i % 2
                one.send(connect("twin", version, clean=False, will=("wills", bytes(20_000)), expiry=600 if version == 5 else None))
            twins += fresh
        assert others()
        wait_until(lambda: counters(node)["connections"] == 1 + others.count, WAIT)
    assert more(node, before, "takeovers") <= 300
    assert first.ended()
    left, told = [], 0
    for i, one in enumerate(twins):
        try:
            assert one.expect(CONNACK)[:2] == b"\1\0"
            one.send(b"\xc0\0")
            answer = one.packet()
            if answer[0] == PINGRESP:
                left.append(one)
            else:
                assert i % 2 == 1 and answer == (DISCONNECT, b"\x8e")
                told += 1
        except (Gone, OSError):
            assert i % 2 == 0, "version 5 is told why"
    assert len(left) == 1 and told in (149, 150)
    with contextlib.closing(Wire(node, "mqtt", connect("after"), wait=WAIT)) as sender:
        publish_all(sender, "twins", 1, [b"to the one"])
    assert b"to the one" in left[0].expect(PUBLISH)
    for one in [first, *twins]:
        one.close()
    wait_until(lambda: counters(node)["connections"] == others.count, WAIT)
    Wire(node, kind, connect("twin"), wait=WAIT).close()


# --- ten thousand subscriptions in one packet

def in_fragments(data, size, ping_each):
    """One message in fragments of `size`, with pings in between."""
    out = []
    for i in range(0, len(data), size):
        if ping_each and i // size % ping_each == ping_each - 1:
            out.append(frame(b"ping %d" % i, PING))
        out.append(frame(data[i:i + size], 0 if i else 2, i + size >= len(data)))
    return b"".join(out)


MANY = [f"many/{i}/+/#" for i in range(10_000)]


@each_transport
def test_ten_thousand_filters_in_one_packet(node, others, kind):
    before = counters(node)
    with Peak(node, 16 * MIB):
        wire = Wire(node, kind, connect("many"), wait=WAIT)
        reasons = wire.subscribe(MANY)[2:]
        assert others()
    assert reasons == b"\0" * SUBSCRIPTIONS + b"\x80" * (10_000 - SUBSCRIPTIONS)
    assert more(node, before, "limit_subscriptions") == 10_000 - SUBSCRIPTIONS
    wire.close()
    wait_until(lambda: counters(node)["subscriptions"] == others.count, WAIT)


@pytest.mark.parametrize("kind", ["ws", "wss"])
@pytest.mark.parametrize("size, ping_each", [(1, 0), (1, 3), (7, 1), (65_536, 1), (1 << 20, 0)])
def test_ten_thousand_filters_in_odd_frames(node, others, kind, size, ping_each):
    with Peak(node, 16 * MIB):
        wire = Wire(node, kind, connect("odd"), wait=WAIT)
        wire.send_encoded(in_fragments(subscribe(MANY), size, ping_each))
        assert wire.expect(SUBACK)[2:] == b"\0" * SUBSCRIPTIONS + b"\x80" * (10_000 - SUBSCRIPTIONS)
        wire.send(publish("many/999/x/y", b"there") + publish("many/1000/x/y", b"not") + b"\xc0\0")
        assert wire.expect(PUBLISH).endswith(b"there")
        assert wire.packet()[0] == PINGRESP
        assert others()
    assert bool(wire.pongs) == bool(ping_each) and all(one.startswith(b"ping ") for one in wire.pongs)
    wire.close()


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_a_frame_that_announces_more_than_there_is_memory(node, others, kind):
    """Its payload is a stream of packets: each is served when it is there, the frame never ends."""
    with Peak(node, 16 * MIB):
        wire = Wire(node, kind, wait=WAIT)
        wire.send_encoded(b"\x82\xff" + struct.pack(">Q", 1 << 62) + b"\0\0\0\0")  # with a mask that changes nothing
        wire.send_encoded(connect("huge") + subscribe(MANY))
        wire.expect(CONNACK)
        wire.expect(SUBACK)
        for _ in range(20):
            wire.send_encoded(b"\xc0\0" * 10_000)
            for _ in range(10_000):
                assert wire.packet()[0] == PINGRESP
        assert others()
    wire.close()


@each_transport
@pytest.mark.parametrize("clean", [True, False])
def test_a_client_that_says_all_at_once_and_goes_is_heard(node, kind, clean):
    """It may send on without waiting for its CONNACK, which takes a while: the session is another worker's, or is read."""
    hearing = Wire(node, "mqtt", connect("hearing"), wait=WAIT)
    hearing.subscribe("said/#")
    said = {b"%d of client %d" % (n, i) for i in range(20) for n in range(50)}
    for i in range(20):
        wire = Wire(node, kind, wait=WAIT)
        wire.send(connect(f"says-{clean}-{i}", clean=clean) + b"".join(publish(f"said/{i}", b"%d of client %d" % (n, i)) for n in range(50))
                  + b"\xe0\0")
        wire.close()
    for _ in range(len(said)):
        body = hearing.expect(PUBLISH)
        said.remove(body[2 + int.from_bytes(body[:2], "big"):])
    assert not said
    hearing.close()
