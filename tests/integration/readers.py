"""Consumers, as LSD's are: chunks in the order of their names, each one whole."""
import os
import re

from waiting import wait_until

CHUNK = re.compile(r"^(?P<category>.+)-(?P<date>\d{4}-\d\d-\d\d)_(?P<number>\d{6})$")


def chunks(folder, category):
    """The category's chunk files in consumer order, the open one last."""
    place = folder / category
    if not place.exists():
        return []
    # What an entry is comes with its name: the link's new one may be renamed in the next moment.
    with os.scandir(place) as entries:
        names = [one.name for one in entries if not one.name.startswith(".") and one.is_file(follow_symlinks=False)]
    for name in names:
        found = CHUNK.match(name)
        assert found and found["category"] == category, f"not a chunk's name: {name}"
    return [place / name for name in sorted(names)]


def lines(folder, category):
    """Every line of the category, without newlines, in consumer order."""
    out = []
    for path in chunks(folder, category):
        data = path.read_bytes()
        assert not data or data.endswith(b"\n"), f"{path} ends within a line: {data[-80:]!r}"
        out += data.split(b"\n")[:-1]
    return out


def lines_so_far(folder, category):
    """Likewise while they are written: a line that is not whole yet is left out."""
    return [line for path in chunks(folder, category) for line in path.read_bytes().split(b"\n")[:-1]]


def check_once(received, written):
    """received: one list of lines (writers.line) per receiver. written: source -> number of lines. Each line is in them
    exactly once over all and none is foreign. A single receiver has each source's lines in order; several in turn do not
    promise that: what one of them lost goes to another behind what that one already has."""
    seen = {source: bytearray(count) for source, count in written.items()}
    faults = []
    for index, every in enumerate(received):
        last = {}
        for text in every:
            source, number, _ = text.split(b" ", 2)
            source, number = source.decode(), int(number)
            if source not in seen or number >= len(seen[source]):
                faults.append(f"a line that was never written: {text[:60]!r}")
                continue
            if seen[source][number]:
                faults.append(f"twice: {source} {number}")
            seen[source][number] = 1
            if len(received) == 1 and last.get(source, -1) >= number:
                faults.append(f"out of order at receiver {index}: {source} {number} behind {last[source]}")
            last[source] = number
    for source, marks in seen.items():
        gaps = marks.count(0)
        if gaps:
            faults.append(f"lost: {gaps} of {len(marks)} lines of {source}, the first is {marks.index(0)}")
    assert not faults, f"{len(faults)} faults: " + "; ".join(faults[:10])


def check_current(folder, category, seconds=5):
    """<category>_current is a symlink to the open chunk: the newest one, or the one that will be made next."""
    link = folder / category / f"{category}_current"
    wait_until(link.is_symlink, seconds, f"{link} is a symlink")
    target = os.readlink(link)
    assert CHUNK.match(target), f"{link} -> {target}"
    assert target >= chunks(folder, category)[-1].name, (target, chunks(folder, category))
