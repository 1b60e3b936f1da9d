"""receiver.lsd: clients of LSD's protocol, real bytes and hostile ones."""
import contextlib
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import lsd
import pytest
import readers
from waiting import patience, wait_until

MIB = 1024 * 1024
CAPTURED = bytes.fromhex("0000002b000000010a250a06636c69636b7310a2c6b205181222066669727374"
                         "0a220c7365636f6e64206c696e650a")
CAPTURED_ANSWER = bytes.fromhex("0000000d000000020a0708a2c6b2051012")


@pytest.fixture
def far(net):
    node = lsd_receiver(net)
    net.start()
    return node


def lsd_receiver(net, name="far", **keys):
    node = net.node(name, receiver={"link": None, "lsd": f"127.0.0.1:{net.ports.take()}", **keys},
                    routes=[{"name": "all", "to": ["files"]}])
    node.lsd_port = int(node.tables["receiver"]["lsd"].rsplit(":", 1)[1])
    return node


def test_captured_bytes_are_answered_as_captured(far):
    client = lsd.Client(far.lsd_port)
    client.send(CAPTURED)
    assert lsd.read_exactly(client.socket, len(CAPTURED_ANSWER)) == CAPTURED_ANSWER
    client.send(bytes.fromhex("0000000400000001"))
    assert lsd.read_exactly(client.socket, 8) == bytes.fromhex("0000000400000002")
    client.send(bytes.fromhex("00000013000000010a0d0a03612f62100118052202780a"))
    wanted = bytes.fromhex("0000001f0000000108011217") + b"Failed to write results"
    assert lsd.read_exactly(client.socket, len(wanted)) == wanted
    client.send(bytes.fromhex("00000027000000010a130a02703110ac0218f0a2042202610a2202620a0a0c0a02703210021802" "2202630a"))
    kind, body = client.answer()
    assert kind == lsd.OFFSETS and sorted(lsd.read_offsets(body)) == [(2, 2), (300, 70000)]
    assert readers.lines(far.events_dir, "clicks") == [b"first", b"second line"]
    assert readers.lines(far.events_dir, "p1") == [b"a", b"b"] and readers.lines(far.events_dir, "p2") == [b"c"]
    assert far.route("all")["delivered"] == 5
    far.restart()
    assert far.route("all")["delivered"] == 5, "the counters are on disk"
    far.balanced()


def test_segments_split_anywhere_and_pipelined_requests_are_answered_in_order(far):
    client = lsd.Client(far.lsd_port)
    for byte in CAPTURED:
        client.send(bytes([byte]))
    assert client.answer()[0] == lsd.OFFSETS
    client.send(b"".join(lsd.request(lsd.event("piped", n, n + 1, [b"%d\n" % n])) for n in range(500)))
    for n in range(500):
        kind, body = client.answer()
        assert kind == lsd.OFFSETS and lsd.read_offsets(body) == [(n, n + 1)]
    assert readers.lines(far.events_dir, "piped") == [b"%d" % n for n in range(500)]


def test_equal_tokens_are_answered_as_often_as_they_came(far):
    client = lsd.Client(far.lsd_port)
    client.accepted(*[lsd.event("same", 7, 7, [b"x\n"])] * 3, lsd.event("same", 8, 0, [b"y\n"]),
                    lsd.event("same", 2**64 - 1, 2**64 - 1, [b"z\n"]))


def test_frames_of_sixteen_mebibytes_and_lines_of_any_length(far):
    client = lsd.Client(far.lsd_port, 60)
    head = len(lsd.event("big", 1, 2, [b"x" * (MIB * 15)])) - MIB * 15
    line = b"x" * (16 * MIB - 4 - head - 1) + b"\n"
    body = lsd.event("big", 1, 2, [line])
    assert len(body) + 4 == 16 * MIB
    client.accepted(body)
    assert [len(one) for one in readers.lines(far.events_dir, "big")] == [len(line) - 1]
    for length in (16 * MIB + 1, 3, 0, 2**32 - 1):
        bad = lsd.Client(far.lsd_port)
        bad.send(struct.pack(">II", length, 1) + b"x" * 100)
        assert bad.ended(), f"length {length} closes the connection without a word"
    client.accepted(lsd.event("big", 3, 4, [b"short\n"]))


def test_many_large_frames_at_once_stay_within_memory(far):
    line = b"y" * 999_999 + b"\n"
    clients = [lsd.Client(far.lsd_port, 120) for _ in range(8)]
    for client in clients:
        client.send(lsd.frame(lsd.REQUEST, b"", length=15 * MIB)[:8])  # announced, not sent yet
    other = lsd.Client(far.lsd_port, 120)
    other.accepted(lsd.event("small", 1, 1, [b"small ones pass by\n"]))
    for client in clients:
        client.close()
    client = lsd.Client(far.lsd_port, 120)
    for n in range(8):
        client.accepted(lsd.event("large", n, n, [line] * 15))
    assert len(readers.lines(far.events_dir, "large")) == 120
    assert far.note_rss() < 160 * MIB, f"{far.peak_rss} bytes"


