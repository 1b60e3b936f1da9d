"""Lines from a client's files to a server's chunks: posthouse beside the real LSD, in turn on the same machine.

Three ways: `link` (our agent and receiver over our protocol), `lsd wire` (the same two over LSD's protocol) and `LSD` (its own
client and server). Ours sync before they acknowledge; LSD syncs nothing. Scenarios: one category through one address, eight
categories, append to visible at a steady rate, and idle categories, each with a file that is delivered.
"""
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import time

import lsd_daemon
from net import Net
from waiting import wait_until

MIB = 1024 * 1024
TICKS = os.sysconf("SC_CLK_TCK")
LINE = 300


def load(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    words = done.stdout.split()
    return {name: float(value) for name, value in zip(words[::2], words[1::2])}


def stat(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    peak = next(int(line.split()[1]) for line in pathlib.Path(f"/proc/{pid}/status").read_text().split("\n")
                if line.startswith("VmHWM:")) / 1024
    return (int(fields[11]) + int(fields[12])) / TICKS, peak


class Ours:
    def __init__(self, folder, program, wire):
        self.net = Net(program, folder, random.Random(1))
        if wire == "link":
            far = self.net.receiver("far")
            edge = self.net.edge("edge", [far])
        else:
            address = f"127.0.0.1:{self.net.ports.take()}"
            far = self.net.node("far", receiver={"link": None, "lsd": address}, routes=[{"name": "all", "to": ["files"]}])
            edge = self.net.node("edge", agent={}, upstreams={"next": {"protocol": "lsd", "addresses": [address]}},
                                 routes=[{"name": "all", "to": ["next"]}])
        self.net.start()
        self.source, self.target = edge.source_dir, far.events_dir
        self.pids = [edge.pid, far.pid]
        self.store = next(path.parent for path in far.data.rglob("CURRENT"))

    def end(self):
        self.net.end()


class Lsd:
    def __init__(self, folder, program, wire):
        ports = Net(program, folder, random.Random(1)).ports
        self.server = lsd_daemon.Daemon(folder / "server", ports, server={}).start()
        self.client = lsd_daemon.Daemon(folder / "client", ports, client={"to": [self.server.address]}).start()
        self.source, self.target = self.client.source, self.server.target
        self.pids = [self.client.process.pid, self.server.process.pid]
        self.store = "-"

    def end(self):
        self.client.end()
        self.server.end()


SYSTEMS = {"link": Ours, "lsd wire": Ours, "LSD": Lsd}


def arrived(system):
    return sum(path.stat().st_size for path in system.target.rglob("*") if path.is_file() and not path.is_symlink())


def throughput(system, loads, lines, categories):
    files = [system.source / f"cat{n}" / "202611300900" for n in range(categories)]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        load(loads, "write", path, 10, LINE)
    base = 10 * categories * LINE
    wait_until(lambda: arrived(system) >= base, 60)
    before = [stat(pid)[0] for pid in system.pids]
    begun = time.monotonic()
    writers = [subprocess.Popen([loads, "write", path, str(lines // categories), str(LINE)], stdout=subprocess.DEVNULL)
               for path in files]
    total = base + lines // categories * categories * LINE
    wait_until(lambda: arrived(system) >= total, 600, lambda: f"{arrived(system)} of {total}")
    took = time.monotonic() - begun
    for one in writers:
        one.wait()
    after = [stat(pid) for pid in system.pids]
    assert arrived(system) == total, f"{arrived(system) - total} bytes too many"
    return {"lines/s": lines / took, "CPU us/line": sum(a[0] - b for a, b in zip(after, before)) / lines * 1e6,
            "RSS client MiB": after[0][1], "RSS server MiB": after[1][1]}


def latency(system, loads, rate, seconds):
    path = system.source / "quiet" / "202611300900"
    path.parent.mkdir()
    load(loads, "write", path, 1, LINE)
    wait_until((system.target / "quiet").exists, 20)
    time.sleep(0.5)
    got = load(loads, "latency", path, system.target / "quiet", system.store, rate, seconds)
    return {"visible p50 ms": got["visible_p50"] / 1000, "visible p99 ms": got["visible_p99"] / 1000}


def idle(system, loads, categories, seconds=10):
    for n in range(categories):
        path = system.source / f"idle{n:05d}" / "202611300900"
        path.parent.mkdir()
        path.write_bytes(b"x" * (LINE - 1) + b"\n")
    wait_until(lambda: arrived(system) >= categories * LINE, 300)
    time.sleep(5)
    before = [stat(pid)[0] for pid in system.pids]
    time.sleep(seconds)
    after = [stat(pid) for pid in system.pids]
    return {"client % of a core": (after[0][0] - before[0]) / seconds * 100,
            "server % of a core": (after[1][0] - before[1]) / seconds * 100,
            "RSS client MiB": after[0][1], "RSS server MiB": after[1][1]}


def compare(asked, program, loads, folder):
    scenarios = [("one category", lambda s: throughput(s, loads, asked.lines, 1)),
                 ("eight categories", lambda s: throughput(s, loads, asked.lines, 8))]
    if asked.seconds:
        scenarios.append((f"{asked.rate} lines/s", lambda s: latency(s, loads, asked.rate, asked.seconds)))
    if asked.idle:
        scenarios.append((f"{asked.idle} idle categories", lambda s: idle(s, loads, asked.idle)))
    for name, run in scenarios:
        rows = {key: [] for key in SYSTEMS}
        for _ in range(asked.runs):
            for key, make in SYSTEMS.items():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                system = make(folder, program, key)
                try:
                    rows[key].append(run(system))
                finally:
                    system.end()
        print(f"\n{name}, medians of {asked.runs}")
        columns = list(rows["LSD"][0])
        print(f"{'':10}" + "".join(f"{column:>20}" for column in columns))
        medians = {key: [statistics.median(one[column] for one in some) for column in columns] for key, some in rows.items()}
        for key, values in medians.items():
            print(f"{key:10}" + "".join(f"{value:20,.2f}" for value in values))
        for key in ("link", "lsd wire"):
            print(f"{key} / LSD".rjust(16)[:16] + "".join(f"{a / b if b else 0:>{20 if i else 14}.2f}"
                                                     for i, (a, b) in enumerate(zip(medians[key], medians["LSD"]))), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
