"""S1: kill -9 after every system call of a segment's retirement: each restart is up in 5 s and sends every unacknowledged
record; none is missing, none comes twice."""
import os
import random
import time

import link
import pytest
import readers
from waiting import patience, wait_until

LINES = 1200
WIDTH = 400  # bytes a line: several segments of 128 KiB
SHORT_STEP = 4  # short form: about every fourth call, another choice each time
STEPS_MAX = 2000
ENDS = 3


@pytest.fixture
def preload(program):
    path = program.parent / "tests/libkill_after.so"
    if not path.exists():
        pytest.skip("libkill_after.so is not built")
    return path


class Producer:
    """A peer that hands numbered lines to the relay and waits for their acknowledgement."""

    def __init__(self, relay):
        self.relay, self.node, self.at, self.count = relay, os.urandom(16), 0, 0

    def send(self, lines):
        peer = link.Peer.resumed(self.relay.link_port, self.node, seconds=30)
        for begin in range(0, lines, 50):
            payload = b"".join(b"s %07d %s\n" % (self.count + n, b"x" * WIDTH) for n in range(min(50, lines - begin)))
            self.count += payload.count(b"\n")
            peer.send_events(link.events("clicks", payload, self.at, self.node))
            self.at += len(payload)
        while link.read_ack(peer.wait_for(link.ACK)[1])["accepted"][-1][1] < self.at:
            pass
        peer.close()


def segments(relay):
    return [p for p in (relay.data / "spool/all").iterdir() if p.name.endswith(".seg")]


def drained(relay):
    status = relay.status_or_none()
    return status and status["routes"] and status["routes"][0]["queued"] == 0


def retire(relay, preload, step):
    """A life of the relay that drains and retires its segments, killed behind its `step`th call. Whether it was."""
    armed = relay.folder / "armed"
    armed.unlink(missing_ok=True)
    trace = relay.folder / f"trace-{step}"
    relay.launch(LD_PRELOAD=str(preload), PH_KILL_ARMED=str(armed), PH_KILL_AFTER=str(step), PH_KILL_TRACE=str(trace))
    armed.touch()
    quiet_since = None

    def over():
        nonlocal quiet_since
        if relay.process.poll() is not None:
            return True
        if not drained(relay) or len(segments(relay)) > 1:
            quiet_since = None
        elif quiet_since is None:
            quiet_since = time.monotonic()
        return quiet_since and time.monotonic() - quiet_since > 1.5  # cursors are stored within a second

    wait_until(over, 60, relay.log)
    killed = relay.process.poll() is not None
    if killed:
        assert relay.process.wait() == -9, relay.log()
        relay.process = None
    else:
        relay.kill()
    return killed, trace


def test_kill_after_every_system_call_of_a_retirement(net, preload, full, rng):
    far = net.receiver("far")
    relay = net.relay("relay", [far], routes=[{"name": "all", "to": ["far"], "spool": {"max": "1MiB", "full": "block"}}])
    producer = Producer(relay)
    relay.start()
    # How many calls it takes differs from one life to the next: several in a row have to see its end.
    step, ends, longest, unlinks = 1, 0, 0, 0
    while ends < ENDS:
        assert step < STEPS_MAX
        if far.running():
            far.stop()
        producer.send(LINES)
        assert len(segments(relay)) > 2
        relay.kill()
        far.start()
        killed, trace = retire(relay, preload, step)
        ends = 0 if killed else ends + 1
        calls = trace.read_text().splitlines()
        last = calls[-1]
        longest = max(longest, len(calls))
        # Not those of the longest alone: that may have been killed at its first one.
        unlinks = max(unlinks, sum(" unlink " in line and ".seg" in line for line in calls))
        begun = time.monotonic()
        relay.start(5)
        wait_until(lambda: drained(relay), 30, relay.status)
        wait_until(lambda: len(segments(relay)) <= 1, 10, "what a killed process left is retired, too")
        if not full and not last.split()[1] == "unlink":  # around those, no call is left out
            step += random.Random(rng.random()).randrange(1, SHORT_STEP * 2)
        else:
            step += 1
        assert time.monotonic() - begun < patience(40)
    print(f"{relay.starts} starts; the longest retirement was {longest} calls; one unlinked {unlinks} segments")
    assert unlinks > 2
    net.stop()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": producer.count})
