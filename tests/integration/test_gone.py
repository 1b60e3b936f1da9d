"""Clients that go while the broker waits with them for something: a rate, a login, an answer, a handshake. Real sockets."""
import contextlib
import http.server
import json
import pathlib
import socket
import struct
import threading
import time

import pytest
from mqtt_wire import CONNACK, UPGRADE, connect_packet, frame, gateway_of_each_kind, open_tcp, open_tls, open_websocket, read, subscribe_packet
from waiting import wait_until

WAIT = 60


def reset(of):
    """RST, whatever there is still to read."""
    of.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    of.close()


def connect_with_will(name, topic, user=None, password=b""):
    text = lambda t: struct.pack(">H", len(t)) + t  # noqa: E731
    flags = 0x06 | (0xC0 if user else 0)
    body = b"\0\4MQTT\4" + bytes([flags]) + b"\0\0" + text(name.encode()) + text(topic.encode()) + text(b"bye")
    if user:
        body += text(user.encode()) + text(password)
    return bytes([0x10, len(body)]) + body


def publish_packet(topic, payload):
    body = struct.pack(">H", len(topic)) + topic.encode() + payload
    size, length = len(body), b""
    while True:
        size, digit = size >> 7, size & 127
        length += bytes([digit | (0x80 if size else 0)])
        if not size:
            return b"\x30" + length + body


DISCONNECT = b"\xe0\0"


def mqtt(node, key):
    return node.status()["mqtt"][key]


class Watcher:
    """A subscriber and all that it was sent."""

    def __init__(self, port, filter_):
        self.of = open_tcp(port)
        self.of.sendall(connect_packet("watcher") + subscribe_packet(filter_))
        assert read(self.of, 9)[:4] == CONNACK
        self.of.settimeout(0.05)
        self.seen = b""

    def has(self, text):
        with contextlib.suppress(TimeoutError):
            while more := self.of.recv(65536):
                self.seen += more
        return text in self.seen


# --- reading is paused

@pytest.fixture
def slow(net):
    """One listener where a client may send 100 bytes a second, one without a bound."""
    ports = [net.ports.take() for _ in range(2)]
    listeners = [{"bind": f"127.0.0.1:{ports[0]}", "allow_anonymous": True, "bytes_rate": "100B/s", "connections_max": 3},
                 {"bind": f"127.0.0.1:{ports[1]}", "allow_anonymous": True}]
    node = net.node("gw", listener=listeners, broker={"workers": 2}).start()
    node.ports_of = ports
    return node


def paused(node, name, more=b""):
    """A client that is not read from for some minutes, since it has sent too much, and what it sent after that."""
    before = mqtt(node, "throttled")
    of = open_tcp(node.ports_of[0])
    of.sendall(connect_with_will(name, f"gone/{name}"))
    assert read(of, 4) == CONNACK
    of.sendall(publish_packet("bulk", bytes(60_000)))
    wait_until(lambda: mqtt(node, "throttled") > before, WAIT, "it is not read from")
    if more:
        of.sendall(more)
    return of


def test_a_reset_ends_a_client_that_is_not_read_from(slow):
    watch = Watcher(slow.ports_of[1], "gone/#")
    clients = [paused(slow, f"c{i}") for i in range(3)]
    assert mqtt(slow, "connections") == 4
    for of in clients:
        reset(of)
    wait_until(lambda: mqtt(slow, "connections") == 1, 10, "they are gone")
    for i in range(3):
        wait_until(lambda i=i: watch.has(f"gone/c{i}bye".encode()), WAIT, "its will")
    assert mqtt(slow, "ended_unread") == 3
    again = [paused(slow, f"d{i}") for i in range(3)]  # their places are free
    assert mqtt(slow, "refused_full") == 0
    with contextlib.suppress(ConnectionError), open_tcp(slow.ports_of[0]) as of:
        of.sendall(connect_packet("x"))
        assert read(of, 4) == b""
    wait_until(lambda: mqtt(slow, "refused_full") == 1, WAIT)
    for of in again:
        of.close()


def test_a_close_with_nothing_unread_ends_a_client_that_is_not_read_from(slow):
    watch = Watcher(slow.ports_of[1], "gone/#")
    paused(slow, "c").close()
    wait_until(lambda: mqtt(slow, "connections") == 1, 10, "it is gone")
    wait_until(lambda: watch.has(b"gone/cbye"), WAIT, "its will")


def test_what_was_sent_before_the_end_is_still_read(slow):
    watch = Watcher(slow.ports_of[1], "x/#")
    # DISCONNECT stands unread in front of the end: no will, whichever way the connection ends.
    for name, end in (("reset", reset), ("close", socket.socket.close)):
        of = open_tcp(slow.ports_of[0])
        of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a reset throws away what Nagle holds back
        of.sendall(connect_with_will(name, f"x/gone/{name}"))
        assert read(of, 4) == CONNACK
        before = mqtt(slow, "throttled")
        of.sendall(publish_packet("bulk", bytes(300)))  # three seconds
        wait_until(lambda before=before: mqtt(slow, "throttled") > before, WAIT)
        of.sendall(publish_packet("x/last", name.encode()) + DISCONNECT)
        end(of)
        wait_until(lambda name=name: watch.has(b"last" + name.encode()), WAIT, "its last message")
    wait_until(lambda: mqtt(slow, "connections") == 1, WAIT)
    time.sleep(0.5)
    assert not watch.has(b"x/gone/")