def test_empty_lines_are_acknowledged_and_a_missing_newline_is_added(far):
    client = lsd.Client(far.lsd_port)
    client.accepted(lsd.event("e", 1, 1, [b"", b"one\n", b"", b"two"]), lsd.event("e", 1, 2, []), lsd.event("e", 1, 3, [b""]),
                    lsd.event("e", 1, 4, [b"\n", b"three\nfour\n"]))
    assert readers.lines(far.events_dir, "e") == [b"one", b"two", b"", b"three", b"four"]


def test_gzip_loses_no_tail_and_no_bomb_goes_off(far):
    client = lsd.Client(far.lsd_port, 60)
    tail = b"t" * 2000  # without its newline: real servers drop and acknowledge it
    client.accepted(lsd.event("z", 1, 1, [b"a\n" * 600, tail], compressed=True), lsd.event("plain", 1, 2, [b"b\n"]))
    assert readers.lines(far.events_dir, "z") == [b"a"] * 600 + [tail]
    bomb = lsd.event("z", 1, 3, [b"\0" * (40 * MIB)], compressed=True)
    garbage = lsd.field(1, lsd.field(1, b"z") + lsd.number(2, 1) + lsd.number(3, 4) + lsd.field(4, b"no gzip" * 200)
                        + lsd.number(5, 1))
    for bad in (bomb, garbage):
        assert client.refused(lsd.event("whole", 5, 5, [b"or not at all\n"]), bad) == (-1, "Failed to write results")
    assert readers.lines(far.events_dir, "whole") == [], "a request is taken whole or not at all"
    client.accepted(lsd.event("z", 1, 5, [b"again\n"]))
    assert far.note_rss() < 160 * MIB


def test_a_body_that_is_none_leaves_the_connection_usable(far):
    client = lsd.Client(far.lsd_port)
    for body in (b"\x0a\x05\x0a", b"\x08\x01", b"\xff" * 20, lsd.field(1, lsd.field(1, b"c"))):
        client.send(lsd.frame(lsd.REQUEST, body))
        kind, answer = client.answer()
        assert kind == lsd.GENERIC and lsd.read_error(answer)[0] == -1
        assert lsd.read_error(answer)[1].startswith("parse error: ")
    client.send(lsd.frame(77, b""))
    assert lsd.read_error(client.answer()[1]) == (-1, "parse error: unknown message_id: 77")
    client.send(lsd.request(lsd.field(1, lsd.field(9, b"later versions may add fields") + lsd.field(1, b"u") + lsd.number(2, 1)
                                      + lsd.number(3, 1) + lsd.field(4, b"u\n") + lsd.number(15, 3))))
    assert client.answer()[0] == lsd.OFFSETS
    assert readers.lines(far.events_dir, "u") == [b"u"]


def test_no_category_leaves_the_directory(far):
    before = sorted(os.listdir(far.folder))
    client = lsd.Client(far.lsd_port)
    for bad in ("..", "../evil", "a/b", "", ".hidden", "x" * 201, "x" * 300, "new\nline", "nul\0", "del\x7f", "/abs"):
        assert client.refused(lsd.event(bad, 1, 1, [b"x\n"])) == (-1, "Failed to write results"), bad
    client.accepted(lsd.event("x" * 200, 1, 1, [b"x\n"]))
    assert sorted(os.listdir(far.folder)) == before
    assert [name for name in os.listdir(far.events_dir) if not name.startswith(".")] == ["x" * 200]
    wait_until(lambda: far.status()["receiver"]["lsd_refused"] == 11, 5)


def test_what_stands_in_a_categorys_place_refuses_it_alone(far):
    (far.events_dir / "taken").write_text("a file of somebody else")
    client = lsd.Client(far.lsd_port)
    assert client.refused(lsd.event("taken", 1, 1, [b"x\n"])) == (-1, "Failed to write results")
    client.accepted(lsd.event("free", 1, 2, [b"x\n"]))
    (far.events_dir / "taken").unlink()
    wait_until(lambda: client.ask(lsd.event("taken", 1, 1, [b"x\n"]))[0] == lsd.OFFSETS, 10)
    assert readers.lines(far.events_dir, "taken") == [b"x"]


