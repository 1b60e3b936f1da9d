"""MQTT 3.1.1 and WebSocket byte by byte, for what no proper client does."""
import os
import socket
import ssl
import struct
import subprocess

PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"
CONNACK = b"\x20\2\0\0"
UPGRADE = (b"GET /mqtt HTTP/1.1\r\nHost: gw\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Protocol: mqtt\r\n\r\n")
BINARY, TEXT, CLOSE, PING, PONG = 2, 1, 8, 9, 10
WAIT = 30


class Gone(Exception):
    """The broker closed the connection."""


def varint(n):
    out = b""
    while True:
        n, low = n >> 7, n & 127
        out += bytes([low | (0x80 if n else 0)])
        if not n:
            return out


def packet(first, body=b""):
    return bytes([first]) + varint(len(body)) + body


def take_packet(buffer):
    """(first byte, body, the rest of the buffer); None while the packet at its front is not whole."""
    size, shift, at = 0, 0, 1
    while at < len(buffer):
        size |= (buffer[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if not buffer[at - 1] & 0x80:
            return (buffer[0], buffer[at:at + size], buffer[at + size:]) if len(buffer) >= at + size else None
    return None


def text(of):
    raw = of if isinstance(of, bytes) else of.encode()
    return struct.pack(">H", len(raw)) + raw


def connect_packet(name, keepalive=0):
    return packet(0x10, b"\0\4MQTT\4\2" + struct.pack(">H", keepalive) + text(name))


def subscribe_packet(filter_, number=1):
    return packet(0x82, struct.pack(">H", number) + text(filter_) + b"\0")


def open_tcp(port):
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT)


def client_context(ca, cert=None, key=None):
    made = ssl.create_default_context(cafile=str(ca))
    if cert:
        made.load_cert_chain(str(cert), str(key))
    return made


def open_tls(port, context):
    return context.wrap_socket(open_tcp(port), server_hostname="127.0.0.1")


def read(of, size):
    """Exactly so many bytes; fewer when the peer closed before."""
    out = b""
    while len(out) < size:
        more = of.recv(size - len(out))
        if not more:
            break
        out += more
    return out


def read_all(of):
    """Until the peer closes, also by a reset."""
    out = b""
    try:
        while more := of.recv(65536):
            out += more
    except ConnectionError:
        pass
    return out


def gateway_of_each_kind(net, program, folder, broker, **keys):
    """A node with a listener of each kind, with `keys` in common. Its `ports_of` are by kind, its `context` is for TLS."""
    pki = folder / "pki"
    for verb in (["init", str(pki)], ["issue", str(pki), "gw", "--ip", "127.0.0.1"]):
        subprocess.run([str(program), "pki", *verb], check=True, stdout=subprocess.DEVNULL)
    kinds = {"mqtt": {}, "tls": {"tls": True}, "ws": {"protocol": "ws"}, "wss": {"protocol": "ws", "tls": True},
             "proxy": {"proxy_protocol": True, "allow_anonymous": True}}
    ports = {kind: net.ports.take() for kind in kinds}
    node = net.node("gw", tls={"ca": pki / "ca.crt", "cert": pki / "gw.crt", "key": pki / "gw.key"}, broker=broker,
                    listener=[{"bind": f"127.0.0.1:{ports[kind]}", **keys, **own} for kind, own in kinds.items()]).start()
    node.ports_of, node.context = ports, client_context(pki / "ca.crt")
    return node


def alive(of):
    """The broker answers on this connection."""
    of.sendall(PINGREQ)
    return read(of, 2) == PINGRESP


def masked(payload, mask):
    """As RFC 6455 5.3, in one operation of big numbers: floods are made of this."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def frame(payload, opcode=BINARY, fin=True):
    mask = os.urandom(4)
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 65536 else (
        b"\xff" + struct.pack(">Q", size))
    return bytes([(0x80 if fin else 0) | opcode]) + length + mask + masked(payload, mask)


def read_frame(of):
    """(opcode, payload) of a frame of the server; None at the end."""
    head = read(of, 2)
    if len(head) < 2:
        return None
    size = head[1]
    if size == 126:
        size = struct.unpack(">H", read(of, 2))[0]
    assert size < 65536 and not head[1] & 0x80
    return head[0] & 0x0F, read(of, size)


def open_websocket(port, context=None):
    of = open_tls(port, context) if context else open_tcp(port)
    upgrade(of)
    return of


def upgrade(of):
    of.sendall(UPGRADE)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = of.recv(1)
        assert more, head
        head += more
    assert head.startswith(b"HTTP/1.1 101 "), head
