"""The real LSD on the other side, both ways. Skipped unless $PH_LSD names its binary (tests/integration/lsd_daemon.py says
how it is made)."""
import time

import lsd_daemon
import pytest
import readers
import test_migrate
import writers
from net import QUICK_AGENT
from test_lsd_receiver import lsd_receiver
from waiting import wait_until

LINES = 40_000


@pytest.fixture
def daemon(tmp_path, net):
    if not lsd_daemon.binary():
        pytest.skip("PH_LSD does not name an LSD binary")
    made = []

    def make(name, **parts):
        made.append(lsd_daemon.Daemon(tmp_path / name, net.ports, **parts))
        return made[-1].start()

    yield make
    for one in made:
        print(f"--- last of the log of {one.folder.name}\n{one.log()[-1500:]}")
        one.end()


def produced(folder, rng, rate=20_000):
    producer = writers.Producer(folder, LINES, rate, rng)
    producer.start()
    return producer


def check(got, written):
    """Each line exactly once, in order."""
    readers.check_once([got], written)


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_our_agent_to_a_real_server(net, rng, daemon, compress):
    server = daemon("server", server={})
    edge = net.node("edge", agent=QUICK_AGENT, routes=[{"name": "all", "to": ["next"]}],
                    upstreams={"next": {"protocol": "lsd", "addresses": [server.address], "compress": compress}})
    net.start()
    written = {}
    producers = [produced(edge.source_dir / f"cat{n}", rng) for n in range(3)]
    for n, one in enumerate(producers):
        written[n] = one.finish()
    net.wait_drained(60)
    for n in range(3):
        check(readers.lines(server.target, f"cat{n}"), written[n])
    row = edge.route("all")
    assert row["delivered"] == 3 * LINES and row["maybe_duplicate"] == 0


def test_a_real_client_to_our_receiver(net, rng, daemon):
    far = lsd_receiver(net)
    net.start()
    client = daemon("client", client={"to": [f"127.0.0.1:{far.lsd_port}"]})
    producers = [produced(client.source / f"cat{n}", rng) for n in range(3)]
    written = [one.finish() for one in producers]
    wait_until(lambda: far.route("all")["delivered"] >= 3 * LINES, 60, lambda: str(far.route("all")))
    for n in range(3):
        check(readers.lines(far.events_dir, f"cat{n}"), written[n])
    assert far.status()["receiver"]["lsd_refused"] == 0
    wait_until(lambda: all(entry["Off"] for entry in client.offsets()), 10)


def test_a_real_client_with_gzip_and_a_tail_without_newline(net, daemon):
    far = lsd_receiver(net)
    net.start()
    client = daemon("client", client={"to": [f"127.0.0.1:{far.lsd_port}"], "gzip": True})
    writers.append_lines(client.source / "clicks/a", "a", 0, 5000)
    wait_until(lambda: far.route("all")["delivered"] >= 5000, 30)
    check(readers.lines(far.events_dir, "clicks"), {"a": 5000})


def test_our_relay_between_a_real_client_and_a_real_server(net, rng, daemon):
    server = daemon("server", server={})
    relay = net.node("relay", receiver={"link": None, "lsd": f"127.0.0.1:{net.ports.take()}", "dir": None},
                     upstreams={"old": {"protocol": "lsd", "addresses": [server.address]}},
                     routes=[{"name": "all", "to": ["old"]}])
    net.start()
    client = daemon("client", client={"to": [relay.tables["receiver"]["lsd"]]})
    producer = produced(client.source / "clicks", rng)
    written = producer.finish()
    wait_until(lambda: len(readers.lines(server.target, "clicks")) >= LINES, 60)
    net.wait_drained()
    check(readers.lines(server.target, "clicks"), written)


def test_a_real_server_dies_and_comes_back(net, rng, daemon):
    server = daemon("server", server={})
    edge = net.node("edge", agent=QUICK_AGENT, routes=[{"name": "all", "to": ["next"]}],
                    upstreams={"next": {"protocol": "lsd", "addresses": [server.address]}})
    net.start()
    producer = produced(edge.source_dir / "clicks", rng, 10_000)
    for _ in range(3):
        time.sleep(0.7)
        server.kill()
        time.sleep(0.3)
        server.start()
    written = producer.finish()
    net.wait_drained(60)
    got = readers.lines(server.target, "clicks")
    assert len(set(got)) == sum(written.values()), "nothing is lost"
    assert len(got) - len(set(got)) <= edge.route("all")["maybe_duplicate"]


def test_our_receiver_dies_under_a_real_client(net, rng, daemon):
    far = lsd_receiver(net)
    net.start()
    client = daemon("client", client={"to": [f"127.0.0.1:{far.lsd_port}"]})
    producer = produced(client.source / "clicks", rng, 10_000)
    time.sleep(1)
    far.kill()
    far.start()
    written = producer.finish()
    # It waits a minute after any blip.
    wait_until(lambda: len(set(readers.lines(far.events_dir, "clicks"))) >= LINES, 150)
    got = readers.lines(far.events_dir, "clicks")
    assert len(set(got)) == sum(written.values())


def test_moving_from_a_real_client_loses_and_repeats_nothing(net, rng, daemon):
    far = lsd_receiver(net)
    net.start()
    client = daemon("client", client={"to": [f"127.0.0.1:{far.lsd_port}"]})
    producer = writers.Producer(client.source / "clicks", LINES, 8_000, rng)
    producer.start()
    writers.append_lines(client.source / "views.log", "v", 0, 5000)
    time.sleep(2)
    client.stop()  # the producers go on
    assert client.offsets()
    before = far.route("all")["delivered"]
    assert 0 < before < LINES + 5000
    edge, taken = test_migrate.moved(net, client.config, client.offsets_path)
    assert taken.returncode == 0, taken.stderr
    print(taken.stdout)
    edge.start()
    written = {**producer.finish(), "v": 5000}
    writers.append_lines(client.source / "views.log", "v", 5000, 1000)
    written["v"] = 6000
    net.wait_drained(60)
    wait_until(lambda: far.route("all")["delivered"] >= LINES + 6000, 60)
    check(readers.lines(far.events_dir, "clicks"), {k: n for k, n in written.items() if k != "v"})
    check(readers.lines(far.events_dir, "views"), {"v": 6000})
    assert far.route("all")["delivered"] == LINES + 6000
