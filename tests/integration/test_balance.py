"""Several receivers behind one upstream: case L3, hashing by key over real processes, several connections, a rate."""
import contextlib
import itertools
import pathlib
import socket
import sys
import threading
import time

import pytest

import link
import readers
import writers
from proxy import build_folder
from waiting import patience, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from link_crowd import Crowd  # noqa: E402


def load_binary():
    return build_folder() / "tests/link_load"


def key_line(key, number, size=120):
    head = b"%s:%d " % (key.encode(), number)
    return head + b"x" * (size - len(head) - 1) + b"\n"


def append_keys(path, keys, first, count):
    writers.append(path, b"".join(key_line(key, n) for n in range(first, first + count) for key in keys))


def keys_at(node, category="clicks"):
    """Key -> its numbers in the order of the receiver's files."""
    out = {}
    for text in readers.lines(node.events_dir, category):
        key, rest = text.split(b":", 1)
        out.setdefault(key.decode(), []).append(int(rest.split(b" ", 1)[0]))
    return out


def test_l3_one_of_three_receivers_is_killed_with_batches_in_flight(net, rng, full):
    """L3: 600,000 lines (short form: 60,000), the receiver killed while its disk is busy: none lost, none twice in one
    receiver's files, and twice over all no more than were counted."""
    fars = [net.receiver(f"far{n}") for n in range(3)]
    edge = net.edge("edge", fars, upstream={"resume_timeout": "1s"})
    net.start()
    total = 600_000 if full else 60_000
    producer = writers.Producer(edge.source_dir / "clicks", total, 200_000, rng, 120)
    producer.start()
    wait_until(lambda: fars[1].total("delivered") > total // 30, 60)
    fars[1].kill()
    written = producer.finish()
    wait_until(lambda: edge.route("all")["delivered"] >= total, 120, lambda: edge.status())
    fars[1].start()
    net.wait_drained(60)
    seen, copies = set(), 0
    for far in fars:
        mine = readers.lines(far.events_dir, "clicks")
        heads = {line[:15] for line in mine}
        assert len(heads) == len(mine), f"{far.name} has lines twice"
        copies += len(heads & seen)
        seen |= heads
    assert len(seen) == sum(written.values()) == total
    assert copies <= edge.route("all")["maybe_duplicate"]
    net.stop()


def test_a_receiver_that_returns_is_used_again(net):
    """L4 with others at work: it takes its share of what is written behind its return, within two seconds."""
    fars = [net.receiver(f"far{n}") for n in range(2)]
    edge = net.edge("edge", fars, upstream={"resume_timeout": "500ms"})
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 100)
    net.wait_drained()
    fars[0].kill()
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 1.2, 5)
    fars[0].start()
    ready, number = time.monotonic(), 100

    def used():
        nonlocal number
        writers.append_lines(edge.source_dir / "clicks/1.log", "s", number, 10)
        number += 10
        return fars[0].status()["receiver"]["events"] > 0 and edge.status()["upstreams"][0]["receivers"][0]["state"] == "ready"
    wait_until(used, 10)
    assert time.monotonic() - ready < patience(2)
    net.wait_drained()
    net.stop()


def test_a_hash_keeps_each_keys_lines_together_and_in_order_over_a_loss(net, rng):
    """Interleaved lines of 40 keys in one file, three receivers: each key at one of them, in order. One is killed: its keys
    move and no others do; it comes back: they come back. Every key's lines, put together in that order, are in order."""
    keys = [f"user{n}" for n in range(40)]
    fars = [net.receiver(f"far{n}") for n in range(3)]
    edge = net.edge("edge", fars, upstream={"balance": {"hash": {"prefix": ":"}}, "resume_timeout": "1s"})
    net.start()
    source = edge.source_dir / "clicks/1.log"
    append_keys(source, keys, 0, 50)
    net.wait_drained()
    homes = [keys_at(far) for far in fars]
    for key in keys:
        assert [home[key] for home in homes if key in home] == [list(range(50))], key
    assert all(homes), "every receiver owns some of 40 keys"
    lost = rng.randrange(3)
    moved = set(homes[lost])
    fars[lost].kill()
    append_keys(source, keys, 50, 50)
    wait_until(edge.idle, 30)
    for n, far in enumerate(fars):
        if n == lost:
            continue
        now = keys_at(far)
        assert set(homes[n]) <= set(now) <= set(homes[n]) | moved
        for key in homes[n]:
            assert now[key] == list(range(100)), key
        for key in set(now) & moved:
            assert now[key] == list(range(50, 100)), key
    fars[lost].start()
    wait_until(lambda: edge.status()["upstreams"][0]["receivers"][lost]["state"] == "ready", 10)
    append_keys(source, keys, 100, 50)
    net.wait_drained()
    back = keys_at(fars[lost])
    assert set(back) == moved
    for key in moved:
        assert back[key] == list(range(50)) + list(range(100, 150)), key
    net.stop()


