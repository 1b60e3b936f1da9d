"""MQTT packets byte by byte: a writer that can also write nonsense, and a reader that accepts nothing but what the standard
lets a server send. On purpose not a client library: what is tested here are the bytes. Versions are 3 (3.1), 4 (3.1.1), 5."""
import struct
from types import SimpleNamespace

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK = range(1, 10)
UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(10, 16)
NAMES = dict(enumerate("connect connack publish puback pubrec pubrel pubcomp subscribe suback unsubscribe unsuback "
                       "pingreq pingresp disconnect auth".split(), 1))

# name -> (number, kind, packets in which a server may send it)
_REASONED = {CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH}
PROPERTIES = {
    "payload_format": (0x01, "byte", {PUBLISH}),
    "message_expiry": (0x02, "u32", {PUBLISH}),
    "content_type": (0x03, "text", {PUBLISH}),
    "response_topic": (0x08, "text", {PUBLISH}),
    "correlation_data": (0x09, "bytes", {PUBLISH}),
    "subscription_id": (0x0B, "varint", {PUBLISH}),
    "session_expiry": (0x11, "u32", {CONNACK}),
    "assigned_client_id": (0x12, "text", {CONNACK}),
    "server_keep_alive": (0x13, "u16", {CONNACK}),
    "authentication_method": (0x15, "text", {CONNACK, AUTH}),
    "authentication_data": (0x16, "bytes", {CONNACK, AUTH}),
    "request_problem_information": (0x17, "byte", set()),
    "will_delay": (0x18, "u32", set()),
    "request_response_information": (0x19, "byte", set()),
    "response_information": (0x1A, "text", {CONNACK}),
    "server_reference": (0x1C, "text", {CONNACK, DISCONNECT}),
    "reason_string": (0x1F, "text", _REASONED),
    "receive_maximum": (0x21, "u16", {CONNACK}),
    "topic_alias_maximum": (0x22, "u16", {CONNACK}),
    "topic_alias": (0x23, "u16", {PUBLISH}),
    "maximum_qos": (0x24, "byte", {CONNACK}),
    "retain_available": (0x25, "byte", {CONNACK}),
    "user_property": (0x26, "pair", _REASONED | {PUBLISH}),
    "maximum_packet_size": (0x27, "u32", {CONNACK}),
    "wildcard_available": (0x28, "byte", {CONNACK}),
    "subscription_ids_available": (0x29, "byte", {CONNACK}),
    "shared_available": (0x2A, "byte", {CONNACK}),
}
_BY_NUMBER = {number: (name, kind, where) for name, (number, kind, where) in PROPERTIES.items()}
_REPEATS = {("subscription_id", PUBLISH)} | {("user_property", packet) for packet in range(16)}

_RECEIVED = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
REASONS = {
    CONNACK: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    PUBACK: _RECEIVED,
    PUBREC: _RECEIVED,
    PUBREL: {0x00, 0x92},
    PUBCOMP: {0x00, 0x92},
    SUBACK: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    DISCONNECT: {0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
                 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2, 0x00},
    AUTH: {0x00, 0x18},
}


# --- writing

def varint(value, size=0):
    """size: with that many bytes, needed or not."""
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        more = value > 0 or len(out) + 1 < size
        out.append(low | (128 if more else 0))
        if not more:
            return bytes(out)


def u16(value):
    return struct.pack(">H", value)


def text(value):
    raw = value.encode() if isinstance(value, str) else value
    return u16(len(raw)) + raw


def one_property(name, value):
    number, kind, _ = PROPERTIES[name]
    head = bytes([number])
    if kind == "byte":
        return head + bytes([value])
    if kind == "u16":
        return head + u16(value)
    if kind == "u32":
        return head + struct.pack(">I", value)
    if kind == "varint":
        return head + varint(value)
    if kind == "pair":
        return head + text(value[0]) + text(value[1])
    return head + text(value)


def properties(given):
    """given: a dict, or a list of pairs where order or repeats matter, or bytes that stand as they are."""
    if isinstance(given, bytes):
        return given
    block = b"".join(one_property(*pair) for pair in (given.items() if isinstance(given, dict) else given))
    return varint(len(block)) + block


def packet(kind, flags, body, length=None):
    return bytes([kind << 4 | flags]) + (varint(len(body)) if length is None else length) + body


def connect(v, client_id="", clean=True, keep_alive=0, will=None, user=None, password=None, props=(), name=None, level=None,
            flags=None, fixed=0, tail=b""):
    """will: dict(topic, payload, qos, retain, props). flags: the connect flags as they stand, instead of those that fit."""
    name = name if name is not None else ("MQIsdp" if v == 3 else "MQTT")
    fits = 2 * clean
    payload = text(client_id)
    if will is not None:
        fits |= 4 | will.get("qos", 0) << 3 | will.get("retain", False) << 5
        payload += properties(will.get("props", ())) if v == 5 else b""
        payload += text(will["topic"]) + text(will.get("payload", b""))
    if user is not None:
        fits |= 128
        payload += text(user)
    if password is not None:
        fits |= 64
        payload += text(password)
    head = text(name) + bytes([level if level is not None else v, fits if flags is None else flags]) + u16(keep_alive)
    return packet(CONNECT, fixed, head + (properties(props) if v == 5 else b"") + payload + tail)


def publish(v, topic, payload=b"", qos=0, pid=None, retain=False, dup=False, props=()):
    body = text(topic) + (u16(pid if pid is not None else 1) if qos else b"")
    body += properties(props) if v == 5 else b""
    return packet(PUBLISH, dup << 3 | qos << 1 | retain, body + (payload.encode() if isinstance(payload, str) else payload))


