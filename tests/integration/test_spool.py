"""The relay's spool under damage, and its tools."""
import json

import pytest
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


def harm(path):
    """Flips a bit of a line in the middle of a segment; its bytes then."""
    data = bytearray(path.read_bytes())
    data[data.index(b"\ns ", len(data) // 2) + 1] ^= 0x10
    path.write_bytes(data)
    return data


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
    data = harm(path)
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


def test_s2_one_record_of_three_segments(net):
    """S2 as it stands: one bit of record 1,500 in 3 segments of 1,000. 2,999 are delivered, one is quarantined with segment
    and offset and told; SIGTERM ends in 10 s (stop() checks); check exits non-zero, repair 0, and the bad bytes are kept."""
    client = pytest.importorskip("mqtt").Client
    far = net.receiver("far")
    edge = net.node("edge", listener=[{"name": "plain", "bind": f"127.0.0.1:{net.ports.take()}", "allow_anonymous": True}],
                    upstreams={"far": [far.link]},
                    routes=[{"name": "pay", "topics": ["pay/#"], "to": ["far"], "spool": {"max": "1MiB"}}])
    edge.start()
    publisher = client(edge.mqtt_port)
    payload = b"payment %06d" + b"." * 100
    last = [publisher.publish("pay/1", payload % n, qos=1, wait=False) for n in range(3000)][-1]
    wait_until(lambda: publisher.published.get(last) and len(publisher.published) == 3000, 60)
    publisher.close()
    edge.stop()
    listed = json.loads(edge.command("spool", "check", "--json", "-c", str(edge.config_path)).stdout)["data"][0]["segments"]
    assert len(listed) >= 3 and sum(one["records"] for one in listed) == 3000
    for path in segments(edge):
        data = bytearray(path.read_bytes())
        at = data.find(b"payment 001499")
        if at >= 0:
            data[at + 3] ^= 1
            path.write_bytes(data)
            break
    done = spool(edge, "check")
    assert done.returncode == 1 and f"DAMAGED at {path.name}:" in done.stdout, done
    edge.start()
    far.start()
    wait_until(lambda: edge.route("pay")["queued"] == 0, 30, edge.status)
    row = edge.route("pay")
    assert (row["delivered"], row["dropped"], row["dropped_damaged"]) == (2999, 1, 1), row
    assert any(a["code"] == "records_quarantined" for a in edge.status()["alarms"])
    edge.wait_log(f"spool_record_damaged.*segment={path.name} offset=[0-9]+")
    lines = readers.lines(far.events_dir, "pay")
    assert lines == [payload % n for n in range(3000) if n != 1499]
    assert far.status()["receiver"]["gap_events"] == 1
    net.stop()


def test_s2_a_flipped_bit_between_records_costs_none(net):
    """What the records of a batch share stands at both of its ends: one of them may be harmed."""
    _, relay, far = filled(net)
    path = segments(relay)[0]
    data = bytearray(path.read_bytes())
    for end in (b"PHBH", b"PHBF"):
        data[data.index(end, len(data) // 2) + 9] ^= 1
    path.write_bytes(data)
    done = spool(relay, "check")
    assert done.returncode == 1 and "head or foot of a batch" in done.stdout, done
    relay.start()
    relay.stop()
    assert spool(relay, "repair").returncode == 0
    assert spool(relay, "check").returncode == 0
    data[data.index(b"PHBH") + 9] ^= 1
    path.write_bytes(data)
    relay.start()
    far.start()
    net.nodes.pop()  # the edge has nothing left
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 3000})
    assert relay.status()["spool"][0]["quarantined"] == 0
    relay.wait_log("spool_batch_end_damaged")
    net.stop()


def test_s2_repair_keeps_the_bad_bytes(net):
    _, relay, far = filled(net)
    path = segments(relay)[0]
    data = harm(path)
    assert spool(relay, "check").returncode != 0
    done = spool(relay, "repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert spool(relay, "check").returncode == 0
    kept = path.with_name(path.name + ".quarantine").read_bytes()
    assert kept.startswith(b"PHQUAR1\n") and kept[24:] in bytes(data), "the bad bytes are kept"
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


def dead_letters(node, *arguments):
    return node.command("spool", "dead-letter", *arguments, "-c", str(node.config_path))


def listed(node):
    done = dead_letters(node, "list", "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)["data"]


def refused(net):
    """An edge with three dead letters of category `surplus`, and the receiver that refused them."""
    far = net.receiver("far", categories_max=1)
    edge = net.edge("edge", [far])
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 10)
    net.wait_drained(written={"s": 10})
    for n in range(3):
        writers.append_lines(edge.source_dir / "surplus/1.log", "r", n, 1)
        wait_until(lambda n=n: edge.route("all")["dead_lettered"] == n + 1, 10, edge.status)
    wait_until(lambda: len(listed(edge)) == 3, 10)
    return edge, far


def once_old(edge, verb, *which):
    """The verb, said again until none of the letters it is about is too young: each has an age of its own."""
    def done():
        got = dead_letters(edge, verb, *which)
        return got if "younger" not in got.stderr else None
    return wait_until(done, 20)


def test_dead_letters_are_retried_on_a_running_node_exactly_once(net):
    edge, far = refused(net)
    letters = listed(edge)
    assert all(letter["reason"] and letter["category"] == "surplus" and letter["events"] == 1 for letter in letters)
    assert letters[0]["id"] in dead_letters(edge, "list").stdout
    far.stop()
    far.tables["receiver"]["categories_max"] = 10
    far.write_config()
    done = once_old(edge, "retry", letters[1]["id"])
    assert done.returncode == 0 and "1 dead letters (1 events)" in done.stdout, done
    assert dead_letters(edge, "retry", letters[1]["id"]).returncode == 1, "it is no dead letter any more"
    edge.kill()
    edge.start()
    far.start()
    wait_until(lambda: readers.lines(far.events_dir, "surplus"), 20)
    assert readers.lines(far.events_dir, "surplus") == [writers.line("r", 1)[:-1]]
    assert once_old(edge, "retry", "--all").returncode == 0
    wait_until(lambda: len(readers.lines(far.events_dir, "surplus")) == 3, 20)
    net.wait_drained()
    readers.check_once([sorted(readers.lines(far.events_dir, "surplus"))], {"r": 3})
    assert listed(edge) == []
    row = edge.route("all")
    assert (row["in"], row["delivered"], row["dead_lettered"]) == (16, 13, 3), row
    assert edge.status()["dead_letters"] == [{"route": "all", "retried": 3, "retried_events": 3, "dropped": 0, "dropped_events": 0}]
    assert edge.command("audit", "-c", str(edge.config_path)).returncode == 0
    net.stop()


def test_dead_letters_of_a_stopped_node(net):
    edge, far = refused(net)
    letters = listed(edge)
    net.stop()
    far.tables["receiver"]["categories_max"] = 10
    far.write_config()
    assert listed(edge) == letters
    assert dead_letters(edge, "retry").returncode == 2, "which ones?"
    assert once_old(edge, "retry", letters[0]["id"]).returncode == 0
    assert once_old(edge, "drop", letters[1]["id"], "0123456789abcdef").returncode == 1, "one of them is not there"
    assert [letter["id"] for letter in listed(edge)] == [letters[2]["id"]]
    net.start()
    wait_until(lambda: readers.lines(far.events_dir, "surplus"), 20)
    net.wait_drained()
    assert readers.lines(far.events_dir, "surplus") == [writers.line("r", 0)[:-1]]
    assert edge.status()["dead_letters"][0]["dropped"] == 1
    net.stop()


def test_dead_letters_of_a_target_that_is_gone_stay(net):
    edge, far = refused(net)
    edge.stop()
    edge.tables["upstream"][0]["name"] = edge.tables["route"][0]["to"][0] = "renamed"
    edge.write_config()
    edge.start()
    done = once_old(edge, "retry", "--all")
    assert done.returncode == 1 and "not configured" in done.stderr, done
    assert [letter["target"] for letter in listed(edge)].count("next") == 3, "what the new target refuses comes beside them"
    net.stop()


def test_spool_verbs_as_json_and_the_alarm_that_repair_ends(net):
    _, relay, far = filled(net)
    path = segments(relay)[0]
    data = harm(path)
    relay.start()
    far.start()
    wait_until(lambda: [a for a in relay.status()["alarms"] if a["code"] == "records_quarantined"], 20, relay.status)
    relay.stop()
    for verb, code in (("list", None), ("check", None), ("repair", 0)):
        done = relay.command("spool", verb, "--json", "-c", str(relay.config_path))
        assert code in (None, done.returncode), done
        assert {"name", "segments", "released_below"} <= set(json.loads(done.stdout)["data"][0])
    relay.start()
    wait_until(lambda: relay.status_or_none(), 10)
    assert not [a for a in relay.status()["alarms"] if a["code"] == "records_quarantined"]
    assert relay.status()["spool"][0]["quarantined"] == 1, "the count stays"
    assert relay.command("spool", "list", "--route", "nonsense", "-c", str(relay.config_path)).returncode != 0
    net.stop()


def test_route_explain_and_audit(net):
    node = net.node("one", agent={}, receiver={}, listener=True, routes=[
        {"name": "all", "to": ["files"]}, {"name": "pay", "categories": ["pay_*"], "topics": ["pay/#"], "to": ["files"]}])

    def explain(sample, *more):
        done = node.command("route", "explain", sample, "--json", *more, "-c", str(node.config_path))
        return done.returncode, [(r["route"], r["mask"]) for r in json.loads(done.stdout)["routes"]]
    assert explain("pay_eu") == (0, [("pay", "pay_*")])
    assert explain("clicks") == (0, [("all", "")])
    assert explain(str(node.source_dir / "pay_eu/1.log")) == (0, [("pay", "pay_*")])
    assert explain("pay/7") == (0, [("pay", "pay/#")])
    assert explain("other/7") == (1, [])
    assert explain("pay", "--as", "topic") == (0, [("pay", "pay/#")])
    assert node.command("audit", "-c", str(node.config_path)).returncode == 1, "no node answers"
    node.start()
    done = node.command("audit", "--json", "-c", str(node.config_path))
    assert done.returncode == 0 and json.loads(done.stdout)["sound"], done
    node.stop()
