"""tools/dev bench mqtt: our broker beside others in one run, under the same load, one after the other.

What is compared: messages per second of the broker's own CPU time (the load generator shares the machine, so that the rate
alone says little), latency at one rate for all (half of what the slowest of them took), and resident memory. Only ratios
travel to other machines. Others are used if they are installed: mosquitto, flashmq, nanomq; or any by
--peer 'NAME=COMMAND with {port}'. All run with one thread for clients if they can be told to.
"""
import argparse
import os
import pathlib
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

# name -> (scenario, arguments of mqtt_load). What is connected counts in idle_kib.
LOADS = {
    "1 to 1, QoS 0": ("pair", "publishers=4 qos=0 window=64"),
    "1 to 1, QoS 1": ("pair", "publishers=4 qos=1 window=16"),
    "1 to 1, QoS 2": ("pair", "publishers=4 qos=2 window=16"),
    "1 to 1, QoS 0, 1 KiB": ("pair", "publishers=4 qos=0 window=64 payload=1024"),
    "fan-out 1 to 100, QoS 0": ("fanout", "subscribers=100 qos=0 window=8"),
    "fan-out 1 to 100, QoS 1": ("fanout", "subscribers=100 qos=1 window=4"),
    "fan-in 100 to 1, QoS 0": ("fanin", "publishers=100 qos=0 window=16"),
    # At a rate: unpaced publishers would only measure how fast a full queue drops.
    "fan-in 100 to 1, QoS 1": ("fanin", "publishers=100 qos=1 rate=5000"),
    "wildcards, 5000 filters": ("wildcard", "publishers=4 subscribers=100 filters=50 qos=0 window=16"),
    "connection storm": ("storm", "clients=4000"),
    "retained flood": ("retained", "topics=20000"),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ours(program, workers):
    def command(folder, port):
        (folder / "data").mkdir()
        config = folder / "posthouse.toml"
        config.write_text(document({"node": {"name": "bench", "site": "bench", "data_dir": folder / "data"},
                                    "api": {"socket": folder / "api.sock"}, "broker": {"workers": workers},
                                    "listener": [{"name": "plain", "bind": f"127.0.0.1:{port}"}]}))
        return [str(program), "run", "-c", str(config)]
    return command


def mosquitto(program):
    def command(folder, port):
        config = folder / "mosquitto.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nlog_type error\n"
                          "set_tcp_nodelay true\nmax_inflight_messages 32\n")
        return [program, "-c", str(config)]
    return command


def flashmq(program):
    def command(folder, port):
        config = folder / "flashmq.conf"
        config.write_text(f"allow_anonymous true\nthread_count 1\nstorage_dir {folder}\n"
                          f"listen {{\n  protocol mqtt\n  inet4_bind_address 127.0.0.1\n  port {port}\n}}\n")
        return [program, "--config-file", str(config)]
    return command


def nanomq(program):
    return lambda folder, port: [program, "start", "--url", f"nmq-tcp://127.0.0.1:{port}"]


def by_hand(words):
    return lambda folder, port: shlex.split(words.replace("{port}", str(port)))


class Broker:
    def __init__(self, name, command, folder):
        self.name, self.port = name, free_port()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.process = subprocess.Popen(command(folder, self.port), stdin=subprocess.DEVNULL,
                                        stdout=open(folder / "log", "wb"), stderr=subprocess.STDOUT)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit(f"{name} does not listen; see {folder}/log")

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def load(program, broker, scenario, words):
    command = [str(program), f"127.0.0.1:{broker.port}", scenario, *words.split(), f"pid={broker.process.pid}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{broker.name}: {' '.join(command)}: exit {done.returncode}")
    fields = done.stdout.split()
    return {name: float(value) for name, value in zip(fields[::2], fields[1::2])}


def measure(asked, program, brokers, scenario, words):
    """name -> figures, of one run each: a broker for itself, then latency at one rate for all."""
    folder = TREE / "build/bench/mqtt"
    timed = f" seconds={asked.seconds}"
    out = {}
    for name, command in brokers.items():
        broker = Broker(name, command, folder / name)
        try:
            out[name] = load(program, broker, scenario, words + timed)
        finally:
            broker.end()
    if "rate=" in words:
        for row in out.values():
            row.update(rate=row["sent_per_s"], p50_at_half=row["p50_us"], p99_at_half=row["p99_us"])
        return out
    if scenario in ("storm", "retained") or asked.no_latency:
        return out
    per_message = next(iter(out.values()))
    fan = max(1, round(per_message["delivered_per_s"] / max(1, per_message["sent_per_s"])))
    rate = int(min(row["delivered_per_s"] for row in out.values()) / fan / 2)
    for name, command in brokers.items():
        broker = Broker(name, command, folder / name)
        try:
            paced = load(program, broker, scenario, words + timed + f" rate={max(rate, 1)}")
        finally:
            broker.end()
        out[name].update(rate=rate, p50_at_half=paced["p50_us"], p99_at_half=paced["p99_us"])
    return out


SHOWN = [("delivered_per_s", "delivered/s"), ("per_cpu_second", "per CPU s"), ("p50_at_half", "p50 us"), ("p99_at_half", "p99 us"),
         ("rss_mib", "RSS MiB")]


def show(title, medians, first):
    print(f"\n{title}" + (f"   (latency at {medians[first]['rate']:.0f} messages/s)" if "rate" in medians[first] else ""))
    print(f"  {'':12}" + "".join(f"{shown:>14}" for _, shown in SHOWN))
    for name, row in medians.items():
        print(f"  {name:12}" + "".join(f"{row[key]:14.1f}" if key in row and row[key] < 100 else
                                       f"{row[key]:14.0f}" if key in row else f"{'':14}" for key, _ in SHOWN))
    for name, row in medians.items():
        if name != first:
            ratio = {key: medians[first][key] / row[key] for key, _ in SHOWN if key in row and row[key]}
            print(f"  {'/ ' + name:12}" + "".join(f"{ratio[key]:14.2f}" if key in ratio else f"{'':14}" for key, _ in SHOWN))
    sys.stdout.flush()


def main():
    options = argparse.ArgumentParser(prog="tools/dev bench mqtt")
    options.add_argument("--seconds", type=int, default=3, help="measured time of each run")
    options.add_argument("--runs", type=int, default=3, help="medians are over these; brokers take turns")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--only", help="loads whose name has this in it")
    options.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="another broker; {port} is its port")
    options.add_argument("--alone", action="store_true", help="ours only")
    options.add_argument("--no-latency", action="store_true")
    options.add_argument("--preset", default="release")
    asked = options.parse_args()
    build = TREE / f"build/{asked.preset}"
    brokers = {"posthouse": ours(build / "posthouse", asked.workers)}
    if not asked.alone:
        for name, make in (("mosquitto", mosquitto), ("flashmq", flashmq), ("nanomq", nanomq)):
            path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
            if path:
                brokers[name] = make(path)
        for peer in asked.peer:
            name, _, words = peer.partition("=")
            brokers[name] = by_hand(words)
    print(f"{' '.join(brokers)}; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {asked.runs} runs of "
          f"{asked.seconds} s; medians")
    for title, (scenario, words) in LOADS.items():
        if asked.only and asked.only not in title:
            continue
        runs = [measure(asked, build / "tests/mqtt_load", brokers, scenario, words) for _ in range(asked.runs)]
        medians = {name: {key: statistics.median(run[name][key] for run in runs) for key in runs[0][name]} for name in brokers}
        show(title, medians, "posthouse")
    shutil.rmtree(TREE / "build/bench/mqtt", ignore_errors=True)


if __name__ == "__main__":
    main()
