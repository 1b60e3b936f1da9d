"""Links over long, narrow and broken ways: cases L1, L6, L7, through tools/delay_proxy."""
import subprocess
import sys
import time
import pathlib

import pytest

import readers
import writers
from proxy import DelayProxy, proxy_binary
from waiting import holds_for, patience, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from long_way import link_stream, raw_stream  # noqa: E402

MIB = 1024 * 1024


@pytest.fixture
def proxies():
    made = []
    yield made
    for one in made:
        one.end()


def edge_through(net, proxies, target_port, *, upstream=None, way=None, **more):
    """An edge whose one address is a proxy in front of target_port."""
    port = net.ports.take()
    proxies.append(DelayProxy(target_port, port, **(way or {})))
    edge = net.node("edge", agent={}, upstreams={"next": {"addresses": [f"127.0.0.1:{port}"], **(upstream or {})}},
                    routes=more.pop("routes", [{"name": "all", "to": ["next"]}]), **more)
    return edge, proxies[-1]


@pytest.mark.skipif(not proxy_binary().exists(), reason="delay_proxy is not built")
class TestLongWay:
    def test_l1_a_slow_link_never_flaps(self, net, proxies, full):
        """L1: 50 kbit/s, 600 ms round trip, 2 MiB of backlog: the acknowledged offset only grows, no disconnect, done
        within 1.3 times the ideal. The short form has 192 KiB. Not compressed."""
        rate = 50_000 // 8
        backlog = 2 * MIB if full else 192 * 1024
        far = net.receiver("far")
        edge, _ = edge_through(net, proxies, far.link_port, upstream={"compress": "none"},
                               way={"delay_ms": 300, "rate": rate, "queue": 16 * 1024})
        count = backlog // 128
        writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, count, 128)
        far.start()
        edge.start()
        begun, seen = time.monotonic(), []
        ideal = backlog / rate + 0.6

        def done():
            seen.append((edge.route("all")["delivered"], edge.status()["upstreams"][0]["receivers"][0]))
            return seen[-1][0] == count
        wait_until(done, 1.3 * ideal, lambda: f"{seen[-1]} of {count} after {time.monotonic() - begun:.0f} s")
        delivered = [one for one, _ in seen]
        assert delivered == sorted(delivered)
        assert len(set(delivered)) > 5, "batches are no longer than a second's worth"
        assert seen[-1][1]["connects"] == 1 and seen[-1][1]["failures"] == 0, seen[-1]
        readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": count})
        net.stop()

    def test_a_slow_link_is_compressed_by_itself(self, net, proxies):
        """compress = "auto", the default: text over 50 kbit/s takes less than half of its bytes."""
        far = net.receiver("far")
        edge, proxy = edge_through(net, proxies, far.link_port, way={"delay_ms": 300, "rate": 50_000 // 8, "queue": 16 * 1024})
        writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1000, 256)
        net.start()
        wait_until(lambda: far.total("delivered") == 1000, 60)
        carried = proxy.stats()["forward"]
        assert carried < 128_000, f"{carried} bytes for 256,000"
        readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 1000})
        net.stop()

    def test_l6_a_link_that_goes_silent(self, net, proxies, full):
        """L6: 12 QoS 1 publishes while the link is down; up; after 2 have arrived it is cut silently for 90 s (short form:
        until the sender noticed); up: all 12, once."""
        far = net.receiver("far")
        edge, proxy = edge_through(
            net, proxies, far.link_port, listener=True, upstream={"request_timeout": "30s" if full else "12s"},
            way={"delay_ms": 50, "rate": 700, "queue": 600},
            routes=[{"name": "all", "to": ["next"]}, {"name": "pay", "topics": ["pay/#"], "to": ["next"]}])
        proxy.say("cut")
        net.start()
        for n in range(12):
            done = subprocess.run(["mosquitto_pub", "-p", str(edge.mqtt_port), "-t", "pay/1", "-q", "1", "-m",
                                   f"s {n} " + "x" * 400], timeout=patience(20))
            assert done.returncode == 0
        proxy.say("open")
        arrived = lambda: len(readers.lines(far.events_dir, "pay"))  # noqa: E731
        wait_until(lambda: arrived() >= 2, 60)
        proxy.say("hole")
        before = arrived()
        if full:
            holds_for(lambda: edge.running() and far.running(), 90)
        else:
            edge.wait_log("no progress within the request timeout|upstream_link_failed|upstream_disconnected", 30)
        assert arrived() == before
        proxy.say("open")
        wait_until(lambda: arrived() == 12, 60, lambda: f"{arrived()} of 12")
        net.wait_drained()
        readers.check_once([readers.lines(far.events_dir, "pay")], {"s": 12})
        net.stop()

    def test_l7_one_address_over_a_long_way(self, program, tmp_path, full):
        """L7: 125 ms round trip, one address: at least 80 % of a raw TCP stream through the same proxy. The short form has
        a way that a busy machine and a debug build can fill: the window and not the processor is what is asked about."""
        way = {"delay_ms": 62, "rate": 125_000_000 if full else 25_000_000, "queue": 4 * MIB, "program": proxy_binary()}
        total = 1_000_000_000 if full else 150_000_000
        raw = raw_stream(way, total)
        del way["program"]
        got = link_stream(program, tmp_path, way, total, proxy_binary())
        assert got["rate"] > 0.8 * raw, f"raw {raw / 1e6:.1f} MB/s, lines {got['rate'] / 1e6:.1f} MB/s"
