"""tools/dev bench mqtt: our broker beside others in one run, under the same load, one after the other.

What is compared: messages per second of the broker's own CPU time (the load generator shares the machine, so that the rate
alone says little), p99 latency at one rate for all (half of what the best of the others takes, or ours if that is less),
and resident memory; each as a ratio to the best of the others in that row. Only ratios travel to other machines.

Others are used where they are found: mosquitto on PATH, and the binaries that --mosquitto-new, --flashmq and --nanomq or
the environment's BENCH_MOSQUITTO_NEW, BENCH_FLASHMQ and BENCH_NANOMQ name; and any by --peer 'NAME=COMMAND with {port}'.
What is absent is said and left out. All run with one thread for clients if they can be told to.
"""
import argparse
import os
import pathlib
import resource
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/integration"))

from toml_text import document  # noqa: E402


class Row:
    """One load. `kind`: what is measured beside CPU and memory. `keep`: how a broker stores sessions, None: not at all."""

    def __init__(self, title, scenario, words, kind="latency", keep=None):
        self.title, self.scenario, self.words, self.kind, self.keep = title, scenario, words, kind, keep


ROWS = [
    Row("1 to 1, QoS 0", "pair", "publishers=4 qos=0 window=64"),
    Row("1 to 1, QoS 1", "pair", "publishers=4 qos=1 window=16"),
    Row("1 to 1, QoS 2", "pair", "publishers=4 qos=2 window=16"),
    Row("1 to 1, QoS 0, 1 KiB", "pair", "publishers=4 qos=0 window=64 payload=1024"),
    Row("fan-out 1 to 200, QoS 0", "fanout", "subscribers=200 qos=0 window=8"),
    Row("fan-out 1 to 200, QoS 1", "fanout", "subscribers=200 qos=1 window=4"),
    Row("fan-in 50 to 1, QoS 0", "fanin", "publishers=50 qos=0 window=16"),
    # At a rate: unpaced publishers would only measure how fast a full queue drops.
    Row("fan-in 50 to 1, QoS 1, 5,000/s", "fanin", "publishers=50 qos=1 rate=5000", kind="paced"),
    Row("overlapping wildcards, 5,000", "wildcard", "publishers=4 subscribers=100 filters=50 qos=0 window=16"),
    Row("distinct wildcards, 1,000", "distinct", "subscribers=1000 filters=1 window=16", kind="throughput"),
    Row("distinct wildcards, 100,000", "distinct", "subscribers=1000 filters=100 window=16"),
    Row("distinct wildcards, 1,000,000", "distinct", "subscribers=1000 filters=1000 window=16", kind="throughput"),
    Row("retained, 100,000 then #", "retained", "topics=100000", kind="throughput"),
    Row("storm, 5,000 connects/s", "crowd", "clients=10000 rate=5000", kind="crowd"),
    Row("connects, as fast as taken", "crowd", "clients=10000", kind="crowd"),
    Row("idle, 5,000", "crowd", "clients=5000 hold=2", kind="crowd"),
    Row("idle, 50,000", "crowd", "clients=50000 hold=2", kind="crowd"),
    Row("persistent QoS 1, 100 publishers, fsync", "pair", "publishers=100 qos=1 window=8 persistent=1", keep="fsync"),
    Row("persistent QoS 1, 100 publishers, lazy", "pair", "publishers=100 qos=1 window=8 persistent=1", keep="lazy"),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ours(program, workers):
    def command(folder, port, keep):
        (folder / "data").mkdir()
        config = folder / "posthouse.toml"
        config.write_text(document({"node": {"name": "bench", "site": "bench", "data_dir": folder / "data"},
                                    "api": {"socket": folder / "api.sock"},
                                    "broker": {"workers": workers, "durability": keep or "fsync"},
                                    "listener": [{"name": "plain", "bind": f"127.0.0.1:{port}",
                                                  "connections_max": 60000}]}))
        return [str(program), "run", "-c", str(config)]
    return command


def mosquitto(program):
    def command(folder, port, keep):
        config = folder / "mosquitto.conf"
        # It has no mode that waits for the disk: what it keeps, it writes now and then and at its end.
        stored = f"persistence true\npersistence_location {folder}/\nuser root\n" if keep else "persistence false\n"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{stored}log_type error\n"
                          "set_tcp_nodelay true\nmax_inflight_messages 32\n")
        return [program, "-c", str(config)]
    return command


def flashmq(program):
    def command(folder, port, keep):
        config = folder / "flashmq.conf"
        config.write_text(f"allow_anonymous true\nthread_count 1\nstorage_dir {folder}\nlog_file {folder}/log\n"
                          f"rlimit_nofile {descriptors()}\nretained_messages_delivery_limit 1000000\n"
                          "retained_messages_node_limit 1000000\nminimum_wildcard_subscription_depth 0\n"
                          f"listen {{\n  protocol mqtt\n  inet4_bind_address 127.0.0.1\n  port {port}\n}}\n")
        return [program, "--config-file", str(config)]
    return command