# --- a server is asked

class Hanging:
    """An HTTP server that takes questions, and answers them only once it is told to. Knows which clients are still there."""

    def __init__(self):
        self.open, self.asked, self.answer = 0, 0, None
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802
                self.rfile.read(int(self.headers["Content-Length"]))
                with outer.lock:
                    outer.asked += 1
                    outer.open += 1
                self.connection.settimeout(0.05)
                while outer.answer is None:
                    with contextlib.suppress(TimeoutError):
                        if not self.connection.recv(1):
                            break
                with outer.lock:
                    outer.open -= 1
                if outer.answer is not None:
                    said = json.dumps({"result": outer.answer}).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(said)))
                    self.end_headers()
                    with contextlib.suppress(OSError):
                        self.wfile.write(said)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/auth"


@pytest.fixture
def hanging():
    made = Hanging()
    yield made
    made.answer = "deny"
    made.server.shutdown()


@pytest.mark.parametrize("end", [reset, socket.socket.close], ids=["reset", "close"])
def test_a_login_goes_with_its_client(net, hanging, end):
    port = net.ports.take()
    node = net.node("gw", listener=[{"bind": f"127.0.0.1:{port}"}],
                    broker={"workers": 1, "connect_timeout": "120s", "authn": {"order": ["http"]},
                            "http": {"url": hanging.url, "request_timeout": "60s", "requests_max": 4}}).start()
    for turn in range(5):
        clients = [open_tcp(port) for _ in range(4)]
        for i, of in enumerate(clients):
            of.sendall(connect_with_will(f"c{i}", "gone", "u", b"p"))
        wait_until(lambda: hanging.open == 4, WAIT, "all places are taken")
        for of in clients:
            end(of)
        wait_until(lambda: hanging.open == 0, 20, "nobody is asked about them any more")
        assert mqtt(node, "abandoned") == 4 * (turn + 1) and mqtt(node, "connections") == 0
    assert mqtt(node, "connects_shed") == 0
    hanging.answer = "allow"
    with open_tcp(port) as of:
        of.sendall(connect_with_will("c", "gone", "u", b"p"))
        assert read(of, 4) == CONNACK


def test_a_question_about_access_goes_with_its_client(net, hanging):
    port = net.ports.take()
    node = net.node("gw", listener=[{"bind": f"127.0.0.1:{port}", "allow_anonymous": True}],
                    broker={"workers": 1, "http_authz": {"url": hanging.url, "request_timeout": "60s", "requests_max": 2}}).start()
    clients = []
    for i in range(8):
        of = open_tcp(port)
        of.sendall(connect_packet(f"c{i}"))
        assert read(of, 4) == CONNACK
        of.sendall(publish_packet(f"t{i}", b"x"))
        clients.append(of)
    wait_until(lambda: hanging.open == 2, WAIT, "two are asked about, six wait")
    for of in clients[2:]:
        reset(of)
    wait_until(lambda: mqtt(node, "abandoned") == 6, 20, "those who waited took their turn along")
    assert hanging.asked == 2
    for of in clients[:2]:
        reset(of)
    wait_until(lambda: mqtt(node, "abandoned") == 8 and hanging.open == 0, 20)
    hanging.answer = "allow"
    with open_tcp(port) as of:
        of.sendall(connect_packet("after") + subscribe_packet("t"))
        assert read(of, 9) == CONNACK + b"\x90\3\0\1\0"


# --- before MQTT

@pytest.fixture
def doors(net, program, tmp_path):
    """A listener of each kind with room for four."""
    return gateway_of_each_kind(net, program, tmp_path, {"workers": 2, "connect_timeout": "300s"}, connections_max=4)


def enter(node, kind, name):
    """A client that is in."""
    port = node.ports_of[kind]
    of = {"mqtt": lambda: open_tcp(port), "proxy": lambda: open_tcp(port), "tls": lambda: open_tls(port, node.context),
          "ws": lambda: open_websocket(port), "wss": lambda: open_websocket(port, node.context)}[kind]()
    packet = connect_packet(name)
    if kind == "proxy":
        of.sendall(b"PROXY TCP4 203.0.113.9 127.0.0.1 4000 1883\r\n" + packet)
        assert read(of, 4) == CONNACK
    elif kind in ("ws", "wss"):
        of.sendall(frame(packet))
        assert read(of, 6)[2:] == CONNACK
    else:
        of.sendall(packet)
        assert read(of, 4) == CONNACK
    return of


