"""tools/dev bench written: what a node writes to its disk for each byte of events that it takes in.

`passed` is what it hands to the kernel (write, pwrite: wchar of /proc/<pid>/io; sockets are not in it), `stored` what of
it becomes pages for the disk (write_bytes), which also counts a page again that is written a second time after a sync.
Rows: a receiver's chunks, plain log (journal and file), compressed chunks, and a relay's spool of MQTT messages. What
comes at full speed comes in large groups; `--rate` shows what a sync for few lines costs.
"""
import argparse
import pathlib
import random
import shutil
import struct
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/integration"))

import packets  # noqa: E402
import writers  # noqa: E402
from net import Net  # noqa: E402
from waiting import wait_until  # noqa: E402

LINE = 300
CATEGORIES = {"chunks": {}, "plain": {"mode": "plain"}, "gzip": {"compress": "gzip"}, "zstd": {"compress": "zstd"}}


def written(node):
    fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{node.pid}/io").read_text().split("\n") if line)
    return int(fields["wchar"]), int(fields["write_bytes"])


def append(folder, lines, rate):
    if not rate:
        for first in range(0, lines, 10_000):
            writers.append_lines(folder / "1.log", "s", first, min(10_000, lines - first))
        return
    producer = writers.Producer(folder, lines, rate, random.Random(1))
    producer.start()
    producer.finish()


def files(asked, program, folder, kind):
    net = Net(program, folder, random.Random(7))
    far = net.receiver("far", category=[{"match": ["*"], **CATEGORIES[kind]}])
    edge = net.edge("edge", [far])
    try:
        net.start()
        append(edge.source_dir / "warm", 100, 0)
        wait_until(lambda: far.total("delivered") == 100, 30)
        time.sleep(6)  # the chunk is closed, the cursors are written
        before = written(far)
        append(edge.source_dir / kind, asked.lines, asked.rate)
        wait_until(lambda: far.total("delivered") == asked.lines + 100, 600)
        for one in net.nodes:
            one.wait_idle()
        time.sleep(2)
        after = written(far)
        net.stop()
    finally:
        net.end()
    return [(b - a) / (asked.lines * LINE) for a, b in zip(before, after)]


def mqtt(asked, program, folder, size, clients, window, topics):
    net = Net(program, folder, random.Random(8))
    far = net.receiver("far")  # never started: what is measured is the way into the spool
    relay = net.relay("relay", [far], listener=True,
                      routes=[{"name": "mqtt", "topics": ["t/#"], "to": ["far"]}, {"name": "all", "to": ["far"]}])
    topic = [packets.text(f"t/some/device/{n % topics:04}") for n in range(clients)]
    rounds = asked.lines // 4 // (clients * window)
    try:
        relay.start()
        senders = [packets.Mqtt(relay.mqtt_port, f"c{n}", clean=True) for n in range(clients)]
        time.sleep(2)
        before = written(relay)
        for _ in range(rounds):
            for sender, its in zip(senders, topic):
                for n in range(window):
                    sender.send(packets.PUBLISH, 2, its + struct.pack(">H", n + 1) + b"x" * size)
            for sender in senders:
                for n in range(window):
                    sender.expect(packets.PUBACK, n + 1)
        time.sleep(2)
        after = written(relay)
        relay.stop()
    finally:
        net.end()
    return [(b - a) / (rounds * clients * window * (size + len(topic[0]) - 2)) for a, b in zip(before, after)]


def main():
    options = argparse.ArgumentParser(prog="tools/dev bench written")
    options.add_argument("--lines", type=int, default=400_000, help="of 300 bytes; a quarter as many messages")
    options.add_argument("--rate", type=int, default=0, help="lines a second; 0: as fast as they go")
    options.add_argument("--preset", default="release")
    options.add_argument("--beside", metavar="PROGRAM", help="another build of posthouse, measured after ours in each row")
    options.add_argument("--only", default="", metavar="TEXT", help="rows with this in their name")
    asked = options.parse_args()
    programs = [TREE / f"build/{asked.preset}/posthouse", *([pathlib.Path(asked.beside)] if asked.beside else [])]
    folder = TREE / "build/bench/written"
    rows = [(kind, files, (kind,)) for kind in CATEGORIES]
    rows += [(f"MQTT, {size} bytes, 8 publishers, one topic", mqtt, (size, 8, 32, 1)) for size in (100, 300, 1000)]
    rows += [(f"MQTT, {size} bytes, 100 publishers", mqtt, (size, 100, 8, 100)) for size in (100, 300, 1000)]
    rows += [("MQTT, 300 bytes, one publisher, one by one", mqtt, (300, 1, 1, 1))]
    print(f"{'bytes written over bytes taken in':<44}passed  stored", *(["  beside:"] if asked.beside else []))
    for name, measure, what in rows:
        if asked.only not in name:
            continue
        print(f"{name:<44}", end="", flush=True)
        for program in programs:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            passed, stored = measure(asked, program, folder, *what)
            print(f"{passed:6.3f}  {stored:6.3f}  ", end="", flush=True)
        print()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
