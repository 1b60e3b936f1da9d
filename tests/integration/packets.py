"""A client of MQTT 3.1.1 that does what a test says, packet by packet: what other people's clients do not let one leave out."""
import socket
import struct

from mqtt_wire import Gone, packet, take_packet, text

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK = 2, 3, 4, 5, 6, 7, 9, 11


class Mqtt:
    def __init__(self, port, client_id, clean=False, will=None, keepalive=0):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.unread = []
        flags = (2 if clean else 0)
        payload = text(client_id)
        if will:
            topic, message, qos, retain = will
            flags |= 4 | qos << 3 | (32 if retain else 0)
            payload += text(topic) + text(message)
        self.send(1, 0, text("MQTT") + bytes([4, flags]) + struct.pack(">H", keepalive) + payload)
        kind, _, body = self.read()
        assert kind == CONNACK and body[1] == 0, (kind, body)
        self.session_present = body[0] == 1

    def send(self, kind, flags, body):
        self.socket.sendall(packet(kind << 4 | flags, body))

    def read(self, seconds=20):
        """One packet: (kind, flags, body)."""
        self.socket.settimeout(seconds)
        while (taken := take_packet(self.buffer)) is None:
            more = self.socket.recv(1 << 20)
            if not more:
                raise Gone
            self.buffer += more
        head, body, self.buffer = taken
        return head >> 4, head & 15, body

    def expect(self, kind, packet_id=None, seconds=20):
        """The next packet of that kind; PUBLISHes that come before it are kept for messages()."""
        while True:
            got, flags, body = self.read(seconds)
            if got == PUBLISH and kind != PUBLISH:
                self.unread.append((flags, body))
                continue
            assert got == kind, (got, flags, body)
            if packet_id is not None:
                assert struct.unpack(">H", body[:2])[0] == packet_id, (kind, packet_id, body)
            return flags, body

    def subscribe(self, topic, qos, packet_id=1):
        self.send(8, 2, struct.pack(">H", packet_id) + text(topic) + bytes([qos]))
        _, body = self.expect(SUBACK, packet_id)
        assert body[2] == qos, body

    def publish(self, topic, payload, qos=0, packet_id=0, retain=False, dup=False):
        body = text(topic) + (struct.pack(">H", packet_id) if qos else b"") + payload.encode()
        self.send(3, qos << 1 | (1 if retain else 0) | (8 if dup else 0), body)

    def ack(self, kind, packet_id):
        self.send(kind, 2 if kind == PUBREL else 0, struct.pack(">H", packet_id))

    def message(self, seconds=20):
        """The next PUBLISH: (payload, qos, packet id, dup, retain)."""
        flags, body = self.unread.pop(0) if self.unread else self.expect(PUBLISH, None, seconds)
        size = struct.unpack(">H", body[:2])[0]
        at = 2 + size
        qos = flags >> 1 & 3
        packet_id = 0
        if qos:
            packet_id = struct.unpack(">H", body[at:at + 2])[0]
            at += 2
        return body[at:].decode(), qos, packet_id, bool(flags & 8), bool(flags & 1)

    def disconnect(self):
        self.send(14, 0, b"")
        try:
            while True:
                self.read(5)
        except (Gone, OSError):
            pass
        self.socket.close()

    def drop(self):
        self.socket.close()
