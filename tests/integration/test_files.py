"""Producers' files, as programs and logrotate treat them: cases F1-F9."""
import os
import pathlib
import re
import shutil
import tempfile

import link
import pytest
import readers
import writers
from net import QUICK_AGENT, Net
from waiting import holds_for, wait_until

MIB = 1024 * 1024


def edge_and_far(net, **agent):
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent=agent)
    net.start()
    return edge, far


def received(far, category="clicks"):
    return readers.lines(far.events_dir, category)


def text(source, first, count):
    return [writers.line(source, n).rstrip(b"\n") for n in range(first, first + count)]


def has_inode(folder, inode):
    """Whether any file below the folder, hidden ones too, is that inode."""
    return any(os.lstat(os.path.join(at, name)).st_ino == inode for at, _, names in os.walk(folder) for name in names)


def test_f1_a_new_file_with_the_old_ones_inode(net):
    edge, far = edge_and_far(net)
    old = edge.source_dir / "clicks/a.log"
    writers.append_lines(old, "a", 0, 1000)
    net.wait_drained()
    edge.stop()
    # The file system hands a freed inode out again soon, or this test shows less than it could.
    files = [path for path in edge.source_dir.rglob("*") if path.is_file()]
    inode = files[0].stat().st_ino
    files[0].unlink()
    new = edge.source_dir / "clicks/b.log"
    spare = []
    for n in range(200):
        writers.append_lines(new, "b", 0, 10)
        if new.stat().st_ino == inode:
            break
        spare.append(edge.folder / f"spare-{n}")
        new.rename(spare[-1])
    else:
        writers.append_lines(new, "b", 0, 10)
    for path in spare:
        path.unlink()
    writers.appended[new] = 10  # nobody reads the spare ones
    print("same inode" if new.stat().st_ino == inode else "another inode: the file system did not reuse it")
    edge.start()
    wait_until(lambda: received(far)[1000:] == text("b", 0, 10), 2, lambda: received(far)[995:1005])
    net.wait_drained()
    assert len(received(far)) == 1010
    net.stop()


def test_f2_copy_and_truncate(net):
    edge, far = edge_and_far(net)
    path = edge.source_dir / "clicks/a.log"
    writers.append_lines(path, "a", 0, 1000)
    net.wait_drained()
    shutil.copy(path, edge.folder / "copy")
    os.truncate(path, 0)
    writers.append(path, b"after\n")
    wait_until(lambda: received(far)[1000:] == [b"after"], 2, lambda: received(far)[998:])
    net.wait_drained()
    edge.restart()
    holds_for(lambda: len(received(far)) == 1001, 1)
    net.stop()


def test_f3_two_rotations_while_the_agent_is_down(net):
    edge, far = edge_and_far(net)
    path = edge.source_dir / "clicks/app.log"
    writers.append_lines(path, "one", 0, 100)
    net.wait_drained()
    edge.stop()
    writers.append_lines(path, "one", 100, 100)
    path.rename(path.with_name("app.log.1"))
    writers.append_lines(path, "two", 0, 100)
    path.with_name("app.log.1").rename(path.with_name("app.log.2"))
    path.rename(path.with_name("app.log.1"))
    writers.append_lines(path, "three", 0, 100)
    edge.start()
    wait_until(lambda: len(received(far)) >= 400, 10)
    net.wait_drained()
    assert received(far) == text("one", 0, 200) + text("two", 0, 100) + text("three", 0, 100)
    net.stop()


