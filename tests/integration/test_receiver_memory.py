"""A receiver's memory has one bound for all its senders, and nobody starves behind it (core/link/docs/credit.md)."""
import pathlib
import resource
import struct
import sys
import time

import link
import pytest
import readers
import writers
from node import binary
from waiting import wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from link_crowd import Crowd  # noqa: E402

MIB = 1024 * 1024


def load_binary():
    return binary().parent / "tests/link_load"


def counted(far, name):
    return far.status()["receiver"][name]


def descriptors_for(agents):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < agents + 200:
        pytest.skip("needs more descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, agents + 200), hard))


def through(net, far, agents, each, seconds=120, event=1000):
    """Every one of so many agents gets `each` events through."""
    crowd = Crowd(load_binary(), far.link, agents=agents, event=event)
    try:
        wait_until(lambda: crowd["ready"] == agents, 120, lambda: crowd.now)
        crowd.say(f"send {each}")
        wait_until(lambda: crowd["settled"] == agents * each, seconds, lambda: crowd.now)
        far.note_rss()
    finally:
        crowd.end()
    assert far.total("delivered") == agents * each
    assert counted(far, "duplicates") == 0 and counted(far, "protocol_errors") == 0


@pytest.mark.skipif(not load_binary().exists(), reason="link_load is not built")
def test_many_busy_agents_share_the_budget(net, full):
    agents = 1000 if full else 200
    descriptors_for(agents)
    far = net.receiver("far", memory="16MiB")
    far.start()
    through(net, far, agents, 1000 if full else 500)
    assert counted(far, "memory_peak_bytes") <= 16 * MIB
    assert counted(far, "memory_bytes") == 0
    assert counted(far, "over_credit") == 0, "a sender cuts its batches to its credit"
    assert far.peak_rss < 128 * MIB, far.peak_rss
    net.stop()


@pytest.mark.skipif(not load_binary().exists(), reason="link_load is not built")
def test_two_thousand_agents_get_through_a_budget_that_is_too_small_for_them(net, full):
    """Less than one frame for each: they are let in in turn."""
    agents = 2000 if full else 300
    descriptors_for(agents)
    far = net.receiver("far", memory="1MiB")
    far.start()
    through(net, far, agents, 200, seconds=300)
    assert counted(far, "memory_peak_bytes") <= MIB
    assert counted(far, "memory_waits") > 0
    net.stop()


def test_a_line_that_no_credit_holds_goes_through(net):
    far = net.receiver("far", memory="1MiB")
    edge = net.edge("edge", [far], agent={"line_max": "4MiB"})
    net.start()
    source = edge.source_dir / "clicks/1.log"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_bytes(b"short\n" + b"x" * 3 * MIB + b"\nshort\n")
    wait_until(lambda: far.total("delivered") == 3, 60, lambda: far.status()["receiver"])
    assert counted(far, "over_credit") >= 1
    net.stop()


def test_half_a_frame_does_not_keep_the_others_out_for_ever(net):
    """A peer announces a frame as large as the budget and falls silent."""
    far = net.receiver("far", memory="1MiB")
    edge = net.edge("edge", [far])
    net.start()
    half = link.Peer.resumed(far.link_port)
    half.send(struct.pack("<IBBHI", MIB, 1, link.EVENTS, 0, 0) + b"x" * 5000)
    wait_until(lambda: counted(far, "memory_bytes") >= MIB, 10)
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 100)
    wait_until(lambda: far.total("delivered") == 100, 90, lambda: far.status()["receiver"])
    assert counted(far, "stalled") == 1
    half.close()
    net.stop()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 100})


def test_a_peer_that_sends_without_credit_is_ended(net):
    far = net.receiver("far", memory="8MiB")
    edge = net.edge("edge", [far])
    net.start()
    greedy = link.Peer.resumed(far.link_port)
    # The first may go over its credit. Its end and the second come at once: nothing of it is consumed in between.
    payload = (b"y" * 9999 + b"\n") * 700  # more than one alone may have of 8 MiB, and less than these
    first = link.events("flood", payload, 0, greedy.node)
    greedy.send(first[:-5])
    time.sleep(0.2)
    greedy.send(first[-5:] + link.events("flood", b"more\n", len(payload), greedy.node))
    wait_until(lambda: counted(far, "protocol_errors") == 1, 30, lambda: far.status()["receiver"])
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 100)
    wait_until(lambda: far.route("all")["delivered"] >= 100, 30)
    assert counted(far, "memory_bytes") == 0
    greedy.close()
    net.stop()
