"""The link protocol spoken by hand (appliance/codec/link/frames.h is the format): a sender that can misbehave."""
import os
import socket
import struct
import time

HELLO, REFUSE, RESUME, RESUMED, EVENTS, ACK, CREDIT, HOLD, RELEASE, CLOSE, PING, PONG, GOODBYE = range(1, 14)
LINES = 1


def _table():
    out = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        out.append(n)
    return out


_CRC = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def sized(data):
    data = data.encode() if isinstance(data, str) else data
    return varint(len(data)) + data


def frame(kind, body, crc=None, length=None, version=1):
    head = struct.pack("<BBH", version, kind, 0)
    return (struct.pack("<I", len(body) if length is None else length) + head
            + struct.pack("<I", crc32c(head + body) if crc is None else crc) + body)


def hello(node=None, name="by-hand", site="by-hand", target="far", protocol=(1, 1)):
    return frame(HELLO, struct.pack("<HH", *protocol) + (node or os.urandom(16)) + sized(name) + sized(site) + sized(target)
                 + os.urandom(8) + os.urandom(8) + varint(1) + varint(0) + struct.pack("<q", int(time.time() * 1000)))


def block(category, payload, first, node, stream=1):
    """A block of whole lines at byte position `first` of its stream."""
    return (bytes([1 << 4 | LINES, 0]) + sized(category) + node + struct.pack("<Q", stream) + varint(first)
            + varint(len(payload)) + varint(payload.count(b"\n")) + varint(int(time.time() * 1000)) + varint(0) + payload)


def events(category, payload, first, node, stream=1, settled=0):
    packed = varint(len(payload)) + sized(block(category, payload, first, node, stream))
    return frame(EVENTS, struct.pack("<Q", stream) + varint(settled) + varint(0) + varint(0) + varint(first)
                 + varint(len(payload)) + varint(payload.count(b"\n")) + bytes([0, 0]) + sized(packed))


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def fixed(self, form):
        (out,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return out

    def varint(self):
        out = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            out |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return out

    def sized(self):
        size = self.varint()
        self.at += size
        return self.data[self.at - size:self.at]

    def spans(self):
        return [(first, first + self.varint()) for first in (self.varint() for _ in range(self.varint()))]


def read_ack(body):
    r = Reader(body)
    out = {"stream": r.fixed("Q"), "accepted": r.spans(), "far": r.spans(), "duplicates": r.varint(), "rejects": []}
    for _ in range(r.varint()):
        first = r.varint()
        out["rejects"].append((first, first + r.varint(), r.sized().decode()))
    return out


class Peer:
    """A connection to a node's link port."""

    def __init__(self, port, seconds=10):
        self.node = os.urandom(16)
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.socket.settimeout(seconds)
        self.buffer = b""
        self.credit = self.used = 0

    @classmethod
    def resumed(cls, port, node=None, seconds=10):
        """One that has said who it is and may send events of stream 1."""
        peer = cls(port, seconds)
        peer.node = node or peer.node
        assert peer.greet()[0] == HELLO
        peer.resume(1)
        return peer

    def send(self, data):
        self.socket.sendall(data)

    def send_events(self, *frames, also=lambda kind, body: None):
        """EVENTS, each once there is credit for it. What comes meanwhile is shown to `also`."""
        for data in frames:
            while self.used >= self.credit:
                got = self.next()
                assert got is not None, "closed while waiting for credit"
                also(*got)
            self.send(data)
            self.used += len(data)

    def greet(self, **more):
        self.send(hello(self.node, **more))
        return self.wait_for(HELLO, REFUSE)

    def resume(self, *streams):
        self.send(frame(RESUME, varint(len(streams)) + b"".join(struct.pack("<Q", s) + varint(0) + varint(0) for s in streams)))
        return self.wait_for(RESUMED)

    def next(self):
        """(kind, body) of the next frame; None at the end."""
        while True:
            if len(self.buffer) >= 12:
                (length,) = struct.unpack_from("<I", self.buffer)
                if len(self.buffer) >= 12 + length:
                    kind, body = self.buffer[5], self.buffer[12:12 + length]
                    self.buffer = self.buffer[12 + length:]
                    if kind == CREDIT:
                        self.credit = Reader(body).varint()
                    return kind, body
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer += data

    def wait_for(self, *kinds):
        while True:
            got = self.next()
            assert got is not None, f"closed while waiting for frame {kinds}"
            if got[0] in kinds:
                return got

    def ended(self):
        """Reads on until the other side closes."""
        try:
            while self.next() is not None:
                pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.socket.close()
