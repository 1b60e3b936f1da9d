"""tools/dev bench long_way: what one address carries over a long way, beside a raw TCP stream over the same way (L7).

Both go through tools/delay_proxy. Prints, per run, megabytes per second of a raw stream and of lines through posthouse,
and their ratio; lines count from the first append to the last one delivered, so the start of the stream is in it.
"""
import argparse
import pathlib
import random
import shutil
import socket
import statistics
import sys
import threading
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/integration"))

from net import Net  # noqa: E402
from proxy import DelayProxy  # noqa: E402
from waiting import wait_until  # noqa: E402

MIB = 1024 * 1024


def raw_stream(way, total):
    """Bytes per second of one TCP connection through a proxy, from connect to the last byte's arrival."""
    sink = socket.create_server(("127.0.0.1", 0))
    took = []

    def receive():
        connection, _ = sink.accept()
        buffer, left = bytearray(MIB), total
        while left:
            count = connection.recv_into(buffer)
            assert count, "the raw stream ended early"
            left -= count
        took.append(time.monotonic())
        connection.close()

    with DelayProxy(sink.getsockname()[1], **way) as proxy:
        receiver = threading.Thread(target=receive)
        receiver.start()
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", proxy.port)) as source:
            piece, left = bytes(MIB), total
            while left:
                left -= source.send(piece[:left])
            receiver.join()
    sink.close()
    return total / (took[0] - begun)


def link_stream(program, folder, way, total, proxy_program=None, upstream=None, line=1000):
    """The same of lines from an edge to a receiver, through one address."""
    net = Net(program, folder, random.Random(1))
    far = net.receiver("far")
    port = net.ports.take()
    edge = net.node("edge", agent={}, upstreams={"next": {"addresses": [f"127.0.0.1:{port}"], **(upstream or {})}},
                    routes=[{"name": "all", "to": ["next"]}])
    try:
        with DelayProxy(far.link_port, port, program=proxy_program, **way) as proxy:
            net.start()
            source = edge.source_dir / "clicks/1.log"
            source.parent.mkdir(parents=True)
            text = b"".join(b"%08d %s\n" % (n, b"x" * (line - 10)) for n in range(2000))
            source.write_bytes(text[:line])
            wait_until(lambda: far.total("delivered") == 1, 20)
            lines = total // line
            begun = time.monotonic()
            with open(source, "ab", buffering=0) as out:
                left = lines
                while left:
                    count = min(left, 2000)
                    out.write(text[:count * line])
                    left -= count
            wait_until(lambda: far.total("delivered") >= lines + 1, 600)
            took = time.monotonic() - begun
            carried = proxy.stats()["forward"]
            net.wait_drained()
            net.stop()
    finally:
        net.end()
    return {"rate": lines * line / took, "carried": carried, "peak": edge.peak_rss, "peak_far": far.peak_rss}


def main():
    options = argparse.ArgumentParser(prog="tools/dev bench long_way")
    options.add_argument("--round-trip", type=int, default=125, help="milliseconds")
    options.add_argument("--rate", type=int, default=125_000_000, help="bytes per second")
    options.add_argument("--bytes", type=int, default=1_000_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--window", help="upstream.window")
    options.add_argument("--connections", type=int, help="upstream.connections")
    options.add_argument("--preset", default="release")
    asked = options.parse_args()
    build = TREE / f"build/{asked.preset}"
    folder = TREE / "build/bench/long_way"
    way = {"delay_ms": asked.round_trip // 2, "rate": asked.rate, "queue": 4 * MIB}
    upstream = {key: value for key, value in (("window", asked.window), ("connections", asked.connections)) if value}
    ratios = []
    for _ in range(asked.runs):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        raw = raw_stream({**way, "program": build / "tools/delay_proxy"}, asked.bytes)
        got = link_stream(build / "posthouse", folder, way, asked.bytes, build / "tools/delay_proxy", upstream)
        ratios.append(got["rate"] / raw)
        print(f"raw {raw / 1e6:.1f} MB/s, lines {got['rate'] / 1e6:.1f} MB/s, ratio {ratios[-1]:.2f}, resident: edge "
              f"{got['peak'] / MIB:.0f} MiB, receiver {got['peak_far'] / MIB:.0f} MiB", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
