"""Raw MQTT 3.1.1 and 5 over each of the four transports: the same bytes, whatever lies beneath them. For what no proper
client does; mqtt_wire.py has the layers themselves."""
import pathlib
import socket
import ssl
import struct

from mqtt_wire import CLOSE, PING, PONG, WAIT, Gone, frame, packet, take_packet, text, upgrade, varint

TRANSPORTS = ["mqtt", "tls", "ws", "wss"]  # names of gateway_of_each_kind
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, PINGRESP, DISCONNECT = (
    0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xD0, 0xE0)
SMALL = 16 * 1024  # buffers of a socket whose client does not read: what the kernel takes is nobody's backlog


# --- packets

def connect(name, version=4, clean=True, keepalive=0, will=None, expiry=None, receive_maximum=None, alias_maximum=None):
    """will: (topic, payload), at QoS 0."""
    properties = b""
    for number, form, value in ((0x11, ">I", expiry), (0x21, ">H", receive_maximum), (0x22, ">H", alias_maximum)):
        if value is not None:
            properties += bytes([number]) + struct.pack(form, value)
    v5 = version == 5
    body = text("MQTT") + bytes([version, (2 if clean else 0) | (4 if will else 0)]) + struct.pack(">H", keepalive)
    body += (varint(len(properties)) + properties if v5 else b"") + text(name)
    if will:
        body += (b"\0" if v5 else b"") + text(will[0]) + text(will[1])
    return packet(CONNECT, body)


def subscribe(filters, qos=0, packet_id=1, version=4):
    body = struct.pack(">H", packet_id) + (b"\0" if version == 5 else b"")
    return packet(0x82, body + b"".join(text(one) + bytes([qos]) for one in filters))


def publish(topic, payload=b"", qos=0, packet_id=0, version=4, alias=None, retain=False):
    properties = b"" if alias is None else b"\x23" + struct.pack(">H", alias)
    body = text(topic) + (struct.pack(">H", packet_id) if qos else b"")
    body += (varint(len(properties)) + properties if version == 5 else b"") + payload
    return packet(PUBLISH | qos << 1 | (1 if retain else 0), body)


def ack(kind, packet_id):
    return packet(kind | (2 if kind == PUBREL else 0), struct.pack(">H", packet_id))


# --- a connection

def open_stream(node, kind, buffers=None, wait=WAIT, session=None):
    """What MQTT, or its frames, go over: TCP, TLS in it, after the upgrade if there is one. session: of TLS, to resume."""
    of = socket.socket()
    of.settimeout(wait)
    if buffers:  # before connecting: the window is agreed on there
        of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
        of.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
    of.connect(("127.0.0.1", node.ports_of[kind]))
    of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kind in ("tls", "wss"):
        of = node.context.wrap_socket(of, server_hostname="127.0.0.1", session=session)
    if kind in ("ws", "wss"):
        upgrade(of)
    return of


class Wire:
    """One connection. Bytes of MQTT go out as they are given, in one frame where there are frames."""

    opened = []  # all of them: close_all() is for the end of a test, whatever became of it

    def __init__(self, node, kind, first=None, buffers=None, wait=WAIT, session=None):
        self.kind, self.framed = kind, kind in ("ws", "wss")
        self.socket = open_stream(node, kind, buffers, wait, session)
        Wire.opened.append(self)
        self.raw, self.input, self.pongs, self.closing = b"", b"", [], False
        if first is not None:
            self.send(first)
            self.connack = self.expect(CONNACK)
            assert self.connack[1] == 0, self.connack

    def encoded(self, data):
        return frame(data) if self.framed else data

    def send(self, data):
        self.socket.sendall(self.encoded(data))

    def send_encoded(self, data):
        self.socket.sendall(data)

    def _more(self):
        if self.closing:
            raise Gone
        got = self.socket.recv(1 << 18)
        if not got:
            raise Gone
        if not self.framed:
            self.input += got
            return
        self.raw += got
        at = 0
        while len(self.raw) - at >= 2:
            size, head = self.raw[at + 1] & 127, 2
            if size > 125:
                head = 4 if size == 126 else 10
                size = int.from_bytes(self.raw[at + 2:at + head], "big")
            if len(self.raw) - at < head + size or len(self.raw) - at < head:
                break
            opcode, payload = self.raw[at] & 15, self.raw[at + head:at + head + size]
            at += head + size
            if opcode == CLOSE:
                self.closing = True  # what came before it is still to be read
            elif opcode == PONG:
                self.pongs.append(payload)
            else:
                assert opcode in (0, 2), opcode
                self.input += payload
        self.raw = self.raw[at:]

    def packet(self):
        """The next one: (first byte, body)."""
        while (taken := take_packet(self.input)) is None:
            self._more()
        first, body, self.input = taken
        return first, body

    def expect(self, kind):
        first, body = self.packet()
        assert first & 0xF0 == kind, (first, body[:64])
        return body

    def subscribe(self, filters, qos=0, version=4):
        self.send(subscribe([filters] if isinstance(filters, str) else filters, qos, 1, version))
        return self.expect(SUBACK)

    def arrived(self):
        """Whether a packet is there now. It is not kept."""
        before = self.socket.gettimeout()
        self.socket.settimeout(0)
        try:
            return bool(self.packet())
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        finally:
            self.socket.settimeout(before)

    def alive(self):
        """The broker answers, behind whatever it sends before."""
        self.send(b"\xc0\0")
        while self.packet()[0] != PINGRESP:
            pass
        return True

    def ping(self, payload=b"p"):
        self.send_encoded(frame(payload, PING))

    def ended(self):
        """Whether the broker closes; what comes before is not looked at."""
        try:
            while self.socket.recv(1 << 18):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.socket.close()

    @classmethod
    def close_all(cls):
        for one in cls.opened:
            one.close()
        cls.opened.clear()


# --- the broker, as seen from outside

def resident(node):
    return int(pathlib.Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * 4096


def counters(node):
    return node.status()["mqtt"]
