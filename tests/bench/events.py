"""tools/dev bench events: lines from an edge's file to a receiver's chunks over loopback, each group synced.

Prints one row per run and the medians: lines per second from the first append to the last line delivered, CPU of both
processes together per line, peak resident memory, and latency at a steady rate; beside it, of the same minute, what the
disk does with plain write + fdatasync. Everything lies below build/bench and is deleted at the end.
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

import events_peer  # noqa: E402
import lsd_daemon  # noqa: E402
from net import Net  # noqa: E402
from waiting import wait_until  # noqa: E402

MIB = 1024 * 1024
TICKS = os.sysconf("SC_CLK_TCK")


def load(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{program.name} {arguments[0]}: exit {done.returncode} {done.stdout}")
    words = done.stdout.split()
    return {name: float(value) for name, value in zip(words[::2], words[1::2])}


def cpu_seconds(node):
    fields = pathlib.Path(f"/proc/{node.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def one_run(asked, program, loads, folder, seed):
    net = Net(program, folder, random.Random(seed))
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    out = {}
    try:
        net.start()
        source = edge.source_dir / "clicks/202611300900.log"
        source.parent.mkdir(parents=True, exist_ok=True)
        load(loads, "write", source, 100, 300)
        wait_until(lambda: far.total("delivered") == 100, 20)
        before = cpu_seconds(edge) + cpu_seconds(far)
        begun = time.monotonic()
        load(loads, "write", source, asked.lines, 300)
        wait_until(lambda: far.total("delivered") >= asked.lines + 100, 600)
        took = time.monotonic() - begun
        out["lines/s"] = asked.lines / took
        net.wait_drained()
        out["CPU us/line"] = (cpu_seconds(edge) + cpu_seconds(far) - before) / asked.lines * 1e6
        out["RSS edge MiB"], out["RSS far MiB"] = edge.note_rss() / MIB, far.note_rss() / MIB
        if asked.seconds:
            stores = [path.parent for path in far.data.rglob("CURRENT")]
            quiet = edge.source_dir / "quiet/202611300900.log"
            quiet.parent.mkdir()
            load(loads, "write", quiet, 1, 300)
            wait_until((far.events_dir / "quiet").exists, 10)
            got = load(loads, "latency", quiet, far.events_dir / "quiet", stores[0], asked.rate, asked.seconds)
            for name in ("visible_p50", "visible_p99", "durable_p50", "durable_p99"):
                out[name.replace("_", " ") + " ms"] = got[name] / 1000
        net.stop()
    finally:
        net.end()
    raw = load(loads, "raw", folder / "raw", min(asked.lines * 300, 256 * MIB), 4 * MIB)
    out["raw MB/s"] = raw["bytes"] / raw["seconds"] / 1e6
    sync = load(loads, "sync", folder / "sync", 300, 500)
    out["sync p50 ms"], out["sync p99 ms"] = sync["p50"] / 1000, sync["p99"] / 1000
    return out


def main():
    options = argparse.ArgumentParser(prog="tools/dev bench events")
    options.add_argument("--lines", type=int, default=2_000_000)
    options.add_argument("--rate", type=int, default=1000, help="lines a second while latency is measured")
    options.add_argument("--seconds", type=int, default=10, help="how long latency is measured (0: not)")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--preset", default="release")
    options.add_argument("--peer", metavar="LSD", type=lsd_daemon.named, help="beside this LSD binary (tests/integration/lsd_daemon.py): what both do "
                         "with one category, with eight, at a steady rate, and idle")
    options.add_argument("--idle", type=int, default=2000, help="categories of the idle row of --peer")
    asked = options.parse_args()
    program = TREE / f"build/{asked.preset}/posthouse"
    loads = TREE / f"build/{asked.preset}/tests/event_load"
    folder = TREE / "build/bench/events"
    if asked.peer:
        events_peer.compare(asked, program, loads, folder)
        return
    rows = []
    for n in range(asked.runs):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rows.append(one_run(asked, program, loads, folder, n))
        if n == 0:
            print("run  " + "  ".join(rows[0]))
        print(f"{n + 1:<3}  " + "  ".join(f"{value:{len(name)}.{0 if name == 'lines/s' else 2}f}"
                                         for name, value in rows[n].items()), flush=True)
    print("med  " + "  ".join(f"{statistics.median(row[name] for row in rows):{len(name)}.{0 if name == 'lines/s' else 2}f}"
                             for name in rows[0]))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
