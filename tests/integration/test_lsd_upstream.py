"""protocol = "lsd": our agent and relay send to servers that speak LSD's protocol."""
import time

import lsd
import mqtt
import pytest
import readers
import writers
from net import QUICK_AGENT
from test_lsd_receiver import lsd_receiver
from waiting import holds_for, patience, wait_until

MIB = 1024 * 1024


@pytest.fixture
def servers():
    made = []

    def make(**more):
        made.append(lsd.Server(**more))
        return made[-1]

    yield make
    for server in made:
        server.stop()


def edge_to(net, *servers, agent=None, **upstream):
    return net.node("edge", agent=agent or {}, routes=[{"name": "all", "to": ["next"]}],
                    upstreams={"next": {"protocol": "lsd", "addresses": [one.address for one in servers], **upstream}})


def received(server, category="clicks"):
    with server.lock:
        return list(server.lines.get(category, []))


def test_lines_arrive_in_order_over_several_connections(net, rng, servers):
    server = servers()
    edge = edge_to(net, server, agent=QUICK_AGENT)
    net.start()
    producers = [writers.Producer(edge.source_dir / f"cat{n}", 8000, 4000, rng) for n in range(4)]
    for one in producers:
        one.start()
    written = [one.finish() for one in producers]
    net.wait_drained(60)
    wait_until(lambda: server.count() == 32000, 30, lambda: str(server.count()))
    for n, lines in enumerate(written):
        readers.check_once([received(server, f"cat{n}")], lines)
    assert server.busiest > 1, "one request after the other"
    assert server.bytes_max < 4 * MIB
    edge.balanced()
    assert edge.route("all")["delivered"] == 32000 and edge.route("all")["maybe_duplicate"] == 0
    wait_until(lambda: not [path for path in edge.source_dir.rglob("*") if path.is_file()], 30, "delivered files are deleted")


def test_gzip_on_the_way(net, servers):
    server = servers()
    edge = edge_to(net, server, compress="gzip")
    net.start()
    writers.append_lines(edge.source_dir / "clicks/a.log", "a", 0, 5000)
    net.wait_drained()
    readers.check_once([received(server)], {"a": 5000})
    assert server.bytes_max < 5000 * writers.LINE_BYTES / 4


@pytest.mark.parametrize("wrong", ["error", "error with code 0", "close", "too few", "too many", "another", "garbage"])
def test_whatever_is_not_the_answer_is_a_failure_and_sent_again(net, servers, wrong):
    answers = {
        "error": lambda tokens: lsd.error("Failed to write results"),
        "error with code 0": lambda tokens: lsd.error("", code=0),
        "close": lambda tokens: "close",
        "too few": lambda tokens: lsd.offsets(tokens[:-1]),
        "too many": lambda tokens: lsd.offsets(tokens + tokens[:1]),
        "another": lambda tokens: lsd.offsets(tokens[:-1] + [(1, 1)]),
        "garbage": lambda tokens: b"\xff" * 64,
    }
    times = [3]

    def answer(events):
        if times[0] == 0:
            return None
        times[0] -= 1
        return answers[wrong]([(inode, offset) for _, inode, offset, _ in events])

    server = servers(wrong=answer, tick=0)
    edge = edge_to(net, server)
    net.start()
    writers.append_lines(edge.source_dir / "clicks/a.log", "a", 0, 100)
    net.wait_drained()
    readers.check_once([received(server)], {"a": 100})
    assert len(server.requests) >= 4
    row = edge.route("all")
    assert row["delivered"] == 100 and row["maybe_duplicate"] == 100, "counted once, however often it was tried"
    tokens = [[(inode, offset) for _, inode, offset, _ in one] for one in server.requests]
    assert tokens[0] == tokens[3], "the same events have the same tokens"
    edge.balanced()