def test_the_number_of_categories_is_bounded(net):
    far = lsd_receiver(net, categories_max=3)
    net.start()
    client = lsd.Client(far.lsd_port)
    for n in range(3):
        client.accepted(lsd.event(f"c{n}", 1, n, [b"x\n"]))
    assert client.refused(lsd.event("c3", 1, 9, [b"x\n"])) == (-1, "Failed to write results")
    client.accepted(lsd.event("c1", 1, 10, [b"x\n"]))


def test_what_was_answered_survives_kill(net, rng):
    far = lsd_receiver(net)
    net.start()
    answered = set()
    for turn in range(5):
        client = lsd.Client(far.lsd_port)
        until = time.monotonic() + rng.uniform(0.2, 0.6)
        n = 0
        while time.monotonic() < until:
            client.accepted(*[lsd.event("k", turn, n * 10 + i, [b"%d-%d-%d\n" % (turn, n, i)]) for i in range(10)])
            answered.update(b"%d-%d-%d" % (turn, n, i) for i in range(10))
            n += 1
        client.send(lsd.request(lsd.event("k", turn, 9, [b"in flight\n"] * 100)))
        far.kill()
        far.start()
        client.close()
    got = [one for one in readers.lines(far.events_dir, "k") if one != b"in flight"]
    assert answered <= set(got) and len(got) == len(set(got))


def test_no_answer_leaves_before_its_lines_are_synced(net):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    far = lsd_receiver(net)
    net.start()
    trace = far.folder / "trace"
    strace = subprocess.Popen(["strace", "-f", "-o", str(trace), "-s", "64", "-p", str(far.pid), "-e",
                               "trace=fdatasync,fsync,syncfs,sendmsg,sendto,write,writev,pwrite64,pwritev,pwritev2"],
                              stderr=subprocess.DEVNULL)

    def calls():
        return trace.read_text(errors="replace").splitlines() if trace.exists() else []

    answer = r"\0\0\0\n\0\0\0\2"
    try:
        client = lsd.Client(far.lsd_port)
        # Until what it traces is seen: it has attached to every thread then.
        wait_until(lambda: client.accepted(lsd.event("warm", 1, 1, [b"up\n"])) and any("up" in one for one in calls())
                   and any(answer in one for one in calls()), 10)
        client.accepted(lsd.event("warm", 1, 2, [b"needle in the file\n"]))
        wait_until(lambda: any(answer in one for one in calls()[next((i for i, one in enumerate(calls()) if "needle in" in one),
                                                                      len(calls())):]), 10)
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait(patience(10))
    every = calls()
    written = max(i for i, one in enumerate(every) if "needle in" in one and "write" in one)
    synced = next(i for i, one in enumerate(every) if i > written and "sync" in one)
    answered = next(i for i, one in enumerate(every) if i > written and answer in one)
    assert synced < answered, "\n".join(every[written:])


def test_stopping_says_so(far):
    client = lsd.Client(far.lsd_port)
    client.accepted(lsd.event("c", 1, 1, [b"x\n"]))
    far.stop()
    assert client.ended()


def test_full_disk_is_back_pressure_not_an_error_loop(net):
    place = tempfile.mkdtemp()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place]).returncode:
        os.rmdir(place)
        pytest.skip("no file system of its own can be mounted here")
    try:
        far = lsd_receiver(net, dir=place + "/events")
        net.start()
        client = lsd.Client(far.lsd_port, 60)
        client.accepted(lsd.event("c", 1, 1, [b"before\n"]))
        filler = os.open(place + "/filler", os.O_WRONLY | os.O_CREAT)
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(filler, b"\0" * size)
        os.close(filler)
        lines = [b"%07d" % n + b"x" * 292 + b"\n" for n in range(3000)]
        client.send(lsd.request(lsd.event("c", 1, 2, lines)))
        client.socket.settimeout(3)
        with pytest.raises(TimeoutError):
            client.answer()
        wait_until(lambda: far.status()["receiver"]["lsd_held"] == 1, 10)
        impatient = lsd.Client(far.lsd_port)
        impatient.send(lsd.request(lsd.event("c", 5, 5, [b"the client gave up and will send it again\n" * 1000])))
        wait_until(lambda: far.status()["receiver"]["lsd_held"] == 2, 10)
        impatient.close()
        wait_until(lambda: far.status()["receiver"]["lsd_held"] == 1, 10)
        os.unlink(place + "/filler")
        client.socket.settimeout(10)
        kind, body = client.answer()
        assert kind == lsd.OFFSETS and lsd.read_offsets(body) == [(1, 2)]
        got = readers.lines(far.events_dir, "c")
        assert got == [b"before"] + [one[:-1] for one in lines], "no torn line, nothing twice, nothing of who gave up"
        far.stop()
    finally:
        for node in net.nodes:
            node.end()
        subprocess.run(["umount", place])
        os.rmdir(place)
