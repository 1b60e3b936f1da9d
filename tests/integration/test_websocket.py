"""MQTT over WebSocket as clients get it wrong, and connections that begin and never go on: bounded, counted, and without
a stall for others."""
import pathlib
import socket
import threading
import time

import pytest
from mqtt_wire import (BINARY, CLOSE, CONNACK, PING, PINGREQ, PINGRESP, PONG, TEXT, UPGRADE, alive, client_context,
                       connect_packet, frame, open_tcp, open_tls, open_websocket, read, read_all, read_frame,
                       subscribe_packet)
from waiting import wait_until

WAIT = 60
STEP_SECONDS = 10  # what each step before CONNECT may take: io/loop.h, kHandshakeTimeout


@pytest.fixture
def gateway(net, program, tmp_path):
    import subprocess
    pki = tmp_path / "pki"
    for arguments in (["init", str(pki)], ["issue", str(pki), "server", "--ip", "127.0.0.1"]):
        subprocess.run([str(program), "pki", *arguments], check=True, stdout=subprocess.DEVNULL)
    kinds = {"tcp": {}, "tls": {"tls": True}, "ws": {"protocol": "ws"}, "wss": {"protocol": "ws", "tls": True},
             "proxy": {"proxy_protocol": True, "allow_anonymous": True},
             "all": {"protocol": "ws", "path": "/x", "tls": True, "proxy_protocol": True, "allow_anonymous": True}}
    listeners = [{"name": name, "bind": f"127.0.0.1:{net.ports.take()}", **keys} for name, keys in kinds.items()]
    node = net.node("gw", listener=listeners, tls={"ca": pki / "ca.crt", "cert": pki / "server.crt",
                                                   "key": pki / "server.key"})
    node.ports = {one["name"]: int(one["bind"].rsplit(":", 1)[1]) for one in listeners}
    node.context = client_context(pki / "ca.crt")
    return node.start(60)


def counters(node):
    return node.status()["mqtt"]


def session(node, kind="ws", name="c"):
    of = open_websocket(node.ports[kind], node.context if kind == "wss" else None)
    of.sendall(frame(connect_packet(name)))
    assert read_frame(of) == (BINARY, CONNACK)
    return of


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_packets_and_frames_need_not_begin_together(gateway, kind):
    of = session(gateway, kind)
    # Several packets in one frame, answered in one or more.
    of.sendall(frame(subscribe_packet("a", 1) + subscribe_packet("b", 2) + PINGREQ))
    got = b""
    while len(got) < 12:
        got += read_frame(of)[1]
    assert len(got) == 12 and all(one in got for one in (b"\x90\3\0\1\0", b"\x90\3\0\2\0", PINGRESP))
    # One packet over several frames, fragments of several messages, a ping and an empty frame in between, byte by byte.
    packet = b"\x30\x0a\0\1ahello!!"
    wire = (frame(packet[:1]) + frame(packet[1:4], fin=False) + frame(b"?", PING) + frame(b"", 0, fin=False)
            + frame(packet[4:6], 0) + frame(b"") + frame(packet[6:] + packet))
    for i in range(len(wire)):
        of.sendall(wire[i:i + 1])
    seen = [read_frame(of)]
    while sum(len(p) for o, p in seen if o == BINARY) < 24:
        seen.append(read_frame(of))
    assert (PONG, b"?") in seen
    assert b"".join(p for o, p in seen if o == BINARY) == packet * 2
    # The end: DISCONNECT, then ours follows.
    of.sendall(frame(b"\xe0\0"))
    assert read_frame(of) == (CLOSE, b"\x03\xe8")
    assert read_all(of) == b""
    wait_until(lambda: counters(gateway)["connections"] == 0, WAIT)


def test_a_close_frame_is_answered_and_is_no_disconnect(gateway):
    watcher = session(gateway, name="watcher")
    watcher.sendall(frame(subscribe_packet("will")))
    assert read_frame(watcher)[1][0] == 0x90
    of = open_websocket(gateway.ports["ws"])
    body = b"\0\4MQTT\4\6\0\0\0\1w\0\4will\0\4dead"
    of.sendall(frame(bytes([0x10, len(body)]) + body))
    assert read_frame(of) == (BINARY, CONNACK)
    of.sendall(frame(b"\x0f\xa1bye", CLOSE))
    assert read_frame(of) == (CLOSE, b"\x0f\xa1")
    assert read_frame(of) is None
    of.close()
    assert read_frame(watcher) == (BINARY, b"\x30\x0a\0\4willdead")


def test_text_is_refused(gateway):  # [MQTT-6.0.0-1]
    of = open_websocket(gateway.ports["ws"])
    of.sendall(frame(connect_packet("t"), TEXT))
    assert read_frame(of) == (CLOSE, b"\x03\xeb")
    wait_until(lambda: counters(gateway)["websocket_faults"] == 1, WAIT)


@pytest.mark.parametrize("change, status", [
    ((b"Sec-WebSocket-Protocol: mqtt\r\n", b""), b"400"), ((b": mqtt\r", b": amqp\r"), b"400"), ((b"/mqtt", b"/"), b"404"),
    ((b"GET", b"POST"), b"405"), ((b"Upgrade: websocket\r\n", b""), b"426"), ((b": 13", b": 12"), b"426"),
    ((b"Host", b"X" * 9000), b"431")])