def test_a_category_that_is_refused_delays_no_other(net, servers):
    refuse = [True]

    def answer(events):
        bad = refuse[0] and any(category == "poison" for category, *_ in events)
        return lsd.error("Failed to write results") if bad else None

    server = servers(wrong=answer, tick=0)
    edge = edge_to(net, server)
    net.start()
    for name in ("poison", "good"):
        writers.append_lines(edge.source_dir / f"{name}/a.log", "a", 0, 50)
    wait_until(lambda: len(received(server, "good")) == 50, 10)
    for n in range(1, 6):
        writers.append_lines(edge.source_dir / "good/a.log", "a", 50 * n, 50)
        wait_until(lambda: len(received(server, "good")) == 50 * (n + 1), 5, "a poisoned category delays another")
    assert received(server, "poison") == []
    tried = len([one for one in server.requests if any(category == "poison" for category, *_ in one)])
    assert tried < 40, "it backs off"
    refuse[0] = False
    wait_until(lambda: len(received(server, "poison")) == 50, 20)
    net.wait_drained()
    readers.check_once([received(server, "good")], {"a": 300})


def test_a_dead_receiver_delays_nothing_and_is_used_again_when_it_is_back(net, servers):
    one, two = servers(tick=0), servers(tick=0)
    edge = edge_to(net, one, two)
    net.start()
    rounds = 0

    def write():
        nonlocal rounds
        for n in range(20):
            writers.append_lines(edge.source_dir / f"c{n}/a.log", "a", 10 * rounds, 10)
        rounds += 1
        wait_until(lambda: one.count() + two.count() >= 200 * rounds, 10)
        return one.count() and two.count()

    wait_until(write, 10, "both are used")  # whoever was connected first may have got all there was
    port, had = one.port, two.count()
    one.stop()
    write()
    back = servers(port=port, tick=0)
    wait_until(lambda: back.connections > 0, 12)

    def used():
        for n in range(20):
            writers.append_lines(edge.source_dir / f"more{n}/a.log", "a", 0, 1)
        time.sleep(0.2)
        return back.count() > 0

    wait_until(used, 10, "the receiver that came back is used again")
    assert two.count() > had
    edge.balanced()


def test_a_frozen_receiver_times_out_and_its_events_go_elsewhere(net, servers):
    asleep = [True]
    asked = []

    def answer(events):
        asked.append(events)
        while asleep[0]:
            time.sleep(0.05)
        return "close"

    stuck, good = servers(wrong=answer, tick=0), servers(tick=0)
    edge = edge_to(net, stuck, good, request_timeout="1s")
    net.start()
    categories = 0
    while categories < 8 or not asked:  # until the frozen one has some of it, too
        assert categories < 200
        writers.append_lines(edge.source_dir / f"c{categories}/a.log", "a", 0, 10)
        categories += 1
        time.sleep(0.02)
    try:
        wait_until(lambda: good.count() >= categories * 10, 30)
    finally:
        asleep[0] = False
    net.wait_drained()
    assert edge.route("all")["maybe_duplicate"] > 0
    edge.balanced()


def test_restarts_repeat_nothing_and_a_kill_only_what_was_in_flight(net, rng, servers):
    server = servers(tick=0.02)
    edge = edge_to(net, server)
    net.start()
    producer = writers.Producer(edge.source_dir / "clicks", 20_000, 5_000, rng)
    producer.start()
    for _ in range(4):
        time.sleep(0.4)
        edge.restart()
    written = producer.finish()
    net.wait_drained(60)
    got = received(server)
    assert len(set(got)) == sum(written.values()), "nothing is lost"
    if patience(1) < 3:  # an orderly end waits a second for answers, which the server of a busy machine may not give
        readers.check_once([got], written)
        assert edge.route("all")["maybe_duplicate"] == 0
    assert len(got) - len(set(got)) <= edge.route("all")["maybe_duplicate"]
    server.lines.clear()
    producer = writers.Producer(edge.source_dir / "kills", 20_000, 5_000, rng)
    producer.start()
    for _ in range(4):
        time.sleep(0.4)
        edge.kill()
        edge.start()
    written = producer.finish()
    net.wait_drained(60)
    got = received(server, "kills")
    assert len(set(got)) == sum(written.values()), "nothing is lost"
    twice = len(got) - len(set(got))
    row = edge.route("all")
    assert twice <= row["maybe_duplicate"], (twice, row)
    assert twice < patience(4 * 5_000 * 0.2), f"{twice} lines twice: more than what was in flight"
    edge.balanced()


