"""tools/dev bench link: one receiver of many agents' events, each group synced before it is acknowledged.

A thousand connections of the product's own sender in one process (link_load.cc) on the same cores. Prints events per
second, the receiver's CPU per event and its resident memory, and beside it what the disk does with the same bytes in
plain write + fdatasync.
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

from link_crowd import Crowd  # noqa: E402
from net import Net  # noqa: E402
from waiting import wait_until  # noqa: E402

MIB = 1024 * 1024
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main():
    options = argparse.ArgumentParser(prog="tools/dev bench link")
    options.add_argument("--agents", type=int, default=1000)
    options.add_argument("--event", type=int, default=625)
    options.add_argument("--events", type=int, default=4000, help="of each agent")
    options.add_argument("--categories", type=int, default=8)
    options.add_argument("--memory", help="receiver.memory, its default without it")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--preset", default="release")
    asked = options.parse_args()
    build = TREE / f"build/{asked.preset}"
    folder = TREE / "build/bench/link"
    rates, cpu = [], []
    for _ in range(asked.runs):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        net = Net(build / "posthouse", folder, random.Random(1))
        memory = {"memory": asked.memory} if asked.memory else {}
        far = net.receiver("far", **memory, category=[{"match": ["load*"], "chunk_max": "256MiB", "chunk_interval": "1m"}])
        net.start()
        crowd = Crowd(build / "tests/link_load", far.link, agents=asked.agents, event=asked.event, categories=asked.categories)
        try:
            wait_until(lambda: crowd["ready"] == asked.agents, 120)
            before, own, begun = cpu_seconds(far.pid), crowd["microseconds"], time.monotonic()
            crowd.say(f"send {asked.events}")
            total = asked.agents * asked.events
            wait_until(lambda: crowd["settled"] >= total, 600)
            took = time.monotonic() - begun
            used = cpu_seconds(far.pid) - before
            own = crowd["microseconds"] - own
            far.note_rss()
        finally:
            crowd.end()
            net.stop()
            net.end()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        raw = subprocess.run([build / "tests/event_load", "raw", folder / "raw", str(min(total * asked.event, 512 * MIB)),
                              str(4 * MIB)], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        raw_rate = float(raw[1]) / float(raw[3])
        rates.append(total / took)
        cpu.append(used / total * 1e6)
        print(f"{rates[-1]:.0f} events/s ({rates[-1] * asked.event / 1e6:.0f} MB/s, {rates[-1] * asked.event / raw_rate:.2f} of raw "
              f"{raw_rate / 1e6:.0f} MB/s), receiver {cpu[-1]:.2f} us CPU an event, {far.peak_rss / MIB:.0f} MiB; the load "
              f"{own / total:.2f} us", flush=True)
    print(f"median {statistics.median(rates):.0f} events/s, {statistics.median(cpu):.2f} us")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
