"""What a route does when more waits for a target than it may: route.spool.max, full and keep (S5, S9)."""
import time

import readers
import writers
from node import MIB
from waiting import wait_until

LINE = 320


def numbers(lines):
    return [int(line.split(b" ")[1]) for line in lines]


def fed(edge, count, step=20_000):
    for first in range(0, count, step):
        writers.append_lines(edge.source_dir / "clicks/1.log", "s", first, min(step, count - first), LINE)


def test_s5_drop_oldest_gives_up_one_contiguous_range_and_says_so(net, full):
    """S5: cap 16 MiB, 200,000 lines (64 MiB) while the receiver is down, then up: every line is delivered or dropped, the
    dropped ones are the oldest, and the receiver is told how many. In between the relay is killed, twice."""
    count = 200_000
    far = net.receiver("far")
    relay = net.relay("relay", [far], routes=[
        {"name": "all", "to": ["far"], "spool": {"max": "16MiB", "full": "drop_oldest"}}])
    edge = net.edge("edge", [relay])
    relay.start()
    edge.start()
    fed(edge, count // 2)
    wait_until(lambda: relay.route("all")["in"] >= count // 4, 60, relay.status)
    relay.kill()
    relay.start()
    relay.balanced()
    fed_again = count - count // 2
    writers.append_lines(edge.source_dir / "clicks/2.log", "s", count // 2, fed_again, LINE)
    wait_until(lambda: relay.route("all")["in"] == count, 120, relay.status)
    wait_until(edge.idle, 30)
    relay.balanced()
    row = relay.route("all")
    # After a restart the figure is right to a segment, an eighth of the bound.
    assert row["queued_bytes"] <= 18 * MIB and row["dropped"] == row["dropped_full"] > count // 2, row
    wait_until(lambda: relay.spool_bytes() <= 22 * MIB, 10, lambda: (
        relay.spool_bytes(), relay.status()["spool"], sorted((p.name, p.stat().st_size) for p in (relay.data / "spool").rglob("*"))))
    # Within a second the last of it is on disk; what a crash takes back before that is counted again then.
    time.sleep(1.5)
    dropped = relay.route("all")["dropped"]
    relay.kill()
    relay.start()
    relay.balanced()
    assert relay.route("all")["dropped"] == dropped
    far.start()
    wait_until(lambda: relay.route("all")["queued"] == 0, 60, relay.status)
    row = relay.route("all")
    assert row["delivered"] + row["dropped"] == count == row["in"], row
    received = numbers(readers.lines(far.events_dir, "clicks"))
    assert received == list(range(row["dropped"], count)), (len(received), received[:1], row)
    told = far.status()
    assert told["receiver"]["gap_events"] == row["dropped"], told["receiver"]
    assert [gap["reason"] for gap in told["gaps"]] == ["dropped"] * told["receiver"]["gaps"]
    ends = [(gap["first"], gap["last"]) for gap in told["gaps"]]
    assert all(one[1] == two[0] for one, two in zip(ends, ends[1:])), "one contiguous range"
    assert relay.command("audit", "-c", str(relay.config_path)).returncode == 0
    net.stop()


def test_drop_newest_keeps_what_came_first(net):
    count = 20_000
    far = net.receiver("far")
    relay = net.relay("relay", [far], routes=[
        {"name": "all", "to": ["far"], "spool": {"max": "1MiB", "full": "drop_newest"}}])
    edge = net.edge("edge", [relay])
    relay.start()
    edge.start()
    fed(edge, count, 1000)
    wait_until(lambda: relay.route("all")["in"] == count, 60, relay.status)
    relay.balanced()
    row = relay.route("all")
    assert row["queued_bytes"] <= 1 * MIB and row["queued"] > 0, row
    time.sleep(1.5)
    relay.kill()
    relay.start()
    far.start()
    wait_until(lambda: relay.route("all")["queued"] == 0, 60, relay.status)
    kept = row["queued"]
    received = numbers(readers.lines(far.events_dir, "clicks"))
    assert received[:kept // 2] == list(range(kept // 2)), "the oldest were kept"
    row = relay.route("all")
    assert len(received) + row["dropped"] == count == row["delivered"] + row["dropped"]
    assert far.status()["receiver"]["gap_events"] == row["dropped"]
    net.stop()


def test_what_waited_longer_than_keep_is_dropped(net):
    far = net.receiver("far")
    relay = net.relay("relay", [far], routes=[{"name": "all", "to": ["far"], "spool": {"keep": "2s"}}])
    edge = net.edge("edge", [relay])
    relay.start()
    edge.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 100, LINE)
    wait_until(lambda: relay.route("all")["dropped_keep"] == 100, 20, relay.status)
    relay.balanced()
    far.start()
    wait_until(lambda: relay.status()["upstreams"][0]["receivers"][0]["state"] == "ready", 20)
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 100, 100, LINE)
    wait_until(lambda: len(readers.lines(far.events_dir, "clicks")) == 100, 20)
    assert numbers(readers.lines(far.events_dir, "clicks")) == list(range(100, 200))
    wait_until(lambda: far.status()["receiver"]["gap_events"] == 100, 10)
    net.stop()


def test_s9_a_dead_target_at_its_bound_delays_no_other(net, full):
    """S9: one file, two targets; the dead one is capped at 1 MiB and blocks. The other one's lag stays under a second, and
    the dead one resumes from its own cursor with nothing lost."""
    dead, far = net.receiver("dead"), net.receiver("far")
    edge = net.edge("edge", [dead], routes=[
        {"name": "all", "to": ["next", "far"], "spool": {"max": "1MiB", "full": "block"}}])
    edge.tables["upstream"].append({"name": "far", "addresses": [far.link]})
    edge.write_config()
    far.start()
    edge.start()
    writer = writers.Producer(edge.source_dir / "clicks", 300_000 if full else 40_000, 500 if full else 2000, net.random)
    writer.start()
    worst = 0
    while writer.is_alive():
        worst = max(worst, edge.route("all", "far")["oldest_unacked_seconds"])
        time.sleep(0.2)
    written = writer.finish()
    wait_until(lambda: edge.route("all", "far")["delivered"] == sum(written.values()), 20, edge.status)
    assert worst < 1, worst
    row = edge.route("all", "next")
    assert row["queued_bytes"] + row["unread_bytes"] > MIB and row["dropped"] == 0, row
    assert any(alarm["code"] == "spool_full" for alarm in edge.status()["alarms"])
    dead.start()
    wait_until(lambda: edge.route("all", "next")["delivered"] == sum(written.values()), 60, edge.status)
    for node in (far, dead):
        readers.check_once([readers.lines(node.events_dir, "clicks")], written)
    edge.balanced()
    wait_until(lambda: not edge.status()["alarms"], 10, edge.status)
    net.stop()