def test_f4_a_descriptor_that_outlives_the_rename(net):
    edge, far = edge_and_far(net, **QUICK_AGENT)
    folder = edge.source_dir / "clicks"
    folder.mkdir()
    held = os.open(folder / "x.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    inode = os.fstat(held).st_ino
    os.write(held, b"c1\n")
    (folder / "x.log").rename(folder / "x.old")
    os.write(held, b"c2\n")
    writers.append(folder / "x.log", b"c3\n")
    wait_until(lambda: sorted(received(far)) == [b"c1", b"c2", b"c3"], 10, lambda: received(far))
    edge.restart()
    os.write(held, b"c4\n")
    wait_until(lambda: sorted(received(far)) == [b"c1", b"c2", b"c3", b"c4"], 10, lambda: received(far))
    holds_for(lambda: os.fstat(held).st_nlink == 1, 4, "the file stays while it is held")
    os.close(held)
    wait_until(lambda: not has_inode(edge.source_dir, inode), 15, "deleted once it is free")
    assert sorted(received(far)) == [b"c1", b"c2", b"c3", b"c4"]
    net.stop()


def test_f5_equal_beginnings_and_empty_files(net):
    edge, far = edge_and_far(net)
    same = b"".join(b"the same %d\n" % n for n in range(500))[:4096]
    for n in range(3):
        (edge.source_dir / f"empty-{n}").mkdir()
        (edge.source_dir / f"empty-{n}/1.log").touch()
        writers.append(edge.source_dir / f"clicks/{n}.log", same + b"\ntail %d\n" % n)
    (edge.source_dir / "clicks/9.log").touch()
    net.wait_drained()
    assert sorted(line for line in received(far) if line.startswith(b"tail")) == [b"tail 0", b"tail 1", b"tail 2"]
    assert len(received(far)) == 3 * (same.count(b"\n") + 2)
    edge.restart()
    for n in range(3):
        writers.append(edge.source_dir / f"empty-{n}/1.log", b"first %d\n" % n)
    writers.append(edge.source_dir / "clicks/9.log", same + b"\n")
    net.wait_drained()
    wait_until(lambda: [received(far, f"empty-{n}") for n in range(3)] == [[b"first %d" % n] for n in range(3)], 5)
    assert len(received(far)) == 3 * (same.count(b"\n") + 2) + same.count(b"\n") + 1
    net.stop()


@pytest.fixture
def open_net(program, rng):
    """Like net, in a folder that other users can reach, the program included: the tree may lie in somebody's home."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="posthouse-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    made = Net(shutil.copy(program, folder / "program"), folder, rng)
    yield made
    for node in made.nodes:
        print(f"--- last of the log of {node.name}\n{node.log(whole=True)[-2500:]}")
    made.end()
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_f6_another_users_file_is_never_deleted_without_the_right_to_prove(open_net):
    net = open_net
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent=QUICK_AGENT, user=65534)
    os.chmod(edge.source_dir, 0o777)
    folder = edge.source_dir / "clicks"
    folder.mkdir()
    os.chmod(folder, 0o777)
    net.start()
    with open(folder / "1.log", "ab", buffering=0) as held:  # root's, the agent is nobody
        held.write(b"one\n")
        inode = os.fstat(held.fileno()).st_ino
        wait_until(lambda: received(far) == [b"one"], 10)
        holds_for(lambda: has_inode(edge.source_dir, inode), 5, "held by its writer")
    # Free now, but not provably so for this user: it stays, and status says why.
    kept = wait_until(lambda: edge.status().get("kept_files"), 15, lambda: edge.status())
    assert any(row["reason"] for row in kept), kept
    holds_for(lambda: has_inode(edge.source_dir, inode), 3)
    assert "no proof" in edge.command("status", "-c", str(edge.config_path)).stdout
    net.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the capability to take leases on other users' files")
def test_f6_with_the_right_to_prove_it_is_deleted_when_free(open_net):
    net = open_net
    far = net.receiver("far")
    edge = net.edge("edge", [far], agent=QUICK_AGENT)
    net.start()
    folder = edge.source_dir / "clicks"
    folder.mkdir()
    path = folder / "1.log"
    path.touch()
    os.chown(path, 65534, 65534)
    with open(path, "ab", buffering=0) as held:
        held.write(b"one\n")
        inode = os.fstat(held.fileno()).st_ino
        wait_until(lambda: received(far) == [b"one"], 10)
        holds_for(lambda: os.fstat(held.fileno()).st_nlink == 1, 4)
    wait_until(lambda: not has_inode(edge.source_dir, inode), 15)
    net.stop()


BAD_CATEGORIES = ["..", "../evil", "a/b", "", "x" * 300, "new\nline", "nul\0byte", ".hidden", "/absolute", "a/../../b", "\x7f"]


def test_f7_bad_categories_from_a_peer(net):
    """Each is refused for good with a reason, touches nothing, and the link goes on."""
    far = net.receiver("far")
    far.start()

    def places():
        return {folder: sorted(os.listdir(folder)) for folder in (net.folder.parent, net.folder, far.folder)}

    before = places()
    peer = link.Peer.resumed(far.link_port)
    at, refused = 0, {}
    for category in BAD_CATEGORIES:
        payload = b"evil\n"
        peer.send_events(link.events(category, payload, at, peer.node))
        ack = link.read_ack(peer.wait_for(link.ACK)[1])
        assert ack["accepted"] == [(at, at + len(payload))] and len(ack["rejects"]) == 1, (category, ack)
        first, last, reason = ack["rejects"][0]
        assert (first, last) == (at, at + len(payload)) and reason
        refused[category] = reason
        at += len(payload)
    peer.send_events(link.events("good", b"fine\n", at, peer.node))
    ack = link.read_ack(peer.wait_for(link.ACK)[1])
    assert ack["accepted"][-1][1] == at + 5 and not [row for row in ack["rejects"] if row[0] >= at]
    wait_until(lambda: received(far, "good") == [b"fine"], 5)
    assert places() == before and os.listdir(far.events_dir) == ["good"]
    status = far.status()
    assert status["receiver"]["rejected"] == len(BAD_CATEGORIES), status["receiver"]
    print(refused)
    peer.close()
    net.stop()


def test_f7_odd_directories_of_producers(net):
    """Hidden ones and odd kinds are skipped, a name that no receiver can take is a dead letter, the rest goes on."""
    edge, far = edge_and_far(net)
    writers.append(edge.source_dir / ".hidden/1.log", b"hidden\n")
    writers.append(edge.source_dir / "clicks/.1.log.swp", b"hidden\n")
    writers.append(edge.source_dir / ("long" * 60) / "1.log", b"long\n")
    os.mkfifo(edge.source_dir / "clicks-fifo")
    os.symlink("/etc/passwd", edge.source_dir / "passwd.log")
    os.symlink("/etc", edge.source_dir / "etc")
    writers.append(edge.source_dir / "clicks/1.log", b"fine\n")
    wait_until(lambda: received(far) == [b"fine"], 10)
    wait_until(lambda: edge.route("all")["queued"] == 0, 10, lambda: edge.status())
    assert {path.name for path in far.events_dir.iterdir()} == {"clicks"}
    net.stop()


def test_f8_many_short_lives(net, full):
    """Files come, are shipped and deleted: the memory of them goes too."""
    count = 10_000 if full else 2_000
    edge, far = edge_and_far(net, **QUICK_AGENT)
    for n in range(count):
        writers.append(edge.source_dir / f"clicks/{n:06d}.log", b"line %d\n" % n)
    wait_until(lambda: len(received(far)) == count, 60, lambda: len(received(far)))
    net.wait_drained()

    def left():
        return [path for path in edge.source_dir.rglob("*") if path.is_file()]

    wait_until(lambda: not left(), 60, lambda: f"{len(left())} files left: {left()[:3]}")
    assert sorted(received(far)) == sorted(b"line %d" % n for n in range(count))
    edge.restart()
    edge.stop()
    stores = [path for path in edge.data.rglob("*") if path.is_file() and "spool" not in path.parts]
    journal = sum(path.stat().st_size for path in stores if "store.journal" in path.parts)
    size = sum(path.stat().st_size for path in stores) - journal
    assert size < MIB, f"the cursor store takes {size} bytes: {stores}"
    assert journal <= 16 * MIB  # of fixed size, whatever goes through it (appliance/io/docs/store_journal.md)


def test_f9_a_line_without_end(net, full):
    """Memory stays bounded, the policy holds (split: nothing is lost), the file that follows is delivered."""
    edge, far = edge_and_far(net)
    size = (200 if full else 64) * MIB
    path = edge.source_dir / "clicks/endless.log"
    path.parent.mkdir()
    with open(path, "wb") as out:
        for _ in range(size // MIB):
            out.write(b"x" * MIB)
    writers.append(edge.source_dir / "clicks/next.log", b"next\n")
    wait_until(lambda: any(b"next\n" == chunk.read_bytes()[-5:] for chunk in readers.chunks(far.events_dir, "clicks")), 60)
    with open(path, "ab") as out:
        out.write(b"\n")
    wait_until(lambda: sum(chunk.stat().st_size for chunk in readers.chunks(far.events_dir, "clicks")) >= size, 60)
    net.wait_drained()
    assert sum(line.count(b"x") for line in received(far)) - 1 == size, "next has an x too"
    for node in (edge, far):
        assert node.note_rss() < 64 * MIB, f"{node.name} took {node.peak_rss} bytes"
    net.stop()


def test_a_partial_line_waits_for_its_newline(net):
    edge, far = edge_and_far(net)
    path = edge.source_dir / "clicks/1.log"
    writers.append(path, b"whole\npart")
    wait_until(lambda: received(far) == [b"whole"], 10)
    holds_for(lambda: received(far) == [b"whole"], 1)
    writers.append(path, b"ial\n")
    wait_until(lambda: received(far) == [b"whole", b"partial"], 5)
    net.stop()


def test_a_partial_line_of_a_deleted_file_is_delivered_with_a_newline(net):
    edge, far = edge_and_far(net, **QUICK_AGENT)
    writers.append(edge.source_dir / "clicks/1.log", b"whole\npart")
    wait_until(lambda: received(far) == [b"whole", b"part"], 20, lambda: received(far))
    wait_until(lambda: not [path for path in edge.source_dir.rglob("*") if path.is_file()], 20)
    net.stop()


def test_categories_as_lsd_names_them(net):
    edge, far = edge_and_far(net)
    for name in ("plain", "plain.log", "big_big", "big_big.log", "old.log.old", "inner/202611300900.log", "inner/whatever"):
        writers.append(edge.source_dir / name, name.encode() + b"\n")
    writers.append(edge.source_dir / "inner/deeper/1.log", b"ignored\n")
    net.wait_drained()
    wait_until(lambda: len(received(far, "inner")) == 2 and len(received(far, "plain")) == 2
               and len(received(far, "big")) == 2 and len(received(far, "old")) == 1, 10)
    assert {path.name for path in far.events_dir.iterdir()} == {"plain", "big", "old", "inner"}
    net.stop()


def test_chunks_rotate_by_size_and_age_and_a_plain_log_grows(net):
    far = net.receiver("far", category=[{"match": ["plain"], "mode": "plain"},
                                        {"match": ["*"], "chunk_max": "16KiB", "chunk_interval": "1s"}])
    edge = net.edge("edge", [far])
    net.start()
    for n in range(20):
        writers.append_lines(edge.source_dir / "clicks/1.log", "s", 10 * n, 10)
        writers.append_lines(edge.source_dir / "plain/1.log", "s", 10 * n, 10)
        net.wait_drained()
    names = [path.name for path in readers.chunks(far.events_dir, "clicks")]
    assert len(names) >= 3 and [int(re.search(r"_(\d+)$", name)[1]) for name in names] == list(range(1, len(names) + 1))
    readers.check_once([received(far)], {"s": 200})
    readers.check_current(far.events_dir, "clicks")
    wait_until(lambda: (far.events_dir / "plain").read_bytes() == b"".join(writers.line("s", n) for n in range(200)), 5)
    net.stop()


def blocked(node):
    return {alarm["about"] for alarm in node.status()["alarms"] if alarm["code"] == "category_blocked"}


def test_something_in_a_categorys_place_holds_it_and_nothing_else(net):
    """A stray file, a symlink, and what another mode left: nothing is rejected, and it goes on by itself."""
    far = net.receiver("far", category=[{"match": ["p*"], "mode": "plain"}])
    other = net.receiver("other")
    edge = net.edge("edge", [far], routes=[{"name": "all", "to": ["next"]},
                                                       {"name": "two", "categories": ["both"], "to": ["pair"]}], agent=QUICK_AGENT)
    edge.tables["upstream"].append({"name": "pair", "addresses": [far.link, other.link]})
    edge.write_config()
    net.start()
    writers.append(edge.source_dir / "free/1.log", b"first\n")
    wait_until(lambda: received(far, "free") == [b"first"], 10)
    stray = [far.events_dir / name for name in ("clicks", "both", "linked", "plain")]
    stray[0].write_bytes(b"stray\n")
    stray[1].write_bytes(b"stray\n")
    stray[2].symlink_to("/nowhere")
    stray[3].mkdir()
    inodes = []
    for name in ("both", "clicks", "linked", "plain"):
        writers.append(edge.source_dir / name / "1.log", b"held\n")
        inodes += [path.stat().st_ino for path in (edge.source_dir / name).iterdir() if name != "both"]
    wait_until(lambda: blocked(far) >= {str(stray[0]), str(stray[2]), str(stray[3])}, 10, lambda: far.status()["alarms"])
    wait_until(lambda: received(other, "both") == [b"held"], 15, lambda: edge.status())
    writers.append(edge.source_dir / "free/2.log", b"second\n")
    wait_until(lambda: received(far, "free") == [b"first", b"second"], 10, lambda: received(far, "free"))
    # Longer than files take to go that are done with.
    holds_for(lambda: all(has_inode(edge.source_dir, inode) for inode in inodes), 4)
    row = edge.route("all")
    # Taken back: they count as read again when their receiver takes them.
    assert (row["in"], row["delivered"], row["dead_lettered"], row["dropped"]) == (2, 2, 0, 0), row
    agent = edge.status()["agent"]
    assert agent["held_lanes"] == 3 and agent["taken_back_bytes"] >= 3 * len(b"held\n"), agent
    assert far.status()["receiver"]["rejected"] == 0
    assert str(stray[0]) in far.command("status", "-c", str(far.config_path)).stdout
    far.restart()
    wait_until(lambda: str(stray[3]) in blocked(far), 10, "so it is after a restart")
    for path in stray[:3]:
        path.unlink()
    stray[3].rmdir()
    wait_until(lambda: received(far) == received(far, "linked") == [b"held"], 15, lambda: far.status()["alarms"])
    wait_until(lambda: stray[3].is_file() and stray[3].read_bytes() == b"held\n", 10)
    wait_until(lambda: not blocked(far), 10, lambda: blocked(far))
    net.wait_drained()
    assert edge.total("dead_lettered") == 0
    net.stop()


def test_something_in_a_categorys_place_holds_a_nodes_own_files_too(net):
    node = net.node("one", agent={}, receiver={}, routes=[{"name": "all", "to": ["files"]}])
    (node.events_dir / "clicks").write_bytes(b"stray\n")
    net.start()
    writers.append(node.source_dir / "clicks/1.log", b"held\n")
    wait_until(lambda: blocked(node) == {str(node.events_dir / "clicks")}, 10, lambda: node.status()["alarms"])
    writers.append(node.source_dir / "free/1.log", b"free\n")
    wait_until(lambda: received(node, "free") == [b"free"], 10)
    node.restart()
    wait_until(lambda: blocked(node), 10)
    (node.events_dir / "clicks").unlink()
    wait_until(lambda: received(node) == [b"held"], 10, lambda: node.status()["alarms"])
    net.wait_drained()
    assert node.route("all")["dead_lettered"] == 0 and not blocked(node)
    net.stop()
