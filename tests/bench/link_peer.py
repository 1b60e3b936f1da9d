"""One receiver of a thousand clients: posthouse beside the real LSD, in turn on the same machine, the same chunks.

`LSD` and `LSD's protocol` (ours by receiver.lsd) have the same clients: lsd_load.cc, each with one request of `--lines` lines
outstanding. `link` are as many senders of ours (link_load.cc). Ours sync before they acknowledge. LSD syncs nothing, and
answers on a tick of 50 ms; `sync after` is how long it takes until the disk has what a row's receiver acknowledged.
"""
import os
import random
import shutil
import statistics
import subprocess
import time

import lsd_daemon
from net import Net

CHUNK = {"chunk_max": "256MiB", "chunk_interval": "1m"}


def chunks(folder):
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def check(folder, lines, size):
    """What was acknowledged stands in the files, in whole lines of that size."""
    found = 0
    for path in chunks(folder):
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                found += piece.count(b"\n")
    stored = sum(path.stat().st_size for path in chunks(folder))
    assert found >= lines, f"{found} lines of {lines} acknowledged ones"
    assert stored == found * size, f"{stored} bytes in {found} lines"


def sync_after(folder):
    begun = time.monotonic()
    for path in chunks(folder):
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.close(fd)
    return time.monotonic() - begun


def row(asked, build, folder, lines, address, pid, target):
    done = subprocess.run([build / "tests/lsd_load", address, f"clients={asked.agents}", f"lines={lines}",
                           f"event={asked.event}", f"categories={asked.categories}", f"seconds={asked.seconds}",
                           f"pid={pid}"], stdout=subprocess.PIPE, text=True, check=True)
    words = done.stdout.split()
    got = {name: float(value) for name, value in zip(words[::2], words[1::2])}
    synced = sync_after(target)
    check(target, got["acknowledged"], asked.event)
    return {"events/s": got["events_per_s"], "us CPU/event": got["cpu_us"], "cores": got["cores"],
            "peak MiB": got["peak_mib"], "answer p50 ms": got["p50_us"] / 1000, "p99 ms": got["p99_us"] / 1000,
            "load us/event": got["load_us"], "sync after s": synced}


def of_lsd(asked, build, folder, lines):
    ports = Net(build / "posthouse", folder, random.Random(1)).ports
    server = lsd_daemon.Daemon(folder / "server", ports,
                               server={"max_file_size": 256 * 1024 * 1024, "file_rotate_interval": 60}).start()
    try:
        return row(asked, build, folder, lines, server.address, server.process.pid, server.target)
    finally:
        server.end()


def of_ours(asked, build, folder, lines):
    net = Net(build / "posthouse", folder, random.Random(1))
    address = f"127.0.0.1:{net.ports.take()}"
    far = net.receiver("far", link=None, lsd=address, category=[{"match": ["load*"], **CHUNK}])
    try:
        net.start()
        return row(asked, build, folder, lines, address, far.pid, far.events_dir)
    finally:
        net.end()


def compare(asked, build, folder, link_row):
    """link_row(): the row of the link. Ratios of it are to LSD's best."""
    kinds = {"LSD": of_lsd, "LSD's protocol": of_ours}
    rows = {}
    for _ in range(asked.runs):
        for lines in asked.lines:
            for kind, measure in kinds.items():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                os.sync()
                rows.setdefault((kind, lines), []).append(measure(asked, build, folder, lines))
        rows.setdefault(("link", 0), []).append(link_row())
    columns = list(rows["LSD", asked.lines[0]][0])
    medians = {key: {name: statistics.median(one[name] for one in some) for name in some[0]} for key, some in rows.items()}
    best = max((medians["LSD", lines] for lines in asked.lines), key=lambda one: one["events/s"])
    print(f"{asked.agents} clients, {asked.event} bytes an event, {asked.categories} categories, medians of {asked.runs}")
    print("LSD syncs nothing and answers on a tick of 50 ms; ours sync before they answer")
    print(f"{'':28}" + "".join(f"{name:>15}" for name in [*columns, "rate/LSD", "CPU/LSD", "memory/LSD"]))
    for lines in [*asked.lines, 0]:
        for kind in kinds if lines else ["link"]:
            of = medians[kind, lines]
            to = medians["LSD", lines] if lines else best
            name = f"{kind}, {lines} lines" if lines else f"{kind} (to LSD's best)"
            print(f"{name:28}" + "".join(f"{of[column]:15,.2f}" if column in of else f"{'':15}" for column in columns) +
                  "".join(f"{of[column] / to[column]:15.2f}" for column in ("events/s", "us CPU/event", "peak MiB")))
    shutil.rmtree(folder, ignore_errors=True)