def test_our_two_ends_and_kills_of_each(net, rng):
    far = lsd_receiver(net)
    edge = net.node("edge", agent={}, routes=[{"name": "all", "to": ["next"]}],
                    upstreams={"next": {"protocol": "lsd", "addresses": [f"127.0.0.1:{far.lsd_port}"]}})
    net.start()
    producer = writers.Producer(edge.source_dir / "clicks", 20_000, 4_000, rng)
    producer.start()
    for victim in (far, edge, far, edge):
        time.sleep(0.5)
        victim.kill()
        time.sleep(0.2)
        victim.start()
    written = producer.finish()
    net.wait_drained(60)
    got = readers.lines(far.events_dir, "clicks")
    assert len(set(got)) == sum(written.values())
    assert len(got) - len(set(got)) <= edge.route("all")["maybe_duplicate"]
    for node in net.nodes:
        node.balanced()


def test_a_relay_takes_from_lsd_clients_and_passes_on_to_everything(net, servers):
    server = servers(tick=0)
    far = net.receiver("far")
    relay = net.node("relay", receiver={"link": None, "lsd": f"127.0.0.1:{net.ports.take()}"}, listener=True,
                     upstreams={"old": {"protocol": "lsd", "addresses": [server.address]}, "far": [far.link]},
                     routes=[{"name": "all", "to": ["old", "far", "files", {"mqtt": "events/{category}"}]},
                             {"name": "taps", "topics": ["pos/#"], "category": "pos", "to": ["old"]}])
    net.start()
    subscriber = mqtt.Client(relay.mqtt_port)
    subscriber.subscribe("events/#", 1)
    port = int(relay.tables["receiver"]["lsd"].rsplit(":", 1)[1])
    client = lsd.Client(port)
    lines = [b"line %d" % n for n in range(1000)]
    client.accepted(lsd.event("clicks", 1, 1, [one + b"\n" for one in lines]), lsd.event("views", 1, 2, [b"v\n"]))
    publisher = mqtt.Client(relay.mqtt_port)
    publisher.publish("pos/1", b"two\nlines \\ and", 1)
    wait_until(lambda: received(server, "pos") == [b"two\\nlines \\\\ and"], 20)
    net.wait_drained()
    wait_until(lambda: received(server) == lines and received(server, "views") == [b"v"], 20)
    for node in (far, relay):
        assert readers.lines(node.events_dir, "clicks") == lines
        assert readers.lines(node.events_dir, "views") == [b"v"]
    relay.balanced()
    relay.restart()
    holds_for(lambda: server.count() == 1002, 1)


def test_a_spool_waits_while_the_receiver_is_down(net, servers):
    server = servers(tick=0)
    port = server.port
    server.stop()
    relay = net.node("relay", receiver={"link": None, "lsd": f"127.0.0.1:{net.ports.take()}", "dir": None},
                     upstreams={"old": {"protocol": "lsd", "addresses": [f"127.0.0.1:{port}"]}},
                     routes=[{"name": "all", "to": ["old"]}])
    net.start()
    client = lsd.Client(int(relay.tables["receiver"]["lsd"].rsplit(":", 1)[1]))
    for n in range(200):
        client.accepted(lsd.event(f"c{n % 5}", 1, n, [b"%d\n" % n] * 10))
    wait_until(lambda: any(a["code"] == "upstream_unreachable" for a in relay.status()["alarms"]), 10)
    relay.kill()
    relay.start()
    back = servers(port=port, tick=0)
    net.wait_drained()
    assert back.count() == 2000
    assert relay.route("all")["maybe_duplicate"] == 0, "nothing had left"
