"""S6 for a node that starts: a full data_dir, or a damaged store, is waited for and told, and ends no process."""
import json
import subprocess
import time

import link
import pytest
import readers
import writers
from disks import alarm_codes, fill, needs_root, small_disk  # noqa: F401
from node import MIB
from waiting import holds_for, patience, wait_until

pytestmark = needs_root


def status_text(node):
    return subprocess.run([str(node.program), "status", "--socket", str(node.folder / "api.sock")], capture_output=True,
                          text=True, timeout=patience(10)).stdout


def check_resumes(node, ballast):
    """Waits and says so; ready within 5 s of there being room."""
    node.launch()
    wait_until(lambda: "disk_full" in alarm_codes(node), 20, node.log)
    assert "ALARM disk_full data_dir" in status_text(node)
    holds_for(node.running, 3)
    assert "posthouse_ready" not in node.log()
    ballast.unlink()
    begun = time.monotonic()
    node.wait_ready(5)
    print(f"ready {time.monotonic() - begun:.1f} s after there was room")
    wait_until(lambda: "disk_full" not in alarm_codes(node), 5)


def test_a_first_start_on_a_full_disk(net, small_disk):
    far = net.receiver("far")
    edge = net.edge("edge", [far])
    far.start()
    small_disk(edge.data, "32m")
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 100)
    fill(edge.data / "ballast")
    check_resumes(edge, edge.data / "ballast")
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 100})
    net.stop()


def test_a_restart_on_a_full_disk_loses_nothing(net, small_disk):
    far = net.receiver("far")
    relay = net.relay("relay", [far])
    small_disk(relay.data, "32m")
    edge = net.edge("edge", [relay])
    edge.start()
    relay.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1000)
    wait_until(lambda: relay.status_or_none() and relay.route("all")["queued"] == 1000, 20)
    relay.kill()
    fill(relay.data / "ballast")
    check_resumes(relay, relay.data / "ballast")
    far.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 1000, 1000)
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 2000})
    net.stop()


def test_s6_a_spools_disk_is_filled_by_another_process(net, small_disk):
    """S6: while it is full no peer's line and no message is acknowledged, and status answers; within 5 s of there being
    room it goes on by itself, and nothing is lost."""
    client = pytest.importorskip("mqtt").Client
    far = net.receiver("far")
    relay = net.relay("relay", [far], listener=[
        {"name": "plain", "bind": f"127.0.0.1:{net.ports.take()}", "allow_anonymous": True}],
        routes=[{"name": "all", "to": ["far"]}, {"name": "pay", "topics": ["pay/#"], "to": ["far"]}])
    small_disk(relay.data, "64m")
    edge = net.edge("edge", [relay])
    relay.start()
    edge.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 1000)
    wait_until(lambda: relay.route("all")["queued"] == 1000, 20)
    publisher = client(relay.mqtt_port)
    publisher.publish("pay/1", b"before", qos=1)
    fill(relay.data / "ballast")
    pid = relay.pid
    held = [publisher.publish("pay/1", b"while full " + b"x" * 70_000, qos=1, wait=False) for _ in range(3)]
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 1000, 20_000)
    wait_until(lambda: "disk_full" in alarm_codes(relay), 20, relay.log)
    holds_for(lambda: relay.status()["pid"] == pid and not any(mid in publisher.published for mid in held), 3)
    fill(relay.data / "more")
    (relay.data / "ballast").unlink()
    begun = time.monotonic()
    wait_until(lambda: all(mid in publisher.published for mid in held), 15, relay.log)
    print(f"goes on {time.monotonic() - begun:.1f} s after there was room")
    assert time.monotonic() - begun < patience(5 + 2), "5 s, and what a loaded machine adds"
    publisher.close()
    far.start()
    net.wait_drained(90)
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 21_000})
    assert len(readers.lines(far.events_dir, "pay")) == 4
    assert relay.pid == pid and relay.running()
    net.stop()


def test_a_waiting_node_stops_when_it_is_told_to(net, small_disk):
    far = net.receiver("far")
    small_disk(far.data, "16m")
    fill(far.data / "ballast")
    far.launch()
    wait_until(lambda: "disk_full" in alarm_codes(far), 20, far.log)
    far.stop()


def damage(path):
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 7):
        data[at] ^= 0x55
    path.write_bytes(data)


def test_a_damaged_store_is_told_and_waited_for(net):
    """Both the store and its journal are gone bad: nothing is taken in, nothing is cut, until someone restores it."""
    far = net.receiver("far")
    far.start()
    peer = link.Peer.resumed(far.link_port)
    peer.send(link.events("clicks", b"one\n", 0, peer.node))
    peer.wait_for(link.ACK)
    peer.close()
    far.kill()
    kept = {path: path.read_bytes() for path in far.data.glob("store*/*") if path.suffix in (".log", ".jnl")}
    assert len(kept) == 2
    for path in kept:
        damage(path)
    far.launch()
    wait_until(lambda: "store_damaged" in alarm_codes(far), 20, far.log)
    holds_for(far.running, 2)
    alarm = json.loads(json.dumps(far.status()["alarms"][0]))
    assert alarm["about"] == "data_dir" and alarm["since_ms"] > 0
    for path, data in kept.items():
        path.write_bytes(data)
    far.wait_ready(5)
    assert readers.lines(far.events_dir, "clicks") == [b"one"]
    net.stop()


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("spoil", [damage, zero, lambda path: path.unlink()], ids=["flips", "zeros", "gone"])
def test_a_damaged_log_is_mended_from_the_journal_and_told(net, spoil):
    far = net.receiver("far")
    far.start()
    peer = link.Peer.resumed(far.link_port)
    peer.send(link.events("clicks", b"one\n", 0, peer.node))
    peer.wait_for(link.ACK)
    far.kill()
    for path in (far.data / "store").glob("*.log"):
        spoil(path)
    far.start()
    assert "store_log_damaged" in alarm_codes(far)
    again = link.Peer.resumed(far.link_port, peer.node)
    again.send(link.events("clicks", b"one\n", 0, peer.node))
    assert link.read_ack(again.wait_for(link.ACK)[1])["duplicates"] == 1, "the ranges are known"
    again.close()
    assert sum(path.stat().st_size for path in far.data.glob("store.damaged/*")) < 16 * MIB
    net.stop()
    assert readers.lines(far.events_dir, "clicks") == [b"one"]