def test_every_way_out_gives_the_place_back(doors):
    """Whatever a connection was in the middle of when it ended, connections_max has its place again."""
    begins = {"mqtt": [b"", b"\x10", connect_packet("x"), b"GET / HTTP/1.1\r\n\r\n", connect_packet("y") + DISCONNECT],
              "tls": [b"", b"\x16", b"\x16\x03\x01\x02\0\x01\0", b"garbage that is no TLS at all"],
              "ws": [b"", UPGRADE[:40], UPGRADE, b"GET /other HTTP/1.1\r\n\r\n", UPGRADE + b"\xff\xff\xff\xff", b"x" * 9000],
              "wss": [b"", b"\x16\x03\x01\x02\0\x01\0", b"garbage"],
              "proxy": [b"", b"PROXY TCP4 203.0.", b"PROXY nonsense\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"]}
    for kind, all_begins in begins.items():
        for begin in all_begins:
            for end in (reset, socket.socket.close, lambda of: (of.shutdown(socket.SHUT_WR), of.close())):
                few = [open_tcp(doors.ports_of[kind]) for _ in range(3)]
                for of in few:
                    with contextlib.suppress(ConnectionError):
                        of.sendall(begin)
                    end_quietly(end, of)

        def all_places(kind=kind):
            kept = []
            try:
                for i in range(4):
                    kept.append(enter(doors, kind, f"{kind}{i}"))
                return True
            except (OSError, AssertionError):
                return False
            finally:
                for of in kept:
                    reset(of)
        wait_until(all_places, WAIT, f"all four places of {kind}")
    wait_until(lambda: mqtt(doors, "connections") == 0, WAIT)
    assert doors.running()


def end_quietly(end, of):
    with contextlib.suppress(OSError):
        end(of)
    of.close()


def test_a_place_that_is_refused_is_counted_and_not_taken(doors):
    for kind in ("mqtt", "tls", "wss"):
        kept = [enter(doors, kind, f"{kind}{i}") for i in range(4)]
        before = mqtt(doors, "refused_full")
        for _ in range(20):
            with contextlib.suppress(OSError), open_tcp(doors.ports_of[kind]) as of:
                of.settimeout(WAIT)
                assert of.recv(1) == b""
        wait_until(lambda before=before: mqtt(doors, "refused_full") == before + 20, WAIT)
        kept.pop().close()

        def again(kind=kind, kept=kept):
            try:
                kept.append(enter(doors, kind, "again"))
                return True
            except (OSError, AssertionError):
                return False
        wait_until(again, WAIT, "a place is free")
        for of in kept:
            of.close()
    assert pathlib.Path(f"/proc/{doors.pid}").exists()


# --- wills and messages for later, under rules that are others by then

def connect_5(name, expiry, will=None, delay=0):
    text = lambda t: struct.pack(">H", len(t)) + t  # noqa: E731
    body = b"\0\4MQTT\5" + bytes([0x04 if will else 0]) + b"\0\0" + b"\5\x11" + struct.pack(">I", expiry) + text(name.encode())
    if will:
        body += b"\5\x18" + struct.pack(">I", delay) + text(will.encode()) + text(b"bye")
    return bytes([0x10, len(body)]) + body


def connected_5(port, *how):
    of = open_tcp(port)
    of.sendall(connect_5(*how))
    head = read(of, 2)
    assert head[0] == 0x20 and read(of, head[1])[1] == 0
    return of


@pytest.mark.parametrize("killed", [True, False], ids=["kill", "stop"])
def test_what_comes_later_comes_by_the_rules_of_that_time(net, killed):
    """Sessions, wills and messages for later that a restart brings back, with other rules than before."""
    port = net.ports.take()
    node = net.node("gw", listener=[{"bind": f"127.0.0.1:{port}", "allow_anonymous": True}], broker={"workers": 2}).start()
    for name in ("good", "bad"):
        of = connected_5(port, name, 1000, f"x/will/{name}", 12)
        body = struct.pack(">H", 7) + b"\0" + struct.pack(">H", len(f"y/{name}")) + f"y/{name}".encode() + b"\1"
        of.sendall(bytes([0x82, len(body)]) + body)
        assert read(of, 6) == b"\x90\4\0\7\0\1"
        later = f"$delayed/12/x/later/{name}".encode()
        body = struct.pack(">H", len(later)) + later + b"\0\7\0" + b"m"
        of.sendall(bytes([0x32, len(body)]) + body)
        assert read(of, 2)[0] == 0x40
        read(of, 2)
        reset(of)
    wait_until(lambda: mqtt(node, "connections") == 0 and mqtt(node, "delayed") == 2, WAIT)
    subscribed = mqtt(node, "subscriptions")
    node.kill() if killed else node.stop()
    node.tables["broker.acl"] = [{"permission": "deny", "action": "publish", "topics": ["x/+/bad"]},
                                 {"permission": "deny", "action": "subscribe", "topics": ["y/bad"]}]
    node.write_config()
    node.start()
    watch = Watcher(port, "x/#")
    wait_until(lambda: mqtt(node, "subscribe_denied") == 1, WAIT, "the offline session may not have it")
    assert mqtt(node, "subscriptions") == subscribed - 1 + 1
    wait_until(lambda: watch.has(b"x/will/good") and watch.has(b"x/later/good"), WAIT)
    wait_until(lambda: mqtt(node, "publish_denied") == 2, WAIT)
    assert not watch.has(b"bad")
