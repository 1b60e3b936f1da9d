"""Thousands of new categories at once: everybody's acknowledgements wait for the one group commit."""
import threading
import time

import link
from waiting import patience, wait_until

CATEGORIES = 3000


class Steady(threading.Thread):
    """One line after another to one category, each sent when the one before is acknowledged; how long each took."""

    def __init__(self, port):
        super().__init__()
        self.peer = link.Peer.resumed(port, seconds=60)
        self.ending = threading.Event()
        self.took = []
        self.at = 0

    def run(self):
        while not self.ending.is_set():
            payload = b"line %07d\n" % len(self.took)
            begun = time.monotonic()
            self.peer.send_events(link.events("steady", payload, self.at, self.peer.node))
            self.at += len(payload)
            while link.read_ack(self.peer.wait_for(link.ACK)[1])["accepted"][-1][1] < self.at:
                pass
            self.took.append(time.monotonic() - begun)
            self.ending.wait(0.02)

    def end(self):
        self.ending.set()
        self.join()
        self.peer.close()


def send_new_categories(port, prefix):
    """One line to each of CATEGORIES new ones; seconds until all are acknowledged."""
    peer = link.Peer.resumed(port, seconds=120)
    payload = b"first line\n"
    frames = [link.events(f"{prefix}{n:05}", payload, n * len(payload), peer.node) for n in range(CATEGORIES)]
    begun = time.monotonic()
    peer.send_events(*frames)
    while link.read_ack(peer.wait_for(link.ACK)[1])["accepted"][-1][1] < CATEGORIES * len(payload):
        pass
    took = time.monotonic() - begun
    peer.close()
    return took


def run(net, **receiver):
    far = net.receiver("far", **receiver)
    far.start()
    steady = Steady(far.link_port)
    steady.start()
    wait_until(lambda: len(steady.took) > 20)
    took = {}
    for prefix in ("a", "b"):
        took[prefix] = send_new_categories(far.link_port, prefix)
    quiet = len(steady.took)
    wait_until(lambda: len(steady.took) > quiet + 20, 60)
    steady.end()
    print(f"{CATEGORIES} new categories took {took}; acknowledgements of another stream meanwhile: "
          f"{len(steady.took)}, the slowest {max(steady.took):.2f} s")
    return far, steady, max(steady.took)


def test_new_categories_delay_nobody_for_long(net):
    far, steady, slowest = run(net)
    assert slowest < 15  # one sync for each new file took 24 s here; with one for all, what is left is the machine's load
    first_lines = [f.read_bytes() for f in far.events_dir.glob("a*/a*-20*")]
    assert first_lines.count(b"first line\n") == CATEGORIES
    assert all((far.events_dir / f"b{n:05}" / f"b{n:05}_current").exists() for n in range(0, CATEGORIES, 100))
    # The same after kill -9, with thousands of categories to recover.
    far.kill()
    far.start()
    peer = link.Peer(far.link_port, seconds=60)
    assert peer.greet()[0] == link.HELLO
    begun = time.monotonic()
    peer.resume(1)
    peer.send(link.events("after", b"restart\n", 0, peer.node))
    peer.wait_for(link.ACK)
    assert time.monotonic() - begun < patience(5)
    peer.close()
    net.stop()
    lines = b"".join(f.read_bytes() for f in sorted(far.events_dir.glob("steady/steady-20*")))
    assert lines.count(b"\n") == len(steady.took)


def test_new_plain_logs_delay_nobody_for_long(net):
    far, steady, slowest = run(net, category=[{"match": ["*"], "mode": "plain"}])
    assert slowest < 15  # one sync for each new file took 24 s here; with one for all, what is left is the machine's load
    wait_until(lambda: (far.events_dir / "steady").read_bytes().count(b"\n") == len(steady.took), 30)
    net.stop()
    assert all((far.events_dir / f"b{n:05}").read_bytes() == b"first line\n" for n in range(CATEGORIES))
