"""The way from the kernel's queue to CONNECT: ports, descriptors, time, and pages of strangers."""
import pathlib
import re
import resource
import subprocess
import time

import pytest
from mqtt_wire import BINARY, CONNACK, UPGRADE, alive, connect_packet, frame, gateway_of_each_kind, open_tcp, open_tls, read, read_all, read_frame
from waiting import patience, wait_until

WAIT = 30
BROWSER = ("GET /mqtt HTTP/1.1\r\nHost: gw.example:8083\r\nConnection: keep-alive, Upgrade\r\nPragma: no-cache\r\nCache-Control: no-cache\r\n"
           "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nUpgrade: websocket\r\n"
           "Origin: {}\r\nSec-WebSocket-Version: 13\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.5\r\n"
           "Cookie: session=abc; theme=dark\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
           "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nSec-WebSocket-Protocol: mqtt\r\n"
           "Sec-Fetch-Dest: empty\r\nSec-Fetch-Mode: websocket\r\nSec-Fetch-Site: cross-site\r\n\r\n")


# --- ports

@pytest.mark.parametrize("address, other", [("127.0.0.1", "127.0.0.1"), ("[::]", "127.0.0.1"), ("127.0.0.1", "")])
def test_a_second_node_on_a_port_is_refused_however_many_workers_either_has(net, address, other):
    port = net.ports.take()
    first = net.node("first", listener=[{"bind": f"{address}:{port}", "allow_anonymous": True}], broker={"workers": 3}).start()
    for workers in (1, 3):
        second = net.node(f"second-{workers}", listener=[{"bind": f"{other}:{port}"}], broker={"workers": workers}).launch()
        assert second.process.wait(patience(WAIT)) == 1
        assert re.search(rf"net\.in_use.*{port}", second.log()), second.log()
        second.process = None
    for i in range(12):  # still with the first, whichever worker has them
        with open_tcp(port) as of:
            of.sendall(connect_packet(f"c{i}"))
            assert read(of, 4) == CONNACK
    assert first.status()["mqtt"]["connections"] >= 0 and first.running()
    first.restart()


def test_connections_max_is_for_all_workers_of_a_listener(net):
    port = net.ports.take()
    listener = {"bind": f"127.0.0.1:{port}", "allow_anonymous": True, "connections_max": 6}
    node = net.node("gw", listener=[listener], broker={"workers": 3}).start()
    kept = []

    def try_one(name):
        of = open_tcp(port)
        try:
            of.sendall(connect_packet(name))
            if read(of, 4) == CONNACK:
                kept.append(of)
                return True
        except ConnectionError:
            pass
        of.close()
        return False

    let_in = [try_one(f"c{i}") for i in range(24)]  # the kernel shares them out as it likes
    assert let_in == [True] * 6 + [False] * 18
    kept.pop().close()
    wait_until(lambda: try_one("again"), WAIT, "a place is free again")
    assert not try_one("one more")
    for of in kept:
        of.close()


def test_two_nodes_that_start_together_do_not_share_a_port(net):
    for attempt in range(5):
        port = net.ports.take()
        both = [net.node(f"n{attempt}-{i}", listener=[{"bind": f"127.0.0.1:{port}"}], broker={"workers": 2}).launch() for i in range(2)]
        wait_until(lambda both=both: any(one.process.poll() is not None for one in both), WAIT, "one of them gives up")
        left = [one for one in both if one.process.poll() is None]
        assert len(left) == 1, [one.log() for one in both]
        left[0].wait_ready()
        for one in both:
            one.end()


# --- descriptors

