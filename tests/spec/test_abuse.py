"""Clients that want too much: each is bounded, counted, and of no consequence to the others."""
import random
import resource
import socket
import threading

import pytest

import wire
from client import Closed
from statement import both, v5, v311

BROKER = {"workers": 1, "connect_timeout": "5s", "retained_max": 200}
MIB = 1024 * 1024


def rss(broker):
    for line in open(f"/proc/{broker.node.pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def grown(broker, before, most):
    """Memory may lag behind; what counts is that it does not stay."""
    broker.wait(lambda: rss(broker) - before < most, f"less than {most // MIB} MiB more than before")


def flood(client, data):
    """Sends from a thread, as long as the broker takes it."""
    def run():
        try:
            client.socket.sendall(data)
        except OSError:
            pass
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


# --- many filters, long topics

@both
def test_ten_thousand_filters_in_one_packet(broker, v):
    c, topic = broker.connect(v), broker.name()
    reasons = c.subscribe([f"{topic}/{i}" for i in range(10_000)], 1)
    assert reasons == [1] * 1000 + [0x97 if v == 5 else 0x80] * 9000
    p = broker.connect(v)
    for i in (0, 999, 1000, 9999):
        p.publish(f"{topic}/{i}", str(i), 1)
    c.message(topic + "/0")
    c.message(topic + "/999")
    c.nothing()
    assert len(c.unsubscribe([f"{topic}/{i}" for i in range(10_000)])) == (10_000 if v == 5 else 0)
    p.publish(f"{topic}/0", "x", 1)
    c.nothing()


def test_as_many_filters_as_a_packet_holds(broker):
    before, c = rss(broker), broker.connect(5)
    rows = [(f"{i:x}", 0) for i in range(130_000)]
    c.send(wire.subscribe(5, rows)).expect("suback")
    c.send(wire.unsubscribe(5, [name for name, _ in rows])).expect("unsuback")
    c.disconnect()
    grown(broker, before, 64 * MIB)


@both
def test_deep_topic_against_wildcards_at_every_level(broker, v):
    """128 levels of `a`, and filters in which any level may be `+`: the walk must not double at each."""
    dice, s, p = random.Random(7), broker.connect(v), broker.connect(v)
    filters = {"/".join(dice.choice("a+") for _ in range(128)) for _ in range(600)}
    filters |= {"/".join(["+"] * i + ["a"] * (128 - i)) for i in range(128)} | {"+/" * 100 + "#", "#"}
    s.subscribe(sorted(filters), 1)
    for i in range(20):
        p.publish("/".join("a" * 128), str(i), 1)
        s.message(payload=str(i))
    p.publish("/".join("a" * 127 + "b"), "miss", 1)
    s.message(payload="miss")
    s.nothing()


@both
def test_slashes(broker, v):
    s, p = broker.connect(v), broker.connect(v)
    s.subscribe(["/" * 127, "+/" * 127 + "+", "/#"], 1)
    p.publish("/" * 127, "x", 1)
    s.message("/" * 127)
    s.nothing()
    broker.connect(v).send(wire.publish(v, "/" * 65535)).closed(0x90)


@v5("MQTT-3.3.2-18")
def test_thousands_of_user_properties(broker):
    topic, s, p = broker.name(), broker.connect(5), broker.connect(5)
    s.subscribe(topic, 1)
    pairs = [(str(i % 7), "v" * (i % 30)) for i in range(15_000)]
    p.publish(topic, "x", 1, props=[("user_property", pair) for pair in pairs])
    assert s.message(topic).props.user == pairs
    will = {"topic": topic, "payload": "w", "props": [("user_property", pair) for pair in pairs]}
    broker.connect(5, will=will).drop()
    assert s.message(topic, "w").props.user == pairs


# --- windows and floods

@v311("MQTT-4.8.0-1")
def test_qos_2_without_pubrel_in_version_3(broker):
    topic, c = broker.name(), broker.connect(4)
    before = broker.count("malformed")
    data = b"".join(wire.publish(4, topic, "", 2, i + 1) for i in range(10_001))
    thread = flood(c, data)
    for i in range(10_000):
        c.expect("pubrec", id=i + 1)
    c.closed()
    thread.join()
    assert broker.count("malformed") == before + 1


@v5("MQTT-3.3.4-7")
def test_qos_2_without_pubrel_in_version_5(broker):
    topic, c = broker.name(), broker.connect(5)
    c.send(*[wire.publish(5, topic, "", 2, i + 1) for i in range(10_000)])
    for i in range(100):
        c.expect("pubrec", id=i + 1)
    c.closed(0x93)


def test_topic_aliases_of_the_longest_kind(broker):
    before, p = rss(broker), broker.connect(5)
    for round_ in range(20):
        for alias in range(1, 33):
            p.send(wire.publish(5, "x" * 65530 + str(round_), "", props={"topic_alias": alias}))
        p.nothing()
    p.drop()
    grown(broker, before, 32 * MIB)


@both
def test_wills_that_fill_a_packet(broker, v):
    topic, before = broker.name(), rss(broker)
    w = broker.connect(v)
    w.subscribe(topic, 1)  # QoS 0 would be dropped while nobody reads
    for _ in range(5):
        clients = [broker.connect(v, will={"topic": topic, "payload": b"w" * 65535, "qos": 1})
                   for _ in range(60)]
        for c in clients:
            c.drop()
        for _ in clients:
            w.message(topic, b"w" * 65535)
    grown(broker, before, 48 * MIB)


def test_delayed_wills_of_sessions_that_end(broker):
    topic, w = broker.name(), broker.connect(5)
    w.subscribe(topic)
    for i in range(200):
        broker.connect(5, f"{topic}-{i}", clean=False, props={"session_expiry": 1},
                       will={"topic": topic, "payload": str(i), "props": {"will_delay": 1000}}).drop()
    assert {int(w.message(topic).payload) for _ in range(200)} == set(range(200))
    w.nothing()


def test_retained_messages_are_bounded(broker):
    topic, p, s = broker.name(), broker.connect(5), broker.connect(5)
    dropped, kept = broker.count("dropped_retained_full"), broker.count("retained")
    s.subscribe(topic + "/#")
    for i in range(300):
        p.publish(f"{topic}/{i}", "x", retain=True)
        s.message(f"{topic}/{i}")  # delivered, whether kept or not
    assert broker.count("retained") == 200
    assert broker.count("dropped_retained_full") == dropped + 100 + kept
    p.publish(f"{topic}/0", "newer", 1, retain=True)
    for i in range(1, 300):
        p.publish(f"{topic}/{i}", "", retain=True)
    late = broker.connect(5)
    late.subscribe(topic + "/#")
    late.message(f"{topic}/0", "newer", retain=True)
    late.nothing()
    p.publish(f"{topic}/0", "", 1, retain=True)
    assert broker.count("retained") == kept


@both
def test_more_retained_messages_than_a_queue_holds_all_arrive(process, tmp_path_factory, v):
    """Twice the queue's bound and several times the output's, at each QoS; one of them changes on the way."""
    from client import Broker
    from node import Node, Ports
    ports = Ports(random.SystemRandom())
    node = Node(process.node.program, tmp_path_factory.mktemp("retained"), "retained",
                {"listener": [{"name": "plain", "bind": f"127.0.0.1:{ports.take()}"}],
                 "broker": {"workers": 1, "mqueue_messages_max": 500}}).start()
    broker = Broker(node)
    try:
        p = broker.connect(v)
        for i in range(1000):
            p.send(wire.publish(v, f"r/{i % 10}/{i}", i.to_bytes(2, "big") + b"x" * 5000, 1, 1, retain=True)).expect("puback")
        for qos in range(3):
            s = slow_subscriber(broker, v, ["r/0/#", "r/1/+", "r/#"], qos)
            got = []
            while True:
                batch = [m for m in s.ping() if m.type == "publish"]
                if not batch:
                    break
                for m in batch:
                    got.append(int.from_bytes(m.payload[:2], "big"))
                    if m.qos:
                        s.send(wire.ack(wire.PUBACK, m.id))
                assert all(m.retain and m.qos == min(qos, 1) for m in batch)
            assert sorted(got) == sorted([*range(0, 1000, 10), *range(1, 1000, 10), *range(1000)])
            s.disconnect()
        # A value that is replaced before its turn comes live, and the older one never after it.
        s = slow_subscriber(broker, v, "r/#", 1)
        p.send(wire.publish(v, "r/5/5", b"newer", 1, 1, retain=True)).expect("puback")
        seen = []
        while True:
            batch = [m for m in s.ping() if m.type == "publish"]
            if not batch:
                break
            for m in batch:
                if m.topic == "r/5/5":
                    seen.append(m.payload)
                s.send(wire.ack(wire.PUBACK, m.id))
        assert seen[-1] == b"newer" and len(seen) <= 2
        assert node.status()["mqtt"]["dropped_queue_full"] == 0
        # A session that stays gets what its queue holds.
        s = broker.connect(v, "stays", clean=False, props={"session_expiry": 60})
        s.subscribe("r/#", 1)
        s.drop()
        s = broker.connect(v, "stays", clean=False, props={"session_expiry": 60})
        topics = set()  # each waits for the disk before it comes: a PINGRESP may be faster
        while len(topics) < 500:
            topics.add(s.message().topic)
        broker.end()
        node.stop()
    finally:
        node.end()


# --- connections

@pytest.mark.parametrize("v", [3, 4, 5])
def test_reconnect_storm_with_one_client_id(broker, v):
    name, before = broker.name(), broker.count("takeovers")
    how = {"clean": False, "props": {"session_expiry": 60}}
    first = broker.connect(v, name, **how)
    first.subscribe(name, 1)
    storm = [broker.open(v) for _ in range(200)]
    for c in storm:
        c.send(wire.connect(v, name, **how))
    for c in [first, *storm[:-1]]:
        if c is not first:
            c.expect("connack", reason=0, present=v > 3)
        c.closed(0x8E)
    last = storm[-1]
    last.expect("connack", reason=0, present=v > 3)
    broker.connect(v).publish(name, "still subscribed", 1)
    last.message(name)
    last.nothing()
    assert broker.count("takeovers") == before + 200


def test_many_connections_drop_at_once_and_come_back(broker):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1000, hard // 4)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * count)), hard))
    topic, w = broker.name(), broker.connect(5)
    w.subscribe(topic)
    for _ in range(2):
        clients = [broker.open(5) for _ in range(count)]
        for i, c in enumerate(clients):
            c.send(wire.connect(5, f"{topic}-{i}", clean=False, props={"session_expiry": 60}))
        for c in clients:
            c.expect("connack", reason=0)
        for c in clients:
            c.drop()
        broker.connect(5).publish(topic, "meanwhile", 1)
        w.message(topic, "meanwhile")
        broker.clients = [w]
    broker.wait(lambda: broker.count("connections") <= 2, "all are gone")


@pytest.mark.parametrize("said", [b"", b"\x10", b"\x10\x20\x00\x04MQ", wire.connect(5, "half")[:-1]], ids=["nothing", "type", "name", "most"])
def test_connect_that_does_not_come(broker, said):
    c = broker.open(5).send(said)
    broker.alive()
    c.closed()


def test_half_a_packet_and_silence(broker):
    before = broker.count("keep_alive_timeouts")
    c = broker.connect(5, keep_alive=1).send(wire.publish(5, "t", "x" * 1000)[:-1])
    c.closed(0x8D)
    assert broker.count("keep_alive_timeouts") == before + 1


def test_slow_writers_of_large_packets_are_bounded(broker):
    before = rss(broker)
    clients = [broker.connect(5).send(wire.publish(5, "t", b"x" * MIB)[:512 * 1024]) for _ in range(30)]
    broker.alive()
    assert rss(broker) - before < 96 * MIB
    for c in clients:
        c.drop()
    grown(broker, before, 64 * MIB)


def slow_subscriber(broker, v, topic, qos):
    c = broker.open(v)
    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
    c.connect(broker.name())
    c.subscribe(topic, qos)
    return c


@both
def test_slow_readers_lose_qos_0_and_nobody_else_does(broker, v):
    topic, before, dropped = broker.name(), rss(broker), broker.count("dropped_slow_consumer")
    slow = [slow_subscriber(broker, v, topic, 0) for _ in range(5)]
    s, p = broker.connect(v), broker.connect(v)
    s.subscribe(topic)
    for i in range(1000):
        p.send(wire.publish(v, topic, i.to_bytes(2, "big") + b"x" * 20_000))
        if i % 10 == 9:  # the publisher does not run ahead of the one that reads
            for k in range(i - 9, i + 1):
                assert s.message(topic).payload[:2] == k.to_bytes(2, "big")
    assert rss(broker) - before < 64 * MIB
    assert broker.count("dropped_slow_consumer") > dropped
    # What comes late comes whole and in order.
    seen = [int.from_bytes(m.payload[:2], "big") for m in slow[0].ping() if m.type == "publish"]
    assert seen == sorted(set(seen)) and seen


@both
def test_slow_readers_queue_qos_1_up_to_their_bound(broker, v):
    topic, before, dropped = broker.name(), rss(broker), broker.count("dropped_queue_full")
    slow, p = slow_subscriber(broker, v, topic, 1), broker.connect(v)
    for i in range(1500):
        p.publish(topic, i.to_bytes(2, "big") + b"x" * 5000, 1)
    assert rss(broker) - before < 48 * MIB
    lost = broker.count("dropped_queue_full") - dropped
    got = []
    while True:
        batch = [m for m in slow.ping() if m.type == "publish"]
        if not batch:
            break
        for m in batch:
            got.append(int.from_bytes(m.payload[:2], "big"))
            slow.send(wire.ack(wire.PUBACK, m.id))
    assert len(got) + lost == 1500 and lost > 0
    assert got == sorted(got) and got[-1] == 1499  # the oldest in the queue went


def test_answers_that_nobody_reads_are_bounded(broker):
    before, closed = rss(broker), broker.count("slow_consumers")
    c = broker.open(5)
    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
    c.connect("deaf")
    c.socket.settimeout(2)
    try:
        for _ in range(60):
            c.socket.sendall(wire.pingreq() * 500_000)
    except OSError:
        pass
    broker.wait(lambda: broker.count("slow_consumers") == closed + 1, "closed and counted")
    grown(broker, before, 40 * MIB)
    broker.alive()


def test_one_bad_client_among_good_ones(broker):
    """Violations by the hundred while a pair talks: not one of its messages is late in its turn or lost."""
    topic, s, p = broker.name(), broker.connect(5), broker.connect(5)
    s.subscribe(topic, 2)
    before = broker.count("malformed")
    for i in range(200):
        bad = broker.connect(5, "bad")
        bad.send(b"\x30\xff\xff\xff\xff")
        p.publish(topic, str(i), 2)
        s.message(topic, str(i))
        try:
            while True:
                bad.receive()
        except Closed:
            pass
    assert broker.count("malformed") == before + 200
