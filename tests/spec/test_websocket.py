"""MQTT over WebSocket: chapter 6. Frames written by hand, like the packets in them."""
import base64
import hashlib
import os
import random
import socket
import struct

import pytest

import wire
from client import PATIENCE, Broker
from node import Node, Ports, binary
from statement import both, v5, v311


class WebSocket:
    def __init__(self, port, protocol="mqtt", version=13):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        offer = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
        self.socket.sendall(f"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{offer}"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: {version}\r\n\r\n".encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            more = self.socket.recv(65536)
            if not more:
                break
            self.buffer += more
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        self.status = int(head.split()[1]) if head else 0
        self.headers = {k.strip().lower(): v.strip() for k, _, v in (row.partition(":") for row in head.decode().split("\r\n")[1:])}
        if self.status == 101:
            proof = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            assert self.headers["sec-websocket-accept"] == proof

    def frame(self, payload, opcode=2, fin=True, mask=True):
        size, bit = len(payload), 128 if mask else 0
        head = bytes([fin << 7 | opcode])
        head += bytes([bit | size]) if size < 126 else bytes([bit | 126]) + struct.pack(">H", size) if size < 65536 else \
            bytes([bit | 127]) + struct.pack(">Q", size)
        key = os.urandom(4) if mask else b""
        body = bytes(b ^ key[i % 4] for i, b in enumerate(payload)) if mask else payload
        try:
            self.socket.sendall(head + key + body)
        except (ConnectionResetError, BrokenPipeError):
            pass
        return self

    def _take(self, size):
        while len(self.buffer) < size:
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.buffer += more
        out, self.buffer = self.buffer[:size], self.buffer[size:]
        return out

    def read(self):
        """(opcode, payload) of the next frame, None at the end."""
        head = self._take(2)
        if head is None:
            return None
        assert head[0] & 0x70 == 0 and head[1] < 128, "a server's frames have no mask and no reserved bits"
        size = head[1]
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return head[0] & 15, self._take(size)

    def bytes(self, size):
        """The next `size` bytes of binary frames."""
        out = b""
        while len(out) < size:
            frame = self.read()
            assert frame is not None and frame[0] in (0, 2), frame
            out += frame[1]
        assert len(out) == size
        return out

    def ends(self):
        while (frame := self.read()) is not None:
            assert frame[0] == 8, frame


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    program = binary()
    if program is None:
        pytest.skip("posthouse is not built")
    ports = Ports(random.SystemRandom())
    made = Node(program, tmp_path_factory.mktemp("ws"), "ws", {
        "broker": {"workers": 1},
        "listener": [{"name": "plain", "bind": f"127.0.0.1:{ports.take()}"},
                     {"name": "web", "bind": f"127.0.0.1:{ports.take()}", "protocol": "ws"}]})
    if made.command("config", "check", str(made.config_path)).returncode != 0:
        pytest.skip("this broker has no WebSocket listeners")
    made.start()
    made.web_port = int(made.tables["listener"][1]["bind"].rsplit(":", 1)[1])
    yield made
    try:
        made.stop()
    finally:
        made.end()


@both
@v311("MQTT-6.0.0-4", "MQTT-6.0.0-2")
@v5("MQTT-6.0.0-4", "MQTT-6.0.0-2")
def test_one_packet_a_frame_many_and_parts(node, v):
    web = WebSocket(node.web_port)
    assert web.status == 101 and web.headers["sec-websocket-protocol"] == "mqtt"
    connack = 4 if v == 4 else None
    web.frame(wire.connect(v, "web"))
    frame = web.read()
    assert frame[0] == 2 and frame[1][0] == 0x20 and (connack is None or len(frame[1]) == connack)
    pong, ping = b"\xd0\0", wire.pingreq()
    web.frame(ping * 3)
    assert web.bytes(6) == pong * 3
    for byte in ping:
        web.frame(bytes([byte]))
    assert web.bytes(2) == pong
    web.frame(ping[:1], fin=False).frame(b"are you there", opcode=9).frame(b"", opcode=0, fin=False).frame(ping[1:], opcode=0)
    assert web.read() == (10, b"are you there")
    assert web.bytes(2) == pong
    web.frame(b"")
    web.frame(ping)
    assert web.bytes(2) == pong


@v311("MQTT-6.0.0-1")
@v5("MQTT-6.0.0-1")
def test_other_frames_close(node):
    for payload, how in ((b"text", {"opcode": 1}), (wire.pingreq(), {"opcode": 1}), (wire.pingreq(), {"mask": False}),
                         (wire.pingreq(), {"opcode": 3}), (wire.pingreq(), {"opcode": 0}), (b"x" * 126, {"opcode": 9}),
                         (b"x", {"opcode": 9, "fin": False})):
        web = WebSocket(node.web_port)
        web.frame(wire.connect(4, "web"))
        assert web.bytes(4)
        web.frame(payload, **how)
        web.ends()


def test_what_is_no_upgrade_to_mqtt(node):
    for how in ({"protocol": None}, {"protocol": "chat"}, {"version": 12}):
        web = WebSocket(node.web_port, **how)
        assert web.status != 101 or web.headers.get("sec-websocket-protocol") != "mqtt"


def test_a_message_from_one_transport_to_the_other(node):
    broker, web = Broker(node), WebSocket(node.web_port)
    web.frame(wire.connect(4, "from web"))
    assert web.bytes(4)
    s = broker.connect(4)
    s.subscribe("w", 1)
    web.frame(wire.publish(4, "w", b"x" * 70_000, 1, 1))
    assert web.bytes(4) == b"\x40\x02\0\x01"
    s.message("w", b"x" * 70_000)
    broker.end()
