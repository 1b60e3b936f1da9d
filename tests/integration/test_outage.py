"""A destination that is away, slow or frozen, and comes back."""
import itertools
import socket
import subprocess
import threading
import time

import readers
import writers
from waiting import holds_for, patience, wait_until

SEGMENT = 64 * 1024 * 1024
RSS_MAX = 64 * 1024 * 1024


def test_a_receiver_that_is_down_under_load(net, rng, full):
    """Down for a minute (short form: some seconds): nothing lost, drained, the relay's disk back to at most one segment, and
    no process takes more than 64 MiB."""
    far = net.receiver("far")
    relay = net.relay("relay", [far])
    edge = net.edge("edge", [relay])
    net.start()
    down = 60 if full else 10
    total = 10_000 * (down + 5)
    producer = writers.Producer(edge.source_dir / "clicks", total, 10_000, rng)
    producer.start()
    wait_until(lambda: far.total("delivered") > 1000, 10)
    far.kill()
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > down, down + 10)
    assert relay.route("all")["queued"] > 0
    assert relay.route("all")["oldest_unacked_seconds"] > down / 2
    far.start()
    written = producer.finish()
    net.wait_drained(120, written=written)
    readers.check_once([readers.lines(far.events_dir, "clicks")], written)
    wait_until(lambda: relay.spool_bytes() <= SEGMENT + 65536, 20, lambda: f"the spool keeps {relay.spool_bytes()} bytes")
    for node in net.nodes:
        node.balanced()
        assert node.note_rss() < RSS_MAX, f"{node.name} took {node.peak_rss} bytes"
    net.stop()


def test_s4_queued_for_an_unreachable_receiver_over_a_restart(net):
    """S4, first half: 50 events wait, a clean restart of the sender, the receiver comes: 50."""
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    edge.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 50)
    wait_until(edge.waiting, 10)
    edge.restart()
    far.start()
    wait_until(lambda: far.status_or_none() and far.total("delivered") == 50, 20)
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 50})
    net.stop()


def test_s4_a_frozen_receiver_whose_kernel_took_the_bytes(net):
    """S4, second half: SIGSTOP, so that the kernel takes the bytes; then a reset: the same 50 again, once."""
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1)
    net.wait_drained()
    far.freeze()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 1, 50)
    wait_until(edge.waiting, 10)
    wait_until(lambda: edge.status()["upstreams"][0]["receivers"][0]["in_flight_bytes"] > 0, 10)
    far.kill()
    far.start()
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 51})
    assert len(readers.lines(far.events_dir, "clicks")) == 51
    net.stop()


def test_a_frozen_receiver_that_thaws(net):
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    net.start()
    far.freeze()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 5000)
    wait_until(edge.waiting, 10)
    holds_for(lambda: edge.running() and edge.status_or_none() is not None, 3)
    far.thaw()
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 5000})
    net.stop()


class Slammer:
    """Listens where a receiver should be and drops each connection at once; notes when they came."""

    def __init__(self, port):
        self.moments = []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.moments.append(time.monotonic())
            connection.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


def test_s7_the_default_configuration_waits_as_long_as_it_takes(net, full):
    """S7: a receiver that drops every connection: back-off grows to its cap, with jitter; then nothing is lost. The short
    form sees the growth, the long one the cap."""
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    slammer = Slammer(far.link_port)
    edge.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1000)
    wait_until(edge.waiting, 10)
    seconds = 120 if full else 15
    holds_for(edge.running, seconds)
    gaps = [later - one for one, later in itertools.pairwise(slammer.moments)]
    slammer.close()
    assert 4 <= len(gaps) <= seconds, f"{len(gaps)} attempts in {seconds} s"
    assert gaps[0] < 1 and max(gaps) > 4 * min(gaps), gaps
    assert max(gaps) < 13, gaps
    if full:
        capped = gaps[-6:]
        assert min(capped) > 4 and len({round(gap, 1) for gap in capped}) > 1, f"no cap or no jitter: {gaps}"
    far.start()
    wait_until(lambda: far.total("delivered") == 1000, 20)
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 1000})
    assert edge.route("all")["dropped"] == 0
    net.stop()


def test_s8_one_event_is_refused_for_good(net):
    """S8: 100 events in one stream, number 50 of a category that the receiver has no room for: 99 arrive in order, one is a
    dead letter with its reason, nothing is left."""
    far = net.receiver("far", categories_max=1)
    relay = net.relay("relay", [far])
    edge = net.edge("edge", [relay])
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 49)
    net.wait_drained()
    writers.append_lines(edge.source_dir / "surplus/1.log", "r", 0, 1)
    wait_until(lambda: relay.route("all")["dead_lettered"] == 1, 10, lambda: relay.status())
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 49, 50)
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 99})
    assert not (far.events_dir / "surplus").exists()
    row = relay.route("all")
    assert (row["in"], row["delivered"], row["dead_lettered"], row["queued"]) == (100, 99, 1, 0), row
    relay.wait_log("dead_letter")
    relay.restart()
    row = relay.route("all")
    assert (row["in"], row["delivered"], row["dead_lettered"]) == (100, 99, 1), row
    net.stop()