def ack(kind, pid, reason=None, props=None, flags=None):
    body = u16(pid) + (b"" if reason is None else bytes([reason])) + (b"" if props is None else properties(props))
    return packet(kind, (2 if kind == PUBREL else 0) if flags is None else flags, body)


def subscribe(v, filters, pid=1, props=(), flags=2):
    """filters: one filter, or a list of filters or of (filter, options)."""
    rows = [filters] if isinstance(filters, (str, bytes)) else filters
    rows = [(row, 0) if isinstance(row, (str, bytes)) else row for row in rows]
    body = u16(pid) + (properties(props) if v == 5 else b"")
    return packet(SUBSCRIBE, flags, body + b"".join(text(f) + bytes([options]) for f, options in rows))


def unsubscribe(v, filters, pid=1, props=(), flags=2):
    rows = [filters] if isinstance(filters, (str, bytes)) else filters
    return packet(UNSUBSCRIBE, flags, u16(pid) + (properties(props) if v == 5 else b"") + b"".join(map(text, rows)))


def pingreq(flags=0):
    return packet(PINGREQ, flags, b"")


def disconnect(v, reason=None, props=None, flags=0):
    body = b"" if v < 5 or reason is None else bytes([reason]) + (b"" if props is None else properties(props))
    return packet(DISCONNECT, flags, body)


def auth(reason=None, props=None, flags=0):
    return packet(AUTH, flags, b"" if reason is None else bytes([reason]) + properties(props or ()))


# --- reading

class Bytes:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, size):
        assert self.at + size <= len(self.raw), f"runs past the packet: {self.raw.hex()}"
        self.at += size
        return self.raw[self.at - size:self.at]

    def number(self, size):
        return int.from_bytes(self.take(size), "big")

    def varint(self):
        value = 0
        for i in range(4):
            byte = self.number(1)
            value |= (byte & 127) << 7 * i
            if byte < 128:
                assert byte or i == 0, "not the shortest form"
                return value
        raise AssertionError("variable byte integer of more than four bytes")

    def binary(self):
        return self.take(self.number(2))

    def text(self):
        out = self.binary().decode("utf-8")
        assert "\0" not in out
        return out

    @property
    def left(self):
        return len(self.raw) - self.at

    def properties(self, packet_type):
        block = Bytes(self.take(self.varint()))
        out, pairs, ids = {}, [], []
        while block.left:
            name, kind, where = _BY_NUMBER[block.varint()]
            assert packet_type in where, f"{name} in {NAMES[packet_type]}"
            value = {"byte": lambda: block.number(1), "u16": lambda: block.number(2), "u32": lambda: block.number(4),
                     "varint": block.varint, "text": block.text, "bytes": block.binary,
                     "pair": lambda: (block.text(), block.text())}[kind]()
            if name == "user_property":
                pairs.append(value)
            elif name == "subscription_id":
                ids.append(value)
            else:
                assert name not in out, f"{name} twice"
                out[name] = value
        return SimpleNamespace(get=out.get, all=out, user=pairs, ids=ids)


def parse(v, first, body):
    """A packet from a server, as the fields that it has. Anything that the standard does not allow is an AssertionError."""
    kind, flags = first >> 4, first & 15
    assert kind in (CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, PINGRESP, DISCONNECT, AUTH), kind
    p = SimpleNamespace(type=NAMES[kind], flags=flags, size=None)
    b = Bytes(body)
    if kind == PUBLISH:
        p.dup, p.qos, p.retain = bool(flags & 8), flags >> 1 & 3, bool(flags & 1)
        assert p.qos < 3 and not (p.dup and p.qos == 0)
        p.topic = b.text()
        assert "+" not in p.topic and "#" not in p.topic
        p.id = b.number(2) if p.qos else None
        assert p.id != 0
        if v == 5:
            p.props = b.properties(kind)
            assert p.topic or p.props.get("topic_alias")
        else:
            assert p.topic
        p.payload = b.take(b.left)
        return p
    assert flags == (2 if kind == PUBREL else 0), f"flags {flags} in {p.type}"
    if kind == CONNACK:
        acknowledge = b.number(1)
        assert acknowledge <= 1 and (v >= 4 or acknowledge == 0)
        p.present, p.reason = bool(acknowledge), b.number(1)
        assert not (p.present and p.reason)
        if v == 5:
            assert p.reason in REASONS[kind]
            p.props = b.properties(kind)
        else:
            assert p.reason <= 5
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        p.id, p.reason = b.number(2), 0
        assert p.id
        if v == 5 and b.left:
            p.reason = b.number(1)
            assert p.reason in REASONS[kind], f"{p.reason:#x} in {p.type}"
            if b.left:
                p.props = b.properties(kind)
    elif kind in (SUBACK, UNSUBACK):
        p.id = b.number(2)
        assert p.id
        if v == 5:
            p.props = b.properties(kind)
        p.reasons = list(b.take(b.left))
        if v == 5:
            assert p.reasons and set(p.reasons) <= REASONS[kind], p.reasons
        elif kind == SUBACK:
            assert p.reasons and set(p.reasons) <= {0, 1, 2, 0x80}, p.reasons
        else:
            assert not p.reasons
    elif kind in (DISCONNECT, AUTH):
        assert v == 5, f"{p.type} in version {v}"
        p.reason = b.number(1) if b.left else 0
        assert p.reason in REASONS[kind], f"{p.reason:#x} in {p.type}"
        p.props = b.properties(kind) if b.left else None
    assert b.left == 0, f"{b.left} bytes too many in {p.type}"
    return p