def nanomq(program):
    def command(folder, port, keep):
        config = folder / "nanomq.conf"
        config.write_text(f"system {{\n  num_taskq_thread = 1\n  max_taskq_thread = 1\n}}\n"
                          f"mqtt {{\n  max_packet_size = 1MB\n  max_mqueue_len = 2048\n}}\n"
                          f"listeners.tcp {{\n  bind = \"127.0.0.1:{port}\"\n}}\n"
                          f"log {{\n  to = [file]\n  level = error\n  dir = \"{folder}\"\n  file = \"nanomq.log\"\n}}\n"
                          "auth {\n  allow_anonymous = true\n  no_match = allow\n  deny_action = ignore\n}\n")
        return [program, "start", "--conf", str(config)]
    return command


def by_hand(words):
    return lambda folder, port, keep: shlex.split(words.replace("{port}", str(port)))


def descriptors():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


class Broker:
    def __init__(self, name, command, folder, keep):
        self.name, self.port, self.log = name, free_port(), folder / "output"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.process = subprocess.Popen(
            command(folder, self.port, keep), stdin=subprocess.DEVNULL, stdout=open(self.log, "wb"), cwd=folder,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors(), descriptors())))
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                time.sleep(0.2)  # its memory is that of a broker at rest
                return
            except OSError:
                time.sleep(0.05)
        self.end()
        raise RuntimeError(f"does not listen; see {self.log}")

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Bench:
    def __init__(self, asked, brokers):
        self.asked, self.brokers = asked, brokers
        self.folder = TREE / "build/bench/mqtt"
        self.programs = TREE / f"build/{asked.preset}/tests"

    def load(self, name, row, more=""):
        """The figures of one run against one broker; None, said, if the broker could not take it."""
        program = "crowd_load" if row.kind == "crowd" else "mqtt_load"
        scenario = [] if row.kind == "crowd" else [row.scenario]
        timed = [] if row.kind == "crowd" else [f"seconds={self.asked.seconds}"]
        try:
            broker = Broker(name, self.brokers[name], self.folder / name, row.keep)
        except RuntimeError as failed:
            print(f"  {row.title}: {name} {failed}", file=sys.stderr)
            return None
        try:
            command = [str(self.programs / program), f"127.0.0.1:{broker.port}", *scenario, *row.words.split(), *timed,
                       *more.split(), f"pid={broker.process.pid}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400)
        except subprocess.TimeoutExpired:
            print(f"  {row.title}: {name} took too long", file=sys.stderr)
            return None
        finally:
            broker.end()
        if done.returncode:
            print(f"  {row.title}: {name}: {done.stderr.strip()[-200:]}", file=sys.stderr)
            return None
        fields = done.stdout.split()
        return {key: float(value) for key, value in zip(fields[::2], fields[1::2])}

    def run(self, row):
        """name -> figures, of one run each: a broker for itself, then latency at one rate for all."""
        out = {}
        for name in self.brokers:
            figures = self.load(name, row)
            if figures:
                out[name] = figures
        first = next(iter(self.brokers))
        if row.kind == "latency" and not self.asked.no_latency and first in out:
            best = max((out[name]["sent_per_s"] for name in out if name != first), default=out[first]["sent_per_s"])
            rate = max(int(min(best, out[first]["sent_per_s"]) / 2), 1)
            for name in list(out):
                paced = self.load(name, row, f"rate={rate}")
                out[name]["rate"] = rate
                for key in ("p50_us", "p99_us"):
                    out[name].pop(key, None)
                    if paced:
                        out[name][key] = paced[key]
        elif row.kind in ("throughput", "latency"):
            for figures in out.values():
                figures.pop("p50_us", None), figures.pop("p99_us", None)
        return out


# key, heading, whether more is better
SHOWN = [("delivered_per_s", "per s", True), ("per_cpu_second", "per CPU s", True), ("p50_us", "p50 us", False),
         ("p99_us", "p99 us", False), ("rss_mib", "RSS MiB", False), ("kib_each", "KiB each", False),
         ("filters_per_s", "filters/s", True), ("filters_per_cpu_second", "filt./CPU s", True),
         ("bytes_per_filter", "B/filter", False), ("set_per_s", "set/s", True)]


def written(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def best_of_others(medians, first, key, more):
    """(ratio of ours to it, its name); None where there is nothing to compare."""
    others = {name: figures[key] for name, figures in medians.items() if name != first and figures.get(key, 0) > 0}
    if not others or key not in medians.get(first, {}):
        return None
    best = (max if more else min)(others, key=others.get)
    return medians[first][key] / others[best], best


def show(row, medians, first):
    shown = [each for each in SHOWN if any(each[0] in figures for figures in medians.values())]
    rate = next((f", latency at {figures['rate']:.0f} messages/s" for figures in medians.values() if "rate" in figures), "")
    print(f"\n{row.title}{rate}")
    print(f"  {'':14}" + "".join(f"{heading:>12}" for _, heading, _ in shown))
    for name, figures in medians.items():
        print(f"  {name:14}" + "".join(f"{written(figures[key]) if key in figures else '-':>12}" for key, _, _ in shown))
    best = [best_of_others(medians, first, key, more) for key, _, more in shown]
    print(f"  {'/ best':14}" + "".join(f"{written(each[0]) if each else '':>12}" for each in best))
    print(f"  {'of the others':14}" + "".join(f"{each[1][:11] if each else '':>12}" for each in best))
    sys.stdout.flush()


IN_TABLE = [("per_cpu_second", True), ("p99_us", False), ("rss_mib", False)]


def table(results, first):
    """All rows in one: ours, and its ratio to the best of the others in each, as Markdown."""
    print("\n| | ours per CPU s | ratio | p99, ratio | RSS MiB | ratio |\n| --- | --- | --- | --- | --- | --- |")
    for row, medians in results:
        if first not in medians:
            print(f"| {row.title} | - | | | | |")
            continue
        ratios = [best_of_others(medians, first, key, more) for key, more in IN_TABLE]
        cells = [f"{written(each[0])} ({each[1]})" if each else "" for each in ratios]
        rate, memory = medians[first]["per_cpu_second"], written(medians[first]["rss_mib"])
        print(f"| {row.title} | {rate:,.0f} | {cells[0]} | {cells[1]} | {memory} | {cells[2]} |")


def find_brokers(asked):
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    brokers = {"posthouse": ours(TREE / f"build/{asked.preset}/posthouse", asked.workers)}
    if asked.alone:
        return brokers
    for name, make, program, how in (
            ("mosquitto", mosquitto, "mosquitto", "install it"),
            ("mosquitto-new", mosquitto, asked.mosquitto_new, "--mosquitto-new or BENCH_MOSQUITTO_NEW"),
            ("flashmq", flashmq, asked.flashmq or "flashmq", "--flashmq or BENCH_FLASHMQ"),
            ("nanomq", nanomq, asked.nanomq or "nanomq", "--nanomq or BENCH_NANOMQ")):
        found = program and shutil.which(program, path=path)
        if found:
            brokers[name] = make(found)
        else:
            print(f"without {name}: not found ({how})", file=sys.stderr)
    for peer in asked.peer:
        name, _, words = peer.partition("=")
        brokers[name] = by_hand(words)
    return brokers


def fitted(row):
    """50,000 connections need as many descriptors in one broker; where the system has fewer for a process, what it has."""
    most = descriptors() - 500
    words = dict(word.split("=") for word in row.words.split())
    if row.kind == "crowd" and int(words["clients"]) > most:
        print(f"{row.title}: a process may have {descriptors()} descriptors here, so it is {most} clients", file=sys.stderr)
        words["clients"] = str(most)
        fitting = " ".join(f"{key}={value}" for key, value in words.items())
        return Row(f"{row.title} (here {most})", row.scenario, fitting, row.kind, row.keep)
    return row


def main():
    options = argparse.ArgumentParser(prog="tools/dev bench mqtt")
    options.add_argument("--seconds", type=int, default=3, help="measured time of each run")
    options.add_argument("--runs", type=int, default=3, help="medians are over these; brokers take turns")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--only", action="append", default=[], help="rows whose name has this in it; may be repeated")
    options.add_argument("--mosquitto-new", default=os.environ.get("BENCH_MOSQUITTO_NEW"), metavar="PROGRAM")
    options.add_argument("--flashmq", default=os.environ.get("BENCH_FLASHMQ"), metavar="PROGRAM")
    options.add_argument("--nanomq", default=os.environ.get("BENCH_NANOMQ"), metavar="PROGRAM")
    options.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND",
                         help="another broker; {port} is its port")
    options.add_argument("--alone", action="store_true", help="ours only")
    options.add_argument("--no-latency", action="store_true")
    options.add_argument("--preset", default="release")
    asked = options.parse_args()
    bench = Bench(asked, find_brokers(asked))
    print(f"{' '.join(bench.brokers)}; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {asked.runs} runs of "
          f"{asked.seconds} s; medians")
    results = []
    for row in ROWS:
        if asked.only and not any(text in row.title for text in asked.only):
            continue
        row = fitted(row)
        runs = [bench.run(row) for _ in range(asked.runs)]
        medians = {}
        for name in bench.brokers:
            done = [run[name] for run in runs if name in run]
            if done:
                keys = set.intersection(*(set(figures) for figures in done))
                medians[name] = {key: statistics.median(figures[key] for figures in done) for key in keys}
        show(row, medians, "posthouse")
        results.append((row, medians))
    table(results, "posthouse")
    shutil.rmtree(bench.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