def test_s8_refused_and_the_acknowledgement_lost(net):
    """The receiver dies as soon as it refused (amendment 14): the dead letter is there all the same, and once."""
    far = net.receiver("far", categories_max=1)
    edge = net.edge("edge", [far])
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 10)
    net.wait_drained()
    for n in range(5):
        writers.append_lines(edge.source_dir / "surplus/1.log", "r", n, 1)
        time.sleep(0.01)
        far.kill()
        far.start()
    net.wait_drained()
    row = edge.route("all")
    assert row["dead_lettered"] == 5 and row["delivered"] == 10, row
    net.stop()


def test_s10_the_sender_restarts_five_times_before_a_blocked_receiver(net):
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    net.start()
    far.freeze()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1000)
    wait_until(edge.waiting, 10)
    for n in range(5):
        if n % 2:
            edge.kill()
            edge.start()
        else:
            edge.restart()
    far.thaw()
    net.wait_drained()
    received = readers.lines(far.events_dir, "clicks")
    readers.check_once([received], {"s": 1000})
    assert len(received) == 1000
    net.stop()


def test_l4_used_again_within_two_seconds_of_its_return(net):
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 10)
    net.wait_drained()
    far.kill()
    begun = time.monotonic()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 10, 10)
    wait_until(lambda: time.monotonic() - begun > 1.2, 5)
    far.start()
    ready = time.monotonic()
    wait_until(lambda: len(readers.lines(far.events_dir, "clicks")) == 20, 10)
    assert time.monotonic() - ready < patience(2)
    net.stop()


def test_one_dead_target_does_not_delay_another(net):
    """Two targets of one route (S9 in short): files go on at once, the dead one resumes from its own place."""
    far, dead = net.receiver("far"), net.receiver("dead")
    edge = net.node("edge", agent={}, upstreams={"far": [far.link], "dead": [dead.link]},
                    routes=[{"name": "all", "to": ["far", "dead"]}])
    far.start()
    edge.start()
    for n in range(10):
        writers.append_lines(edge.source_dir / "clicks/1.log", "s", 100 * n, 100)
        wait_until(lambda n=n: len(readers.lines(far.events_dir, "clicks")) == 100 * (n + 1), 10)
    # A line is in the file before its acknowledgement is here.
    wait_until(lambda: edge.route("all", "far")["queued"] == 0, 10)
    dead_row, far_row = edge.route("all", "dead"), edge.route("all", "far")
    assert dead_row["queued"] == 1000 or dead_row["unread_bytes"] == 1000 * writers.LINE_BYTES, dead_row
    assert far_row["queued"] == 0 and far_row["unread_bytes"] == 0, far_row
    dead.start()
    net.wait_drained()
    for node in (far, dead):
        readers.check_once([readers.lines(node.events_dir, "clicks")], {"s": 1000})
    net.stop()


def test_sigterm_under_load_and_with_a_dead_upstream(net, rng):
    """stop() fails when an orderly stop takes more than ten seconds."""
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    edge.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 20_000)
    edge.stop()
    net.start()
    producer = writers.Producer(edge.source_dir / "load", 30_000, 15_000, rng)
    producer.start()
    wait_until(lambda: far.total("delivered") > 5000, 10)
    far.freeze()
    edge.stop()
    far.thaw()
    far.stop()
    net.start()
    written = producer.finish()
    net.wait_drained(written=written)
    readers.check_once([readers.lines(far.events_dir, "load")], written)
    net.stop()


def test_far_acknowledgement_releases_the_publisher_last(net):
    """ack = "far": the PUBACK comes when the far end has it on disk, and not before."""
    far = net.receiver("far")
    relay = net.relay("relay", [far])
    edge = net.edge("edge", [relay], listener=True, routes=[
        {"name": "all", "to": ["next"]}, {"name": "pay", "topics": ["pay/#"], "to": ["next"], "ack": "far"}])
    relay.start()
    edge.start()
    publish = subprocess.Popen(["mosquitto_pub", "-p", str(edge.mqtt_port), "-t", "pay/1", "-m", "ten", "-q", "1"])
    try:
        wait_until(lambda: relay.total("queued") == 1, 10)
        holds_for(lambda: publish.poll() is None, 1, "the publisher is not released")
        far.start()
        assert publish.wait(patience(10)) == 0
    finally:
        publish.kill()
        publish.wait()
    assert readers.lines(far.events_dir, "pay") == [b"ten"]
    net.stop()