def test_a_wrong_upgrade_is_told_why(gateway, change, status):
    of = open_tcp(gateway.ports["ws"])
    of.sendall(UPGRADE.replace(*change))
    assert read_all(of).startswith(b"HTTP/1.1 " + status)
    assert counters(gateway)["websocket_refused"] == 1


def test_the_other_path_under_everything(gateway):
    """PROXY header, TLS and WebSocket on one listener, with a path of its own."""
    of = open_tcp(gateway.ports["all"])
    of.sendall(b"PROXY TCP4 203.0.113.7 192.0.2.1 51000 8884\r\n")
    of = gateway.context.wrap_socket(of, server_hostname="127.0.0.1")
    of.sendall(UPGRADE.replace(b"/mqtt", b"/x") + frame(connect_packet("c")))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += of.recv(1)
    assert head.startswith(b"HTTP/1.1 101")
    assert read_frame(of) == (BINARY, CONNACK)
    bad = open_tcp(gateway.ports["proxy"])
    bad.sendall(connect_packet("c"))
    assert read_all(bad) == b""
    assert counters(gateway)["proxy_refused"] == 1


def rss(node):
    for line in pathlib.Path(f"/proc/{node.pid}/status").read_text().split("\n"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024


def test_who_never_gets_to_the_point_is_closed_and_costs_nobody_else(gateway):
    """Of each kind some at once: nothing sent, a beginning, and a writer of a byte a second."""
    begins = {"ws": UPGRADE[:-2], "tls": b"\x16\x03\x01\x02\x00\x01\x00", "wss": b"\x16\x03\x01",
              "proxy": b"PROXY TCP4 203.0.113.7 192.0.2.1 51", "all": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"}
    stalled = []
    for kind, begin in begins.items():
        for _ in range(20):
            of = open_tcp(gateway.ports[kind])
            of.sendall(begin)
            stalled.append(of)
        stalled.append(open_tcp(gateway.ports[kind]))
    inside = open_tls(gateway.ports["wss"], gateway.context)  # through TLS, and silent then
    stalled.append(inside)
    slow = [open_tcp(gateway.ports["ws"]) for _ in range(5)]
    other = session(gateway, name="other")
    begun, longest, closed_at = time.monotonic(), 0.0, {}

    def watch(of):
        read_all(of)
        closed_at[of] = time.monotonic() - begun

    watchers = [threading.Thread(target=watch, args=(of,)) for of in stalled + slow]
    for of in stalled + slow:
        of.settimeout(WAIT)
    for thread in watchers:
        thread.start()
    for i in range(WAIT):
        if len(closed_at) == len(watchers):
            break
        for of in slow:
            try:
                of.sendall(UPGRADE[i:i + 1])
            except OSError:
                pass
        before = time.monotonic()
        other.sendall(frame(PINGREQ))
        assert read_frame(other) == (BINARY, PINGRESP)
        longest = max(longest, time.monotonic() - before)
        time.sleep(1)
    for thread in watchers:
        thread.join(WAIT)
    assert len(closed_at) == len(watchers)
    assert min(closed_at.values()) > STEP_SECONDS / 2
    print(f"{len(watchers)} closed after {min(closed_at.values()):.1f} to {max(closed_at.values()):.1f} s, "
          f"slowest PINGRESP meanwhile {longest * 1000:.0f} ms")
    c = counters(gateway)
    assert (c["tls_failures"], c["websocket_refused"], c["proxy_refused"]) == (42, 27, 42)
    assert c["connections"] == 1


def test_ten_megabytes_of_headers_cost_eight_kilobytes(gateway):
    session(gateway, name="warm")
    before = rss(gateway)
    senders = []

    def send(kind):
        try:
            of = open_tls(gateway.ports[kind], gateway.context) if kind == "wss" else open_tcp(gateway.ports[kind])
            of.sendall(b"GET /mqtt HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 10 * 1024 * 1024)
        except OSError:
            pass  # refused before it was through

    for kind in ("ws", "wss") * 10:
        senders.append(threading.Thread(target=send, args=(kind,)))
        senders[-1].start()
    for one in senders:
        one.join(WAIT)
    wait_until(lambda: counters(gateway)["websocket_refused"] == 20, WAIT)
    grown = rss(gateway) - before
    assert grown < 24 * 1024 * 1024, grown  # read buffers of the workers, TLS records; 200 MiB were offered
    assert alive_session(gateway)


def alive_session(node):
    of = session(node, name="alive")
    of.sendall(frame(PINGREQ))
    return read_frame(of) == (BINARY, PINGRESP)


def test_a_client_that_reads_nothing_is_bounded(gateway):
    """Pings and packets that want answers, from one that takes none."""
    of = session(gateway)
    of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = rss(gateway)
    chunk = frame(b"p" * 125, PING) * 5000
    of.settimeout(2)
    sent = 0
    try:
        for _ in range(60):
            of.sendall(chunk)
            sent += len(chunk)
    except OSError:
        pass
    assert sent > 10 * 1024 * 1024
    assert rss(gateway) - before < 16 * 1024 * 1024
    assert alive_session(gateway)
