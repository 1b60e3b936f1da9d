"""The relay's spool under damage, and its tools."""
import readers
import writers
from waiting import wait_until


def segments(node):
    return sorted(path for path in (node.data / "spool").rglob("*") if path.is_file() and path.stat().st_size > 4096)


def filled(net, count=3000):
    """A relay that holds `count` lines for a receiver that is not there, stopped."""
    far = net.receiver("far")
    relay = net.relay("relay", [far])
    edge = net.edge("edge", [relay])
    relay.start()
    edge.start()
    for n in range(count // 100):
        writers.append_lines(edge.source_dir / "clicks/1.log", "s", n * 100, 100)
        wait_until(lambda n=n: edge.total("delivered") == (n + 1) * 100, 10)
    relay.stop()
    edge.stop()
    return edge, relay, far


def spool(node, verb):
    return node.command("spool", verb, "-c", str(node.config_path))


def test_a_sound_spool_checks_and_lists(net):
    _, relay, far = filled(net)
    done = spool(relay, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all" in spool(relay, "list").stdout
    relay.start()
    far.start()
    net.nodes.pop()  # the edge has nothing left
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 3000})
    net.stop()


def test_s2_one_flipped_bit(net):
    """What is damaged is quarantined with its bytes and told; everything else is delivered."""
    _, relay, far = filled(net)
    path = segments(relay)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    done = spool(relay, "check")
    assert done.returncode not in (0, -6, -11), done
    assert path.name in done.stdout + done.stderr
    relay.start()
    far.start()
    wait_until(lambda: relay.status_or_none() and relay.status()["spool"][0]["quarantined"] == 1, 20, relay.status)
    wait_until(lambda: relay.route("all")["queued"] == 0, 20)
    assert any(a["code"] == "records_quarantined" for a in relay.status()["alarms"])
    received = readers.lines(far.events_dir, "clicks")
    assert 0 < len(received) < 3000
    numbers = [int(line.split(b" ")[1]) for line in received]
    assert numbers == sorted(set(numbers)), "the others once and in order"
    relay.stop()
    far.stop()


def test_s2_repair_keeps_the_bad_bytes(net):
    _, relay, far = filled(net)
    path = segments(relay)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    assert spool(relay, "check").returncode != 0
    done = spool(relay, "repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert spool(relay, "check").returncode == 0
    relay.start()
    far.start()
    wait_until(lambda: relay.status_or_none() and relay.route("all")["queued"] == 0, 20)
    assert 0 < len(readers.lines(far.events_dir, "clicks")) < 3000
    relay.stop()
    far.stop()


def test_s3_a_torn_tail_of_what_was_never_acknowledged(net):
    """Bytes behind the durable end, as a crash in the middle of a write leaves them: cut, and the next append is valid."""
    edge, relay, far = filled(net, 500)
    path = segments(relay)[-1]
    with open(path, "ab") as out:
        out.write(path.read_bytes()[-1000:][:777])
    relay.start()
    edge.start()
    far.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 500, 500)
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 1000})
    net.stop()


def orphaned(node):
    return {alarm["about"]: alarm["text"] for alarm in node.status()["alarms"] if alarm["code"] == "spool_orphaned"}


def test_what_a_renamed_route_or_a_dropped_target_leaves_is_told(net):
    _, relay, far = filled(net, 300)
    relay.start()
    assert not orphaned(relay)
    relay.stop()
    relay.tables["route"][0]["name"] = "renamed"
    relay.write_config()
    relay.start()
    told = orphaned(relay)
    assert list(told) == ["spool all"] and "records" in told["spool all"], told
    relay.wait_log("alarm_raised code=spool_orphaned about=\"spool all\"")
    assert "spool_orphaned" in relay.command("status", "-c", str(relay.config_path)).stdout
    relay.stop()
    # Another target than the one that it waits for.
    relay.tables["route"][0]["name"] = "all"
    relay.tables["upstream"].append({"name": "elsewhere", "addresses": ["127.0.0.1:9"]})
    relay.tables["route"][0]["to"] = ["elsewhere"]
    relay.write_config()
    relay.start()
    told = orphaned(relay)
    assert list(told) == ["spool all for far"] and "records" in told["spool all for far"], told
    relay.stop()
    relay.tables["route"][0]["to"] = ["far"]
    relay.write_config()
    far.start()
    relay.start()
    assert list(orphaned(relay)) == ["spool all for elsewhere"], "which got none of it"
    wait_until(lambda: relay.route("all")["queued"] == 0, 20, relay.status)
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 300})
    net.stop()
