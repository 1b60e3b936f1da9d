"""A producer that does everything to its files that a file system allows, under load and kills: each line arrives once."""
import os
import shutil
import threading
import time

import pytest
import readers
from waiting import holds_for, wait_until

LINES = 60  # of a file


class Foe(threading.Thread):
    """Writes files of LINES lines "<category> <number>", and disturbs. What it renames, deletes or truncates has been
    delivered, or is a copy, or is renamed within what the agent watches: no line is taken away that could not be read."""

    def __init__(self, folder, index, random, seconds):
        super().__init__(daemon=True)
        self.folder, self.name, self.random = folder, f"foe{index}", random
        self.until = time.monotonic() + seconds
        self.written = 0
        self.files = 0
        self.error = None

    def run(self):
        try:
            while time.monotonic() < self.until:
                getattr(self, self.random.choice([name for name in dir(self) if name.startswith("do_")]))()
                time.sleep(self.random.choice([0, 0, 0.002, 0.05]))
        except BaseException as error:  # noqa: B902 - told to the test
            self.error = error

    def lines(self, count=LINES):
        made = b"".join(b"%s %06d %s\n" % (self.name.encode(), n, b"y" * self.random.randrange(40))
                        for n in range(self.written, self.written + count))
        self.written += count
        return made

    def place(self):
        directory = self.folder / self.name
        directory.mkdir(exist_ok=True)
        self.files += 1
        return directory / f"{self.files:06}.log"

    def append(self, path, data):
        try:
            with open(path, "ab", buffering=0) as out:
                out.write(data)
        except FileNotFoundError:  # its directory went
            path.parent.mkdir(exist_ok=True)
            self.append(path, data)

    def do_write(self):
        self.append(self.place(), self.lines())

    def do_write_in_pieces(self):
        data = self.lines()
        with open(self.place(), "ab", buffering=0) as out:
            for at in range(0, len(data), 300):
                out.write(data[at:at + 300])

    def do_rename_twice(self):
        path = self.place()
        with open(path, "ab", buffering=0) as out:
            out.write(self.lines(20))
            for step in range(2):
                try:
                    os.rename(path, path.with_name(f"{path.name}.{step}r"))
                    path = path.with_name(f"{path.name}.{step}r")
                except FileNotFoundError:
                    pass  # the agent was faster
                out.write(self.lines(20))

    def do_move_into(self):
        """Written elsewhere, moved in."""
        path = self.place()
        aside = self.folder.parent / f"{self.name}.aside"
        aside.write_bytes(self.lines())
        os.rename(aside, path)

    def do_link(self):
        path = self.place()
        aside = self.folder.parent / f"{self.name}.link"
        aside.write_bytes(self.lines())
        os.link(aside, path)
        os.unlink(aside)

    def do_odd_things(self):
        directory = self.place().parent
        for make in (lambda p: os.symlink("/etc/passwd", p), os.mkfifo, lambda p: os.symlink(directory, p), os.mkdir):
            odd = directory / f"odd{self.random.randrange(1 << 30)}"
            make(odd)
            if self.random.random() < 0.9:
                (odd.rmdir if odd.is_dir() and not odd.is_symlink() else odd.unlink)()

    def do_short_directory(self):
        directory = self.folder / f"gone{self.random.randrange(1 << 30)}"
        directory.mkdir()
        (directory / "x.log").touch()
        if self.random.random() < 0.5:
            time.sleep(0.01)
        shutil.rmtree(directory, ignore_errors=True)

    def do_move_directory(self):
        """A category's directory is renamed away and comes back: nothing of it is lost."""
        directory = self.folder / self.name
        away = self.folder.parent / f"{self.name}.moved"
        if not directory.exists():
            return
        os.rename(directory, away)
        if self.random.random() < 0.5:
            time.sleep(self.random.choice([0.001, 0.02]))
        try:
            os.rename(away, directory)
        except OSError:  # another one was made meanwhile
            for path in away.iterdir():
                os.rename(path, directory / path.name)
            away.rmdir()

    def do_many_names(self):
        path = self.place()
        for n in range(200):
            path.with_name(f".{n}").touch()
            path.with_name(f".{n}").unlink()

    def do_huge_line(self):
        path = self.place()
        data = self.lines(1)
        with open(path, "ab", buffering=0) as out:
            out.write(data[:-1])
            for _ in range(8):
                out.write(b"z" * 60_000)
            out.write(b"\n")


@pytest.mark.parametrize("kills", [0, 8])
def test_whatever_a_producer_does_each_line_arrives_once(net, rng, full, kills):
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={"rotate_age": "1s", "delete_grace": "1s", "rescan_interval": "1s"},
                    upstream={"window": "256KiB"})
    net.start()
    seconds = 60 if full else 12
    foes = [Foe(edge.source_dir, n, rng.__class__(rng.randrange(1 << 32)), seconds) for n in range(4)]
    for foe in foes:
        foe.start()
    begun = time.monotonic()
    for n in range(kills):
        time.sleep(max(0.0, begun + (n + 1) * seconds / (kills + 1) - time.monotonic()))
        if edge.running():
            edge.kill()
            time.sleep(rng.choice([0, 0.2]))
        edge.start()
    for foe in foes:
        foe.join(seconds + 60)
        assert not foe.is_alive() and foe.error is None, repr(foe.error)

    def heads(foe):
        return [line[:len(foe.name) + 7] for line in readers.lines(far.events_dir, foe.name)]

    for foe in foes:
        want = {b"%s %06d" % (foe.name.encode(), n) for n in range(foe.written)}
        wait_until(lambda foe=foe, want=want: want <= set(heads(foe)), 60, lambda foe=foe, want=want: str(
            (foe.name, "lost", sorted(want - set(heads(foe)))[:5], len(want))) + edge.log()[-1500:])
    holds_for(lambda: all(len(heads(foe)) == foe.written for foe in foes), 4, lambda: str(
        [(foe.name, len(heads(foe)), foe.written) for foe in foes]))
    status = edge.status()["agent"]
    assert status["dropped_bytes"] == 0 and edge.route("all")["dropped_bytes"] == 0, status
    edge.balanced()
    net.stop()


def test_a_hundred_categories_at_once(net, rng):
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent={"rotate_age": "1s", "rescan_interval": "1h"})
    net.start()

    def make(first):
        for n in range(first, 100, 4):
            folder = edge.source_dir / f"c{n:03}"
            folder.mkdir()
            (folder / "1.log").write_bytes(b"".join(b"%03d %04d\n" % (n, k) for k in range(50)))

    makers = [threading.Thread(target=make, args=(n,)) for n in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    wait_until(lambda: edge.route("all")["delivered"] == 5000, 30, lambda: str(edge.route("all")))
    for n in range(100):
        assert readers.lines(far.events_dir, f"c{n:03}") == [b"%03d %04d" % (n, k) for k in range(50)]
    net.stop()
