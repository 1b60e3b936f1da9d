"""What the agent may be told of its files: tail, patterns, events of several lines; locked files; idle categories."""
import fcntl
import os
import shutil
import time

import pytest
import readers
import writers
from node import MIB
from test_files import open_net  # noqa: F401  a fixture
from waiting import holds_for, patience, wait_until


def edge_and_far(net, **agent):
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={"rotate_age": "1s", "rescan_interval": "1s", **agent})
    net.start()
    return edge, far


def received(far, category="app"):
    return readers.lines(far.events_dir, category)


def numbered(first, count):
    return b"".join(b"line %06d\n" % n for n in range(first, first + count))


def expect(far, count, category="app", ordered=True):
    wanted = numbered(0, count).split(b"\n")[:-1]
    wait_until(lambda: len(received(far, category)) >= count, 30, lambda: str(received(far, category)[-3:]))
    got = received(far, category)
    twice, lost = sorted(set(x for x in got if got.count(x) > 1)), sorted(set(wanted) - set(got))
    assert not twice and not lost, (len(twice), twice[:1], twice[-1:], len(lost), lost[:1], lost[-1:])
    assert not ordered or got == wanted


def rotate(log, copytruncate):
    """As logrotate does: older ones are renamed up, then the log is renamed, or copied and emptied."""
    for n in range(8, 0, -1):
        if log.with_name(f"{log.name}.{n}").exists():
            log.with_name(f"{log.name}.{n}").rename(log.with_name(f"{log.name}.{n + 1}"))
    first = log.with_name(log.name + ".1")
    if copytruncate:
        shutil.copy(log, first)
        os.truncate(log, 0)
    else:
        log.rename(first)


@pytest.mark.parametrize("copytruncate", [False, True])
@pytest.mark.parametrize("down", [False, True])
def test_a_tailed_file_is_followed_through_rotations(net, copytruncate, down):
    edge, far = edge_and_far(net, mode="tail")
    log = edge.source_dir / "app.log"
    count = 0
    for turn in range(3):
        writers.append(log, numbered(count, 500))
        count += 500
        # What is in flight when its file is truncated while we are down may come twice: so nothing is.
        expect(far, count, ordered=not copytruncate)
        if down and turn:
            edge.wait_idle()
            edge.stop()
        writers.append(log, numbered(count, 100))
        count += 100
        rotate(log, copytruncate)
        writers.append(log, numbered(count, 50))
        count += 50
        if not edge.running():
            edge.start()
        # Of a copy and the emptied original that are found together, either may be read first.
        expect(far, count, ordered=not copytruncate)
    holds_for(lambda: len(received(far)) == count, 3)
    assert {path.name for path in edge.source_dir.iterdir()} == {"app.log", "app.log.1", "app.log.2", "app.log.3"}
    status = edge.status()["agent"]
    assert status["rotated"] == status["deleted"] == 0
    edge.kill()
    edge.start()
    writers.append(log, numbered(count, 10))
    expect(far, count + 10, ordered=not copytruncate)
    net.stop()


def test_a_tailed_directory_may_be_read_only(open_net):
    net = open_net
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={"mode": "tail"}, user=65534)
    writers.append(edge.source_dir / "app.log", numbered(0, 10))
    edge.source_dir.chmod(0o555)
    net.start()
    expect(far, 10)
    assert [path.name for path in edge.source_dir.iterdir()] == ["app.log"]
    net.stop()


def test_patterns_and_events_of_several_lines(net):
    edge, far = edge_and_far(net, include=["*.log"], exclude=["noise*"],
                             category=[{"match": ["app"], "multiline_start": r"\d{4}-", "multiline_timeout": "300ms"}])
    for name in ("app.log", "noise.log", "app.txt", "other.log"):
        writers.append(edge.source_dir / name, b"2024-01 one\n  at a\\b\n  at c\n2024-02 two\n")
    wait_until(lambda: len(received(far)) == 2 and len(received(far, "other")) == 4, 20, lambda: str(received(far)))
    assert received(far) == [rb"2024-01 one\n  at a\\b\n  at c", b"2024-02 two"]
    assert {path.name for path in far.events_dir.iterdir()} == {"app", "other"}
    wait_until(lambda: sorted(p.name for p in edge.source_dir.iterdir() if p.is_file()) == ["app.txt", "noise.log"], 30,
               lambda: str([str(p) for p in edge.source_dir.rglob("*")]) + str(edge.status()["kept_files"]))
    row = edge.route("all")
    assert (row["in"], row["delivered"]) == (6, 6)
    net.stop()


def test_a_locked_big_file_is_read_when_its_writer_is_done(net):
    edge, far = edge_and_far(net, rotate_age="1h")
    path = edge.source_dir / "app_big.log"
    with open(path, "ab", buffering=0) as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        out.write(numbered(0, 1))
        out.write(b"line 000001")
        wait_until(lambda: edge.status()["agent"]["locked_waits"] > 0, 10)
        holds_for(lambda: received(far) == [], 1)
        out.write(b"\n")
        fcntl.flock(out, fcntl.LOCK_UN)
        began = time.monotonic()
        expect(far, 2)
        assert time.monotonic() - began < patience(5)
        fcntl.flock(out, fcntl.LOCK_EX)  # and for ever: its whole lines are delivered all the same
        out.write(numbered(2, 1))
        expect(far, 3)
        assert edge.status()["agent"]["locked_too_long"] > 0
    net.stop()


def test_idle_categories_cost_nothing(net, full):
    """2,000 categories that nobody writes to, with the default intervals."""
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={})
    count, seconds = 2000, 60 if full else 15
    for n in range(count):
        writers.append(edge.source_dir / f"c{n:04}/1.log", b"one\n")
    net.start()
    wait_until(lambda: edge.status()["routes"][0]["delivered"] == count, 60)
    net.wait_drained()
    time.sleep(2)

    def ticks():
        fields = open(f"/proc/{edge.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def resident():
        for line in open(f"/proc/{edge.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024

    begun, before = time.monotonic(), ticks()
    time.sleep(seconds)
    share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begun)
    print(f"{count} idle categories: {share:.2%} of a core, {resident() / MIB:.1f} MiB")
    assert share < 0.03, f"{share:.2%} of a core"  # 1 % is asked for on a quiet machine; see tests/bench
    assert resident() < 32 * MIB
    net.stop()
