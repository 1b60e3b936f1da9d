"""tools/dev bench link: one receiver of many agents' events, each group synced before it is acknowledged.

A thousand connections of the product's own sender in one process (link_load.cc) on the same cores. Prints events per
second, the receiver's CPU per event and its resident memory, and beside it what the disk does with the same bytes in
plain write + fdatasync. `--peer`: beside the real LSD, see link_peer.py.
"""
import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/integration"))

import link_peer  # noqa: E402
import lsd_daemon  # noqa: E402
from link_crowd import Crowd  # noqa: E402
from net import Net  # noqa: E402
from waiting import wait_until  # noqa: E402

MIB = 1024 * 1024
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def one_run(asked, build, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    net = Net(build / "posthouse", folder, random.Random(1))
    memory = {"memory": asked.memory} if asked.memory else {}
    far = net.receiver("far", **memory, category=[{"match": ["load*"], **link_peer.CHUNK}])
    net.start()
    crowd = Crowd(build / "tests/link_load", far.link, agents=asked.agents, event=asked.event, categories=asked.categories)
    total = asked.agents * asked.events
    try:
        wait_until(lambda: crowd["ready"] == asked.agents, 120)
        before, own, begun = cpu_seconds(far.pid), crowd["microseconds"], time.monotonic()
        crowd.say(f"send {asked.events}")
        wait_until(lambda: crowd["settled"] >= total, 600)
        took = time.monotonic() - begun
        used = cpu_seconds(far.pid) - before
        own = crowd["microseconds"] - own
        far.note_rss()
        synced = link_peer.sync_after(far.events_dir)
    finally:
        crowd.end()
        net.stop()
        net.end()
    link_peer.check(far.events_dir, total, asked.event)
    return {"events/s": total / took, "us CPU/event": used / total * 1e6, "cores": used / took,
            "peak MiB": far.peak_rss / MIB, "load us/event": own / total, "sync after s": synced}


def raw_rate(asked, build, folder):
    """Bytes per second of this disk now, written and synced by 4 MiB."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    size = min(asked.agents * asked.events * asked.event, 512 * MIB)
    raw = subprocess.run([build / "tests/event_load", "raw", folder / "raw", str(size), str(4 * MIB)],
                         stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return float(raw[1]) / float(raw[3])


def main():
    options = argparse.ArgumentParser(prog="tools/dev bench link")
    options.add_argument("--agents", type=int, default=1000)
    options.add_argument("--event", type=int, default=625)
    options.add_argument("--events", type=int, default=4000, help="of each agent")
    options.add_argument("--categories", type=int, default=8)
    options.add_argument("--memory", help="receiver.memory, its default without it")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--preset", default="release")
    options.add_argument("--peer", metavar="LSD", type=lsd_daemon.named, help="beside this LSD binary (tests/integration/lsd_daemon.py): both as a "
                         "receiver of as many LSD clients, then the link")
    options.add_argument("--lines", type=int, nargs="+", default=[20, 100, 400], help="in a request of a client of --peer")
    options.add_argument("--seconds", type=int, default=3, help="that a row of --peer is measured")
    asked = options.parse_args()
    build = TREE / f"build/{asked.preset}"
    folder = TREE / "build/bench/link"
    if asked.peer:
        link_peer.compare(asked, build, folder, lambda: one_run(asked, build, folder))
        return
    rows = []
    for _ in range(asked.runs):
        rows.append(one_run(asked, build, folder))
        row, raw = rows[-1], raw_rate(asked, build, folder)
        bytes_per_s = row["events/s"] * asked.event
        print(f"{row['events/s']:.0f} events/s ({bytes_per_s / 1e6:.0f} MB/s, {bytes_per_s / raw:.2f} of raw {raw / 1e6:.0f} "
              f"MB/s), receiver {row['us CPU/event']:.2f} us CPU an event, {row['peak MiB']:.0f} MiB; the load "
              f"{row['load us/event']:.2f} us", flush=True)
    print(f"median {statistics.median(row['events/s'] for row in rows):.0f} events/s, "
          f"{statistics.median(row['us CPU/event'] for row in rows):.2f} us")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
