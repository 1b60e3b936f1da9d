"""dedup = "strict": a receiver that vanishes with batches in its hands loses nothing, and nothing is published twice over all
receivers (amendment 17). Beside it `fast`, where what may come twice is counted."""
import time

import pytest
import readers
import writers
from waiting import wait_until

CATEGORY = "clicks"


def in_flight(edge, victim):
    row = next(r for r in edge.status()["upstreams"][0]["receivers"] if r["address"] == victim.link)
    return row["in_flight_batches"]


def vanish(net, rng, dedup, runs, batches):
    """Two receivers; each run freezes one until `batches` are in its hands, kills it and starts it again."""
    far = [net.receiver("far-1"), net.receiver("far-2")]
    edge = net.edge("edge", far, upstream={"dedup": dedup, "request_timeout": "2s", "resume_timeout": "500ms"})
    net.start()
    wait_until(lambda: all(r["state"] == "ready" for r in edge.status()["upstreams"][0]["receivers"]), 30, "no receivers")
    producer = writers.Producer(edge.source_dir / CATEGORY, 2000 * runs, 4000, rng)
    producer.start()
    most = 0
    for _ in range(runs):
        victim = rng.choice(far)
        victim.freeze()
        until = time.monotonic() + 1.5
        while time.monotonic() < until and most < batches:
            most = max(most, in_flight(edge, victim))
        time.sleep(rng.uniform(0, 0.1))
        if rng.random() < 0.3:
            victim.thaw()
            time.sleep(rng.uniform(0, 0.05))
        victim.kill()
        time.sleep(rng.uniform(0, 0.8))
        victim.launch()
        victim.wait_ready()
    written = producer.finish()
    net.wait_drained(120, written=written)
    return far, edge, written, most


def lines(far):
    return [readers.lines(one.events_dir, CATEGORY) for one in far]


def test_nothing_is_lost_and_nothing_published_twice(net, rng, full):
    far, edge, written, most = vanish(net, rng, "strict", 100 if full else 6, 100 if full else 4)
    readers.check_once(lines(far), written)
    assert most > 0, "nothing was ever in flight"
    assert edge.total("maybe_duplicate") == 0
    for one in far:
        status = one.status()["receiver"]
        assert status["staged_batches"] == 0, "something stays staged"
        assert status["staged_lost"] == 0
    edge.balanced()
    net.stop()


def test_fast_counts_what_may_have_come_twice(net, rng, full):
    far, edge, written, _ = vanish(net, rng, "fast", 30 if full else 3, 4)
    count = sum(len(of) for of in lines(far))
    surplus = count - sum(written.values())
    assert 0 <= surplus <= edge.total("maybe_duplicate"), "a duplicate that nobody counted"
    edge.balanced()
    net.stop()


def test_an_owner_that_is_away_is_waited_for_and_the_rest_goes_on(net, rng):
    """Killed for longer than resume_timeout: only what it alone may have published waits, with an alarm."""
    far = [net.receiver("far-1"), net.receiver("far-2")]
    edge = net.edge("edge", far, upstream={"dedup": "strict", "request_timeout": "2s", "resume_timeout": "500ms"})
    net.start()
    producer = writers.Producer(edge.source_dir / CATEGORY, 40_000, 10_000, rng)
    producer.start()
    time.sleep(0.5)
    far[0].kill()
    written = producer.finish()
    wait_until(lambda: len(readers.lines(far[1].events_dir, CATEGORY)) > 30_000, 60, "the other one does not get the rest")
    far[0].launch()
    net.wait_drained(60, written=written)
    readers.check_once(lines(far), written)
    assert edge.total("maybe_duplicate") == 0
    net.stop()


def waits(edge):
    return [alarm for alarm in edge.status()["alarms"] if alarm["code"] == "upstream_strict_waits"]


def test_an_owner_that_will_never_come_back_is_given_up_by_hand(net, rng):
    """Its machine is gone and its address in no configuration: what it alone may have published waits, with an alarm that says
    what to do; and then goes elsewhere, counted."""
    far = [net.receiver("far-1"), net.receiver("far-2")]
    edge = net.edge("edge", far, upstream={"dedup": "strict", "request_timeout": "2s", "resume_timeout": "500ms"})
    net.start()
    gone, other = far
    producer = writers.Producer(edge.source_dir / CATEGORY, 200_000, 10_000, rng)
    producer.start()
    owned = False
    for _ in range(60):
        time.sleep(rng.uniform(0.05, 0.2))
        gone.kill()
        time.sleep(0.1)
        rows = edge.status()["upstreams"][0]["receivers"]
        owned = next(row for row in rows if row["address"] == gone.link)["owned_batches"] > 0
        if owned or not producer.is_alive():
            break
        gone.launch()
        gone.wait_ready()
    written = producer.finish()
    if not owned:
        pytest.skip("no kill met the moment in which it owned something")
    wait_until(lambda: waits(edge), 20, lambda: edge.status()["upstreams"])
    (alarm,) = waits(edge)
    assert gone.link in alarm["about"] and "posthouse upstream forget next " + gone.link in alarm["text"], alarm
    edge.stop()
    edge.tables["upstream"][0]["addresses"] = [other.link]
    edge.write_config()
    edge.start()
    wait_until(lambda: waits(edge), 20, lambda: edge.status()["upstreams"])
    (alarm,) = waits(edge)
    assert "configured no more" in alarm["text"], alarm

    asked = edge.command("upstream", "forget", "next", other.link, "--socket", edge.tables["api"]["socket"])
    assert asked.returncode == 1, "nothing waits for that one"
    asked = edge.command("upstream", "forget", "next", gone.link, "--socket", edge.tables["api"]["socket"])
    assert asked.returncode == 1 and "comes twice" in asked.stdout and "--yes" in asked.stdout, asked
    assert waits(edge), "it was only asked"
    done = edge.command("upstream", "forget", "next", gone.link, "--yes", "--socket", edge.tables["api"]["socket"])
    assert done.returncode == 0 and "maybe_duplicate" in done.stdout, done
    wait_until(lambda: edge.idle() and not waits(edge), 60, lambda: edge.status()["upstreams"])
    assert edge.status()["upstreams"][0]["given_up_batches"] > 0
    all_lines = [line for of in lines(far) for line in of]
    count = sum(written.values())
    assert len(set(all_lines)) == count, "something is lost"
    assert edge.total("maybe_duplicate") > 0
    assert len(all_lines) - count <= edge.total("maybe_duplicate"), "a duplicate that nobody counted"
    edge.balanced()
    net.stop()
