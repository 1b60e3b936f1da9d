"""Producers, as an application's program would be: they append lines to files of a category's directory."""
import os
import threading
import time

LINE_BYTES = 300
appended = {}  # path -> lines by append_lines(): what an agent has not noticed yet is not drained (Net.wait_drained)


def line(source, number, size=LINE_BYTES):
    """`<source> <number> xxx...\\n` of exactly `size` bytes; both numbers are checked by readers.check_once."""
    head = b"%s %08d " % (source.encode(), number)
    return head + b"x" * (size - len(head) - 1) + b"\n"


def append(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0) as out:
        out.write(data)


def append_lines(path, source, first, count, size=LINE_BYTES):
    append(path, b"".join(line(source, n, size) for n in range(first, first + count)))
    appended[path] = appended.get(path, 0) + count


class Producer(threading.Thread):
    """Writes `total` lines at about `rate` a second in small bursts; a new source file after some thousand lines. A file is
    held open while it is written, so a source file is one generation whatever the agent renames meanwhile."""

    def __init__(self, folder, total, rate, random, size=LINE_BYTES):
        super().__init__(daemon=True)
        self.folder, self.total, self.rate, self.size = folder, total, rate, size
        self.cuts = [random.randrange(500, 8000) for _ in range(total // 500 + 1)]
        self.written = {}  # source -> lines
        self.error = None

    def run(self):
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.write_all()
        except BaseException as error:  # noqa: B902 - told to the test by finish()
            self.error = error

    def write_all(self):
        begun, left, done, index = time.monotonic(), self.total, 0, 0
        while left:
            source = f"s{index:05d}"
            length = min(left, self.cuts[index])
            out = os.open(self.folder / f"2026113009{index:05d}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            at = 0
            while at < length:
                burst = min(length - at, 100)
                os.write(out, b"".join(line(source, n, self.size) for n in range(at, at + burst)))
                at += burst
                done += burst
                ahead = done / self.rate - (time.monotonic() - begun)
                if ahead > 0:
                    time.sleep(ahead)
            os.close(out)
            self.written[source] = length
            left -= length
            index += 1

    def finish(self, seconds=600):
        self.join(seconds)
        assert not self.is_alive(), "the producer did not finish"
        if self.error:
            raise self.error
        return self.written
