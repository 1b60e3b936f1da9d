"""kill -9 of every process at random moments: exactly what was written arrives, once, in order per source file."""
import time

import readers
import writers


def mortal(net, rng, seconds, victims, kills, down=0.3):
    """Kills each victim `kills` times at random moments within `seconds`, starting it again after at most `down` seconds."""
    moments = sorted((rng.uniform(0, seconds), victim) for victim in victims for _ in range(kills))
    back = []
    begun = time.monotonic()
    while moments or back:
        now = time.monotonic() - begun
        for item in [item for item in back if item[0] <= now]:
            back.remove(item)
            item[1].launch()
        # A victim that is down, or not ready yet, dies all the same: a crash during recovery is a crash.
        while moments and moments[0][0] <= now:
            _, victim = moments.pop(0)
            if victim.running():
                victim.kill()
                back.append((now + rng.uniform(0, down), victim))
            else:
                moments.append((now + 0.2, victim))
                moments.sort(key=lambda item: item[0])
                break
        time.sleep(0.01)
    for node in net.nodes:
        node.wait_ready()


def run(net, rng, total, seconds, victims, kills, far):
    edge = net.nodes[-1]
    producer = writers.Producer(edge.source_dir / "clicks", total, total / seconds, rng)
    producer.start()
    mortal(net, rng, seconds, victims, kills)
    written = producer.finish()
    assert sum(written.values()) == total
    net.wait_drained(120, written=written)
    readers.check_once([readers.lines(one.events_dir, "clicks") for one in far], written)
    for node in net.nodes:
        node.balanced()
    return written


def test_each_of_three_killed_five_times(net, rng, full):
    far = net.receiver("far")
    relay = net.relay("relay", [far])
    edge = net.edge("edge", [relay])
    net.start()
    total = 600_000 if full else 60_000
    run(net, rng, total, 60 if full else 12, [edge, relay, far], 5, [far])
    assert sum(node.starts for node in net.nodes) == 18
    assert edge.total("delivered") == total and far.total("delivered") == total
    for node in net.nodes:
        assert node.note_rss() < 64 * 1024 * 1024, f"{node.name} took {node.peak_rss} bytes"
    net.stop()


def test_two_receivers_in_turn_one_killed_ten_times(net, rng, full):
    one, two = net.receiver("one"), net.receiver("two")
    relay = net.relay("relay", [one, two])
    net.edge("edge", [relay])
    net.start()
    run(net, rng, 600_000 if full else 60_000, 60 if full else 12, [two], 10, [one, two])
    assert two.starts == 11
    shares = [len(readers.lines(node.events_dir, "clicks")) for node in (one, two)]
    assert min(shares) > 0, f"one receiver got nothing: {shares}"
    assert relay.route("all")["maybe_duplicate"] == 0
    net.stop()


def test_restarts_lose_and_double_nothing(net, rng):
    """The same with SIGTERM: an orderly stop of each in turn under load."""
    far = net.receiver("far")
    relay = net.relay("relay", [far])
    edge = net.edge("edge", [relay])
    net.start()
    producer = writers.Producer(edge.source_dir / "clicks", 20_000, 4_000, rng)
    producer.start()
    for node in (edge, relay, far, edge, relay, far):
        node.restart()
    written = producer.finish()
    net.wait_drained(written=written)
    readers.check_once([readers.lines(far.events_dir, "clicks")], written)
    net.stop()
