"""What is wrong is told at the right place, and the process goes on."""
import os
import re
import socket
import struct

import link
import pytest
import readers
import writers
from waiting import patience, wait_until

# --- configuration (case A1)

GOOD = """[node]
name = "gw"
site = "ams"
data_dir = "{folder}/data"

[agent]
dir = "{folder}/in"

[receiver]
dir = "{folder}/events"

[[upstream]]
name = "fra"
addresses = ["127.0.0.1:3706"]

[[route]]
name = "default"
to = ["fra", "files"]
"""

# What is put in, behind which line (text), what the complaint says.
WRONG = {
    "an unknown key": ("[agent]", "disk_cach_size = 1", r"disk_cach_size"),
    "a misspelt key, with a suggestion": ("[agent]", 'line_mx = "1MiB"', r"line_mx.*|line_max"),
    "a known key in the wrong table": ("[agent]", 'window = "16MiB"', r"window"),
    "a duplicate key": ("[node]", 'name = "again"', r"name"),
    "a string for an integer": ("[receiver]", 'categories_max = "10"', r"categories_max.*integer|integer"),
    "a bad unit": ("[agent]", 'line_max = "10 megs"', r"megs"),
    "a bare number where a unit belongs": ("[agent]", "line_max = 10", r"line_max"),
    "a route to nowhere": ('name = "default"', 'to = ["nowhere"]', r"nowhere|to"),
}


def place(document, at, text):
    lines = document.split("\n")
    where = lines.index(at) + 1
    return "\n".join(lines[:where] + [text] + lines[where:]), where + 1


