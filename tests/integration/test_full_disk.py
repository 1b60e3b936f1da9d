"""S6: a disk that is full, by another process or by the node's own spool: intake stops, nothing is lost, nothing ends."""
import struct
import time

import packets
import readers
import writers
from disks import alarm_codes, fill, free_bytes, needs_root, small_disk  # noqa: F401
from node import MIB
from waiting import holds_for, patience, wait_until

pytestmark = needs_root
QUOTA_EXCEEDED = 0x97


def full(node):
    return "disk_full" in alarm_codes(node)


class Mqtt5(packets.Mqtt):
    """The same in version 5, without properties."""

    def send(self, kind, flags, body):
        if kind == 1:
            version = len(packets.text("MQTT"))
            body = body[:version] + b"\5" + body[version + 1:version + 4] + b"\0" + body[version + 4:]
        super().send(kind, flags, body)


def publish(port, text, version):
    """The reason code of PUBACK; None: the client was disconnected without one, as version 3 has no code."""
    client = (Mqtt5 if version == 5 else packets.Mqtt)(port, text, clean=True)
    empty = b"\0" if version == 5 else b""
    client.send(packets.PUBLISH, 2, packets.text("t/a") + struct.pack(">H", 1) + empty + text.encode())
    try:
        _, body = client.expect(packets.PUBACK, 1)
        return body[2] if len(body) > 2 else 0
    except (packets.Gone, ConnectionError):
        return None
    finally:
        client.socket.close()


def test_s6_spool_on_a_disk_that_another_process_fills(net, small_disk):
    far = net.receiver("far")
    relay = net.relay("relay", [far], listener=True,
                      routes=[{"name": "mqtt", "topics": ["t/#"], "to": ["far"]}, {"name": "all", "to": ["far"]}])
    small_disk(relay.data, "64m")
    edge = net.edge("edge", [relay])
    net.start()
    acknowledged = []

    def try_publish(version):
        text = f"m{len(acknowledged)}v{version}"
        code = publish(relay.mqtt_port, text, version)
        if code == 0:
            acknowledged.append(text.encode())
        return code
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 2000)
    assert try_publish(4) == 0 and try_publish(5) == 0
    wait_until(lambda: far.total("delivered") == 2002, 20)

    fill(relay.data / "ballast")
    wait_until(lambda: full(relay), 5, relay.log)
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 2000, 5000)
    assert try_publish(4) is None and try_publish(5) == QUOTA_EXCEEDED
    answered = time.monotonic()
    assert relay.status()["alarms"]
    assert time.monotonic() - answered < patience(5)
    holds_for(lambda: relay.running() and full(relay), 5)
    assert edge.total("delivered") == 2000 and edge.waiting()
    assert relay.log().count("group_commit_failed") < 10, "no error loop"

    (relay.data / "ballast").unlink()
    freed = time.monotonic()
    wait_until(lambda: far.total("delivered") > 2002, 20)
    print(f"goes on {time.monotonic() - freed:.1f} s after there was room")
    assert time.monotonic() - freed < patience(5)
    wait_until(lambda: try_publish(5) == 0, 5)
    assert try_publish(4) == 0
    wait_until(lambda: not full(relay), 5)
    net.wait_drained(written={"s": 7000})
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 7000})
    received = readers.lines(far.events_dir, "mqtt")
    assert set(acknowledged) <= set(received) and len(received) == len(set(received)), (acknowledged, received)
    assert [node.starts for node in net.nodes] == [1, 1, 1]
    for node in net.nodes:
        node.balanced()
    net.stop()


def test_s6_received_files_on_a_disk_that_another_process_fills(net, small_disk):
    far = net.receiver("far", category=[{"match": ["plain"], "mode": "plain"}, {"match": ["z"], "compress": "zstd"}])
    small_disk(far.events_dir, "64m")
    edge = net.edge("edge", [far])
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1000)
    wait_until(lambda: far.total("delivered") == 1000, 20)
    fill(far.events_dir / "ballast")
    wait_until(lambda: full(far), 5, far.log)
    for category in ("clicks", "plain", "z"):
        writers.append_lines(edge.source_dir / category / "2.log", "t", 0, 2000)
    holds_for(lambda: far.running() and far.total("delivered") == 1000, 5)
    assert far.log().count("group_commit_failed") < 10, "no error loop"
    for path in readers.chunks(far.events_dir, "clicks"):
        data = path.read_bytes()
        assert not data or data.endswith(b"\n"), "rolled back to whole events"
    (far.events_dir / "ballast").unlink()
    freed = time.monotonic()
    wait_until(lambda: far.total("delivered") > 1000, 20)
    print(f"goes on {time.monotonic() - freed:.1f} s after there was room")
    assert time.monotonic() - freed < patience(5)
    net.wait_drained(written={"s": 1000, "t": 6000})
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 1000, "t": 2000})
    wait_until(lambda: (far.events_dir / "plain").read_bytes().count(b"\n") == 2000, 5)
    assert far.starts == 1
    net.stop()


def test_a_relay_that_filled_its_own_disk_is_killed_and_starts_again(net, rng, small_disk):
    """Its spool stops at the reserve, which is enough to start with; then it drains and takes the rest."""
    far = net.receiver("far")
    relay = net.relay("relay", [far])
    small_disk(relay.data, "64m")
    edge = net.edge("edge", [relay])
    relay.start()
    edge.start()
    count, size = 30_000, 3000
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, count, size)
    for _ in range(3):
        wait_until(lambda: full(relay), 60, relay.log)
        left = free_bytes(relay.data)
        assert 8 * MIB < left < 32 * MIB, left
        time.sleep(rng.uniform(0, 1))
        relay.kill()
        relay.start(20)
    wait_until(lambda: full(relay), 20, relay.log)
    assert relay.spool_bytes() > 30 * MIB and relay.total("queued") > 0
    far.start()
    net.wait_drained(120, written={"s": count})
    wait_until(lambda: not full(relay), 5)
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": count})
    for node in net.nodes:
        node.balanced()
    net.stop()
