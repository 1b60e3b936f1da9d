"""Logs that others rotate by copying and emptying them, again and again, in every usual way: each line arrives once."""
import os
import subprocess
import time

import pytest
import readers
import writers
from waiting import holds_for, wait_until


def run(*arguments, **more):
    subprocess.run([str(part) for part in arguments], check=True, **more)


class Log:
    """A log with numbered lines, and the way in which its rotator makes room. Nobody writes between copying and emptying:
    such lines are lost to everybody."""

    def __init__(self, folder, name, way, random):
        self.path, self.name, self.way, self.random = folder / f"{name}.log", name, way, random
        self.written = 0   # lines
        self.copied = 0    # of those, what lies in the copy of last time
        self.turns = 0
        self.path.touch()

    def write(self):
        count = self.random.choice([1, 3, 40, 700])
        writers.append(self.path, b"".join(b"%s %06d %s\n" % (self.name.encode(), n, b"x" * self.random.randrange(80))
                                           for n in range(self.written, self.written + count)))
        self.written += count

    @property
    def overwrites(self):
        """Whether lines are gone that the agent has not read yet."""
        return self.way not in ("chain", "dateext", "copychain")

    def rotate(self):
        copy = self.path.with_name(self.path.name + ".1")
        getattr(self, self.way)(copy)
        run("truncate", "-s", "0", self.path)
        self.copied = self.written
        self.turns += 1

    def cp(self, copy):
        run("cp", self.path, copy)

    def cat(self, copy):
        with open(copy, "wb") as out:
            run("cat", self.path, stdout=out)

    def slowly(self, copy):
        """The copier is stopped in the middle."""
        data = self.path.read_bytes()
        cut = self.random.randrange(len(data) + 1)
        with open(copy, "wb", buffering=0) as out:
            time.sleep(self.random.choice([0, 0.05]))
            out.write(data[:cut])
            time.sleep(self.random.choice([0, 0.05, 0.05, 2.5]))
            out.write(data[cut:])

    def install(self, copy):
        run("install", "-m", "644", self.path, copy)

    def rsync(self, copy):
        part = copy.with_name(f".{copy.name}.Xy12Ab")
        run("cp", self.path, part)
        run("mv", "-f", part, copy)

    def chain(self, copy):
        """logrotate with copytruncate: older copies are renamed up first."""
        for n in range(self.turns, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{n}")
            if older.exists():
                os.rename(older, self.path.with_name(f"{self.path.name}.{n + 1}"))
        run("cp", self.path, copy)

    def copychain(self, copy):
        for n in range(self.turns, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{n}")
            if older.exists():
                run("cp", older, self.path.with_name(f"{self.path.name}.{n + 1}"))
        run("cp", self.path, copy)

    def dateext(self, copy):
        run("cp", self.path, self.path.with_name(f"{self.path.name}-20240131-{1_700_000_000 + self.turns}"))


def check(log, got, finished):
    want = [b"%s %06d" % (log.name.encode(), n) for n in range(log.written)]
    heads = [one[:len(log.name) + 7] for one in got]
    known = set(heads)
    assert len(known) == len(heads), (log.way, "twice", sorted({one for one in heads if heads.count(one) > 1})[:3], log.turns)
    assert known <= set(want), (log.way, "foreign", sorted(known - set(want))[:3])
    assert not finished or known == set(want), (log.way, "lost", sorted(set(want) - known)[:3], log.turns)


WAYS = ("cp", "cat", "slowly", "install", "rsync", "chain", "dateext")


@pytest.mark.parametrize("end", ["none", "stop", "kill", "freeze"])
def test_copies_over_copies_are_delivered_once(net, rng, end, full):
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={"mode": "tail", "rescan_interval": "2s"})
    logs = [Log(edge.source_dir, way, way, rng) for way in WAYS]
    net.start()

    def received(log):
        return readers.lines(far.events_dir, log.name)

    turns = 60 if full else 24
    for turn in range(turns):
        rng.shuffle(logs)
        away = end != "none" and turn % 4 == 3
        if away and end == "freeze":
            edge.freeze()
        elif away:
            getattr(edge, end)()
        for log in logs:
            if rng.random() < 0.8:
                log.write()
            for _ in range(rng.choice([0, 1, 1, 2])):
                # What the rotator takes away must have been there to be read: else it is its doing.
                if log.overwrites and len(received(log)) < log.copied:
                    if away:
                        break
                    wait_until(lambda log=log: len(received(log)) >= log.copied, 30, lambda log=log: str(
                        (log.way, len(received(log)), log.copied)) + edge.log()[-1500:])
                log.rotate()
                if rng.random() < 0.5:
                    log.write()
        if away and end == "freeze":
            edge.thaw()
        elif away:
            edge.start()
        time.sleep(rng.choice([0, 0, 0.02, 0.2]))
        for log in logs:
            check(log, received(log), False)
    for log in logs:
        wait_until(lambda log=log: len(received(log)) >= log.written, 60, lambda log=log: str(
            (log.way, len(received(log)), log.written)) + edge.log()[-1500:])
        check(log, received(log), True)
    holds_for(lambda: all(len(received(log)) == log.written for log in logs), 5)
    assert sum(log.turns for log in logs) > turns
    assert set(path.name for path in far.events_dir.iterdir()) == set(WAYS)
    if end in ("none", "stop", "freeze"):
        assert edge.route("all")["dropped_bytes"] == 0
    edge.balanced()
    net.stop()


def test_a_chain_of_copies_is_delivered_once(net, rng):
    """`cp .1 .2; cp log .1; truncate log`: every older copy is copied again."""
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={"mode": "tail", "rescan_interval": "2s"})
    log = Log(edge.source_dir, "copychain", "copychain", rng)
    net.start()
    for _ in range(6):
        log.write()
        wait_until(lambda: len(readers.lines(far.events_dir, log.name)) >= log.written, 30)
        check(log, readers.lines(far.events_dir, log.name), True)
        log.rotate()
        time.sleep(rng.choice([0, 0.1, 2.5]))
    time.sleep(6)
    check(log, readers.lines(far.events_dir, log.name), True)
    net.stop()


@pytest.mark.parametrize("longer", [False, True])
def test_what_was_delivered_is_not_dropped_when_its_file_is_written_anew(net, longer):
    """While the agent is frozen: the next look sees a file that shrank, or one that seems to have grown."""
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={"mode": "tail", "rescan_interval": "2s"})
    log = edge.source_dir / "app.log"
    writers.append_lines(log, "a", 0, 100)
    net.start()
    for turn in range(3):
        net.wait_drained()
        edge.freeze()
        os.truncate(log, 0)
        writers.append_lines(log, "bcd"[turn], 0, 100 + (50 if longer else -50) * (turn + 1) // (1 if longer else 2))
        edge.thaw()
    wait_until(lambda: len(readers.lines(far.events_dir, "app")) == writers.appended[log], 30)
    assert edge.route("all")["dropped_bytes"] == edge.status()["agent"]["dropped_bytes"] == 0
    net.stop()