def test_few_descriptors_are_told_and_leave_the_node_answerable(net):
    node = net.node("gw", listener=[{"bind": f"127.0.0.1:{net.ports.take()}"}], broker={"workers": 2})
    node.launch()
    node.wait_ready()
    node.stop()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    node.process = None
    node.log_from = node.log_path.stat().st_size
    with open(node.log_path, "ab") as log:
        node.process = subprocess.Popen([str(node.program), "run", "-c", str(node.config_path)], stdin=subprocess.DEVNULL, stdout=log,
                                        stderr=log, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    node.wait_ready()
    assert re.search(r"descriptor_limit_low.*descriptors_max=256", node.log())
    assert before == resource.getrlimit(resource.RLIMIT_NOFILE)
    many = []
    for _ in range(400):
        many.append(open_tcp(node.mqtt_port))
    wait_until(lambda: node.status()["mqtt"]["accept_pauses"] > 0, WAIT)
    status = node.status()
    assert "descriptors_exhausted" in [alarm["code"] for alarm in status["alarms"]], status["alarms"]
    assert status["mqtt"]["refused_descriptors"] > 0
    for _ in range(20):
        node.status()
    assert len(list(pathlib.Path(f"/proc/{node.pid}/fd").iterdir())) <= 256 - 32
    for of in many:
        of.close()

    def served():
        try:
            with open_tcp(node.mqtt_port) as of:
                of.sendall(connect_packet("after"))
                return read(of, 4) == CONNACK
        except ConnectionError:
            return False
    wait_until(served, WAIT, "served again")
    wait_until(lambda: "descriptors_exhausted" not in [alarm["code"] for alarm in node.status()["alarms"]], 60)


# --- time

@pytest.fixture
def doors(net, program, tmp_path):
    """A node with a listener of each kind that gives clients two seconds."""
    return gateway_of_each_kind(net, program, tmp_path, {"connect_timeout": "2s"})


def test_one_deadline_from_the_connection_to_connect(doors):
    begins = {"mqtt": b"\x10", "tls": b"\x16\x03\x01\x02\0\x01\0", "ws": UPGRADE[:-2], "wss": b"\x16\x03\x01", "proxy": b"PROXY TCP4 203.0"}
    stalled = {}
    for kind, begin in begins.items():
        stalled[kind, "silent"] = open_tcp(doors.ports_of[kind])
        stalled[kind, "begun"] = open_tcp(doors.ports_of[kind])
        stalled[kind, "begun"].sendall(begin)
    begun = time.monotonic()
    late = open_tcp(doors.ports_of["wss"])  # each layer just in time, and then no CONNECT: the time is for all of them
    time.sleep(1.2)
    late = doors.context.wrap_socket(late, server_hostname="127.0.0.1")
    late.sendall(UPGRADE)
    assert read(late, 12) == b"HTTP/1.1 101"
    for key, of in stalled.items():
        of.settimeout(WAIT)
        read_all(of)
        assert time.monotonic() - begun < patience(8), key  # the bound of a handshake alone would be ten seconds
    late.settimeout(WAIT)
    read_all(late)
    assert time.monotonic() - begun < patience(8)
    wait_until(lambda: doors.status()["mqtt"]["connections"] == 0, WAIT)
    for kind in ("mqtt", "tls"):  # who is in stays
        of = open_tls(doors.ports_of[kind], doors.context) if kind == "tls" else open_tcp(doors.ports_of[kind])
        of.sendall(connect_packet("c"))
        assert read(of, 4) == CONNACK
        time.sleep(3)
        assert alive(of)


# --- origins

def upgrade(port, head):
    of = open_tcp(port)
    of.sendall(head if isinstance(head, bytes) else head.encode())
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        more = of.recv(1)
        if not more:
            break
        said += more
    return of, said.split(b"\r\n")[0].decode()


def test_pages_of_other_origins_may_not_connect(net):
    ports = [net.ports.take() for _ in range(2)]
    node = net.node("gw", listener=[
        {"bind": f"127.0.0.1:{ports[0]}", "protocol": "ws", "origins": ["https://app.example", "https://*.corp.example:8443", "http://[::1]:3000"]},
        {"bind": f"127.0.0.1:{ports[1]}", "protocol": "ws"}]).start()
    good = ["https://app.example", "HTTPS://App.Example", "https://a.corp.example:8443", "https://a.b.corp.example:8443", "http://[::1]:3000"]
    bad = ["http://app.example", "https://app.example:444", "https://app.example.evil", "https://evil-app.example", "null", "https://corp.example:8443",
           "https://evil.example/.corp.example:8443", "https://evil@x.corp.example:8443", "https://.corp.example:8443", ""]
    for origin in good:
        of, said = upgrade(ports[0], BROWSER.format(origin))
        assert said == "HTTP/1.1 101 Switching Protocols", origin
        of.sendall(frame(connect_packet("b")))
        assert read_frame(of) == (BINARY, CONNACK)
    for origin in bad:
        assert upgrade(ports[0], BROWSER.format(origin))[1] == "HTTP/1.1 403 Forbidden", origin
    twice = BROWSER.format("https://app.example").replace("Cookie:", "Origin: https://evil.example\r\nCookie:")
    assert upgrade(ports[0], twice)[1] == "HTTP/1.1 403 Forbidden"
    assert upgrade(ports[0], UPGRADE)[1].endswith("101 Switching Protocols")  # no browser
    for origin in good + bad:  # not configured: as other brokers, whoever comes
        assert upgrade(ports[1], BROWSER.format(origin))[1].endswith("101 Switching Protocols"), origin
    assert node.status()["mqtt"]["websocket_refused"] == len(bad) + 1