@pytest.fixture
def check(program, tmp_path):
    import subprocess
    for name in ("in", "events", "data"):
        (tmp_path / name).mkdir()

    def run(document, *verb):
        path = tmp_path / "posthouse.toml"
        path.write_text(document)
        return subprocess.run([str(program), *(verb or ("config", "check")), str(path)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)

    return run


def test_a_good_configuration_passes(check, tmp_path):
    done = check(GOOD.format(folder=tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", WRONG)
def test_a1_one_error(check, tmp_path, name):
    at, text, complaint = WRONG[name]
    document, number = place(GOOD.format(folder=tmp_path), at, text)
    for verb in (("config", "check"), ("run", "-c")):
        done = check(document, *verb)
        said = done.stdout + done.stderr
        assert done.returncode == 2, (verb, done)
        assert re.search(complaint, said), said
        if name != "a duplicate key":
            assert re.search(rf"posthouse\.toml:{number}:\d+", said), said


def test_a1_all_errors_in_one_run(check, tmp_path):
    document = GOOD.format(folder=tmp_path)
    for name in ("an unknown key", "a known key in the wrong table", "a string for an integer", "a bad unit"):
        document, _ = place(document, *WRONG[name][:2])
    done = check(document)
    said = done.stdout + done.stderr
    assert done.returncode == 2
    for word in ("disk_cach_size", "window", "categories_max", "megs"):
        assert word in said, said
    assert len(re.findall(r"posthouse\.toml:\d+:\d+", said)) >= 4, said


def test_a_misspelt_key_gets_a_suggestion(check, tmp_path):
    document, _ = place(GOOD.format(folder=tmp_path), "[agent]", 'line_mx = "1MiB"')
    done = check(document)
    assert "line_max" in done.stdout + done.stderr


def test_a_default_route_is_required(check, tmp_path):
    document = GOOD.format(folder=tmp_path).replace('name = "default"', 'name = "default"\ncategories = ["a"]')
    done = check(document)
    assert done.returncode == 2 and "route" in done.stdout + done.stderr


def test_text_that_is_no_toml(check):
    done = check("[node\nname = \n")
    assert done.returncode == 2 and re.search(r"posthouse\.toml:1:\d+", done.stdout + done.stderr)
    assert check("\x00\xff" * 100).returncode == 2


def test_the_examples_pass(program):
    import pathlib
    import subprocess
    examples = sorted((pathlib.Path(__file__).resolve().parents[2] / "config").glob("*.toml"))
    if not examples:
        pytest.skip("no examples")
    for path in examples:
        done = subprocess.run([str(program), "config", "check", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
        # Examples name certificates of machines that are not this one; anything else is a fault.
        assert done.returncode == 0, (path.name, done.stderr)


def test_a_port_that_is_taken_is_told(net):
    far = net.receiver("far")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", far.link_port))
        holder.listen()
        far.launch()
        assert far.process.wait(patience(10)) != 0
    assert str(far.link_port) in far.log() and re.search(r"(?i)in use|already", far.log())
    far.process = None


def test_a_directory_that_cannot_be_made_is_told(net):
    far = net.receiver("far")
    far.events_dir.rmdir()
    far.events_dir.write_text("a file\n")
    far.launch()
    assert far.process.wait(patience(10)) != 0
    assert str(far.events_dir) in far.log()
    far.process = None


def test_a_second_process_on_the_same_data_is_refused(net):
    far = net.receiver("far")
    far.start()
    done = far.command("run", "-c", str(far.config_path), seconds=20)
    assert done.returncode not in (0, -11, -6) and done.stderr.strip()
    assert far.running() and far.status()
    net.stop()


# --- the link port

def serving(far, peer_name="by-hand"):
    """The node still takes events from an honest sender."""
    peer = link.Peer(far.link_port)
    assert peer.greet(name=peer_name)[0] == link.HELLO
    peer.resume(7)
    category = f"c{os.urandom(4).hex()}"
    peer.send(link.events(category, b"fine\n", 0, peer.node, stream=7))
    assert link.read_ack(peer.wait_for(link.ACK)[1])["accepted"] == [(0, 5)]
    wait_until(lambda: readers.lines(far.events_dir, category) == [b"fine"], 5)
    peer.close()


def flipped_crc():
    good = link.hello()
    return good[:8] + struct.pack("<I", struct.unpack_from("<I", good, 8)[0] ^ 1) + good[12:]


GARBAGE = {
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 4096, r"link\.\w+"),
    "random bytes": (bytes(range(255, -1, -1)) * 64, r"link\.\w+"),
    "a frame with a wrong CRC": (flipped_crc(), r"link\.bad_crc"),
    "a frame of 4 GiB": (link.frame(link.HELLO, b"x" * 64, length=0xFFFFFFFF), r"link\.frame_too_long"),
    "a frame just over the bound": (link.frame(link.HELLO, b"x" * 64, length=16 * 1024 * 1024 + 1), r"link\.frame_too_long"),
    "a newer frame format": (link.frame(link.HELLO, b"", version=9), r"link\.(newer_format|malformed)"),
    "an empty HELLO": (link.frame(link.HELLO, b""), r"link\.malformed"),
    "EVENTS before HELLO": (link.events("c", b"x\n", 0, b"n" * 16), r"(?i)hello|link\."),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_to_the_link_port(net, name):
    data, complaint = GARBAGE[name]
    far = net.receiver("far")
    far.start()
    peer = link.Peer(far.link_port)
    peer.send(data)
    assert peer.ended(), "the connection is still open"
    far.wait_log(complaint)
    serving(far)
    assert far.note_rss() < 64 * 1024 * 1024
    net.stop()


def test_garbage_behind_a_good_hello(net):
    far = net.receiver("far")
    far.start()
    for body in (link.frame(link.EVENTS, b"\xff" * 100), link.frame(link.RESUME, b"\xff" * 9),
                 link.frame(link.EVENTS, b""), link.events("c", b"no newline", 0, b"n" * 16)[:-3] + b"abc"):
        peer = link.Peer(far.link_port)
        assert peer.greet()[0] == link.HELLO
        peer.send(body)
        assert peer.ended()
        peer.close()
    serving(far)
    net.stop()


def test_a_block_that_is_damaged_inside_a_whole_frame(net):
    """The frame's CRC is right, the block in it is nonsense: refused or the connection ends, never written."""
    far = net.receiver("far")
    far.start()
    peer = link.Peer.resumed(far.link_port)
    packed = link.varint(5) + link.sized(b"\xee" * 40)
    peer.send(link.frame(link.EVENTS, struct.pack("<Q", 1) + link.varint(0) * 3 + link.varint(0) + link.varint(5)
                         + link.varint(1) + b"\0\0" + link.sized(packed)))
    got = peer.next()
    while got is not None and got[0] not in (link.ACK,):
        got = peer.next()
    if got is not None:
        assert link.read_ack(got[1])["rejects"]
    peer.close()
    serving(far)
    assert len(list(far.events_dir.iterdir())) == 1
    net.stop()


def test_another_version_is_refused_with_a_reason(net):
    far = net.receiver("far")
    far.start()
    peer = link.Peer(far.link_port)
    kind, body = peer.greet(protocol=(7, 9))
    if kind == link.HELLO:
        kind, body = peer.wait_for(link.REFUSE)
    assert kind == link.REFUSE and link.Reader(body).sized()
    assert peer.ended()
    serving(far)
    net.stop()


def test_silent_and_slow_connections_do_not_stay(net):
    """Someone connects and says nothing: closed after the handshake timeout; others are served meanwhile."""
    far = net.receiver("far")
    far.start()
    silent = [link.Peer(far.link_port, 20) for _ in range(50)]
    serving(far)
    assert silent[0].ended()
    serving(far)
    for peer in silent:
        peer.close()
    net.stop()


def test_garbage_to_the_mqtt_port(net):
    far = net.receiver("far", listener=True)
    far.start()
    for data in (b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n", b"\x10\xff\xff\xff\x7f" + b"x" * 100, b"\x30\x03\x00\x01a",
                 b"\x10\x0c\x00\x04MQTT\x63\x02\x00\x3c\x00\x00"):
        with socket.create_connection(("127.0.0.1", far.mqtt_port), 5) as out:
            out.sendall(data)
            out.settimeout(20)
            try:
                while out.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    assert far.running() and far.status()
    net.stop()


# --- TLS

class Pki:
    """Certificates made by the product itself: `pki init`, `pki issue`."""

    def __init__(self, net, name):
        self.node = net
        self.folder = net.folder / name
        self.program = net.program
        self.run("init", str(self.folder))

    def run(self, *arguments):
        import subprocess
        done = subprocess.run([str(self.program), "pki", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
        return done

    def issue(self, name):
        self.run("issue", str(self.folder), name, "--ip", "127.0.0.1", "--dns", "localhost")

        def one(*patterns):
            found = [path for pattern in patterns for path in self.folder.rglob(pattern)]
            assert found, (patterns, sorted(self.folder.rglob("*")))
            return found[0]

        key = one(f"{name}.key", f"{name}/key.pem", f"{name}-key.pem", f"{name}/*.key")
        assert key.stat().st_mode & 0o077 == 0, f"the key {key} can be read by others"
        return {"ca": one("ca.crt", "ca.pem"), "cert": one(f"{name}.crt", f"{name}.pem", f"{name}/cert.pem", f"{name}/*.crt"),
                "key": key}


def test_mutual_tls(net):
    pki = Pki(net, "pki")
    far = net.node("far", receiver={}, routes=[{"name": "all", "to": ["files"]}], tls=pki.issue("far"))
    relay = net.node("relay", receiver={"dir": None}, upstreams={"far": [far.link]}, routes=[{"name": "all", "to": ["far"]}],
                     tls=pki.issue("relay"))
    edge = net.edge("edge", [relay], tls=pki.issue("edge"))
    net.start()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 0, 5000)
    net.wait_drained()
    far.kill()
    writers.append_lines(edge.source_dir / "clicks/1.log", "s", 5000, 5000)
    far.start()
    net.wait_drained()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"s": 10_000})
    # Plain bytes to a TLS port.
    peer = link.Peer(far.link_port)
    peer.send(link.hello())
    assert peer.ended()
    far.wait_log(r"(?i)tls")
    assert edge.status()
    net.stop()


def test_a_certificate_of_another_ca(net):
    ours, theirs = Pki(net, "pki"), Pki(net, "other")
    far = net.node("far", receiver={}, routes=[{"name": "all", "to": ["files"]}], tls=ours.issue("far"))
    stranger = net.edge("stranger", [far], tls={**theirs.issue("stranger"), "ca": ours.issue("unused")["ca"]})
    misled = net.edge("misled", [far], tls={**ours.issue("misled"), "ca": theirs.issue("unused")["ca"]})
    honest = net.edge("honest", [far], tls=ours.issue("honest"))
    net.start()
    for edge in (stranger, misled, honest):
        writers.append_lines(edge.source_dir / "clicks/1.log", edge.name, 0, 10)
    honest.wait_idle()
    far.wait_log(r"(?i)certificate|tls|x509")
    misled.wait_log(r"(?i)certificate|tls|x509")
    for edge in (stranger, misled):
        wait_until(lambda edge=edge: edge.status()["upstreams"][0]["receivers"][0]["last_error"], 10)
        assert edge.route("all")["delivered"] == 0 and edge.running()
    readers.check_once([readers.lines(far.events_dir, "clicks")], {"honest": 10})
    net.stop()


def test_a_name_that_is_not_the_certificates_is_refused(net):
    """HELLO's name is the certificate's CN: nobody speaks for another node."""
    pki = Pki(net, "pki")
    far = net.node("far", receiver={}, routes=[{"name": "all", "to": ["files"]}], tls=pki.issue("far"))
    liar = net.edge("liar", [far], tls=pki.issue("somebody"))
    net.start()
    writers.append_lines(liar.source_dir / "clicks/1.log", "s", 0, 10)
    wait_until(lambda: liar.status()["upstreams"][0]["receivers"][0]["last_error"], 10)
    assert far.total("in") == 0 and liar.route("all")["delivered"] == 0
    net.stop()