def test_a_hash_of_messages_by_topic_level_through_a_spool(net):
    """A relay's spool: one stream, each record to the owner of its key."""
    fars = [net.receiver(f"far{n}") for n in range(3)]
    relay = net.relay("relay", fars, upstream={"balance": {"hash": {"regex": "id=(\\d+)"}}})
    edge = net.edge("edge", [relay])
    net.start()
    for n in range(30):
        writers.append(edge.source_dir / "clicks/1.log", b"".join(b"id=%d n=%d\n" % (key, n) for key in range(20)))
    net.wait_drained()
    homes = [readers.lines(far.events_dir, "clicks") for far in fars]
    assert sum(map(len, homes)) == 600
    for key in range(20):
        mine = [[line for line in home if line.startswith(b"id=%d " % key)] for home in homes]
        assert [m for m in mine if m] == [[b"id=%d n=%d" % (key, n) for n in range(30)]], key
    net.stop()


def test_several_connections_carry_a_stream_and_a_kill_doubles_nothing(net, rng):
    """connections = 4: each line once, over kills of the sender and of the receiver in the middle."""
    far = net.receiver("far")
    edge = net.edge("edge", [far], upstream={"connections": 4})
    net.start()
    producer = writers.Producer(edge.source_dir / "clicks", 60_000, 30_000, rng)
    producer.start()
    wait_until(lambda: far.total("delivered") > 5000, 20)
    assert far.status()["receiver"]["connections"] == 4
    edge.kill()
    edge.start()
    wait_until(lambda: far.total("delivered") > 20_000, 20)
    far.kill()
    far.start()
    written = producer.finish()
    net.wait_drained(60, written=written)
    lines = readers.lines(far.events_dir, "clicks")
    assert len(lines) == len(set(lines)) == sum(written.values())
    assert edge.route("all")["maybe_duplicate"] == 0
    net.stop()


def test_a_rate_is_kept_and_a_schedule_can_stop(net):
    far = net.receiver("far")
    edge = net.edge("edge", [far], upstream={"rate": "100kB/s", "compress": "none"})
    off = net.edge("off", [far], upstream={"rate": {"00:00-12:00": "off", "12:00-24:00": "off"}})
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1000)
    writers.append_lines(off.source_dir / "quiet/1.log", "q", 0, 10)
    begun = time.monotonic()
    wait_until(lambda: far.total("delivered") == 1000, 30)
    assert 2.5 < time.monotonic() - begun < patience(8)
    assert off.waiting() and not (far.events_dir / "quiet").exists()
    net.stop()


@pytest.mark.skipif(not load_binary().exists(), reason="link_load is not built")
def test_l2_two_thousand_agents_after_a_restart(net, full):
    """L2: the receiver is restarted: at most 200 connects in any second, all back within 60 s. The agents are sessions of a
    load that uses the product's own sender. The short form has 300 of them."""
    agents = 2000 if full else 300
    far = net.receiver("far")
    far.start()
    crowd = Crowd(load_binary(), far.link, agents=agents)
    try:
        wait_until(lambda: crowd["ready"] == agents, 60, lambda: crowd.now)
        far.kill()
        wait_until(lambda: crowd["ready"] == 0, 30)
        far.start()
        begun, accepted = time.monotonic(), []
        while crowd["ready"] < agents:
            status = far.status_or_none()
            if status:
                accepted.append((time.monotonic(), status["receiver"]["accepted"]))
            assert time.monotonic() - begun < patience(60), crowd.now
            time.sleep(0.05)
        # Told from samples: what came between two of them, at most a second apart, with what one sample may be late.
        for index, (when, count) in enumerate(accepted):
            before = [c for at, c in accepted[:index] if at > when - 1] or [count]
            assert count - before[0] <= 200, f"{count - before[0]} connects in a second"
    finally:
        crowd.end()
    net.stop()


def test_l2_who_is_dropped_behind_hello_backs_off(net):
    """A session that is dropped right after HELLO is tried again ever more rarely."""
    port = net.ports.take()
    edge = net.edge("edge", [], upstream={"addresses": [f"127.0.0.1:{port}"]})
    moments = []
    listener = socket.create_server(("127.0.0.1", port))

    def slam():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            moments.append(time.monotonic())
            connection.settimeout(5)
            with contextlib.suppress(OSError):
                connection.recv(4096)  # its HELLO
                connection.sendall(link.hello(name="far", target=""))
                connection.recv(4096)  # RESUME
            connection.close()
    thread = threading.Thread(target=slam, daemon=True)
    thread.start()
    edge.start()
    wait_until(lambda: len(moments) >= 8, 60)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)
    gaps = [later - one for one, later in itertools.pairwise(moments[:8])]
    assert max(gaps[5:]) > 3 * gaps[0], gaps
    net.stop()
