"""A raw client of the broker under test, and the broker: one process, a port, a counter."""
import socket
import time

import wire

# Generous: a loaded machine is no fault of the broker. Nothing waits that long unless the test fails.
PATIENCE = 20


class Closed(Exception):
    pass


class Client:
    """One connection. What arrives out of turn is an error: each packet is expected by name."""

    def __init__(self, port, v):
        self.v = v
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.connack = None
        self.last_id = 0

    # --- bytes
    def send(self, *packets):
        try:
            self.socket.sendall(b"".join(packets))
        except (ConnectionResetError, BrokenPipeError):
            pass  # the broker has closed: whoever reads next will see what it said before
        return self

    def _need(self, size):
        while len(self.buffer) < size:
            try:
                more = self.socket.recv(262144)
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed(self.buffer)
            self.buffer += more

    def receive(self):
        """The next packet. Closed at the end of the stream."""
        self._need(2)
        length, used = 0, 1
        while True:
            self._need(used + 1)
            byte = self.buffer[used]
            length |= (byte & 127) << 7 * (used - 1)
            used += 1
            if byte < 128:
                assert byte or used == 2, "remaining length not in its shortest form"
                break
            assert used < 5, "remaining length of more than four bytes"
        self._need(used + length)
        first, body = self.buffer[0], self.buffer[used:used + length]
        self.buffer = self.buffer[used + length:]
        p = wire.parse(self.v, first, body)
        p.size = used + length
        return p

    def expect(self, kind, **fields):
        try:
            p = self.receive()
        except Closed:
            raise AssertionError(f"closed instead of {kind}") from None
        assert p.type == kind, f"{p} instead of {kind}"
        for name, value in fields.items():
            assert getattr(p, name) == value, f"{name} of {p} is not {value!r}"
        return p

    def closed(self, reason=None):
        """The broker closes; version 5 with this reason before, None: without a word."""
        if reason is not None and self.v == 5:
            self.expect("disconnect", reason=reason)
        try:
            p = self.receive()
        except Closed as end:
            assert not end.args[0], f"half a packet at the end: {end.args[0].hex()}"
            self.socket.close()
            return
        raise AssertionError(f"{p} instead of the end")

    def refused(self, reason, v3_reason=None):
        """CONNACK with that reason and the end. v3_reason: the code of version 3, None: closed without a word."""
        wanted = reason if self.v == 5 else v3_reason
        if wanted is not None:
            self.expect("connack", reason=wanted, present=False)
        self.closed()

    # --- dialogues
    def connect(self, client_id="", **how):
        self.send(wire.connect(self.v, client_id, **how))
        self.connack = self.expect("connack", reason=0)
        return self

    def new_id(self):
        self.last_id += 1
        return self.last_id

    def subscribe(self, filters, options=0, props=()):
        """Returns the reasons. options: for all filters that have none of their own."""
        rows = [filters] if isinstance(filters, (str, bytes)) else filters
        rows = [row if isinstance(row, tuple) else (row, options) for row in rows]
        pid = self.new_id()
        self.send(wire.subscribe(self.v, rows, pid, props))
        return self.expect("suback", id=pid).reasons

    def unsubscribe(self, filters):
        pid = self.new_id()
        self.send(wire.unsubscribe(self.v, filters, pid))
        return self.expect("unsuback", id=pid).reasons

    def publish(self, topic, payload=b"", qos=0, **how):
        """The whole exchange: when it returns, the broker has routed the message."""
        pid = self.new_id() if qos else None
        self.send(wire.publish(self.v, topic, payload, qos, pid, **how))
        if qos == 0:
            self.ping()
        elif qos == 1:
            self.expect("puback", id=pid)
        else:
            self.expect("pubrec", id=pid)
            self.send(wire.ack(wire.PUBREL, pid))
            self.expect("pubcomp", id=pid)
        return self

    def ping(self):
        """Everything that the broker had for this client before, which is then here, and acknowledged by nobody."""
        self.send(wire.pingreq())
        out = []
        while True:
            p = self.receive()
            if p.type == "pingresp":
                return out
            out.append(p)

    def nothing(self):
        assert self.ping() == []

    def message(self, topic=None, payload=None, answer=True, **fields):
        """The next message, acknowledged to the end."""
        p = self.expect("publish", **fields)
        assert topic is None or p.topic == topic, p
        raw = payload.encode() if isinstance(payload, str) else payload
        assert raw is None or p.payload == raw, p
        if answer and p.qos == 1:
            self.send(wire.ack(wire.PUBACK, p.id))
        if answer and p.qos == 2:
            self.send(wire.ack(wire.PUBREC, p.id))
            self.expect("pubrel", id=p.id, reason=0)
            self.send(wire.ack(wire.PUBCOMP, p.id))
        return p

    def disconnect(self, reason=None, props=None):
        self.send(wire.disconnect(self.v, reason, props))
        self.closed()

    def drop(self):
        """The network fails: no DISCONNECT."""
        self.socket.close()


class Broker:
    def __init__(self, node):
        self.node, self.port = node, node.mqtt_port
        self.clients = []
        self.names = 0

    def open(self, v=5):
        client = Client(self.port, v)
        self.clients.append(client)
        return client

    def connect(self, v=5, client_id=None, **how):
        return self.open(v).connect(self.name() if client_id is None else client_id, **how)

    def name(self):
        """A client id or topic that no other test has."""
        self.names += 1
        return f"n{self.names}"

    def count(self, name):
        return self.node.status()["mqtt"][name]

    def wait(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
            time.sleep(0.02)

    def alive(self):
        """After whatever was done to it: serves, and has not been restarted by anyone."""
        assert self.node.running()
        self.connect(4).disconnect()

    def end(self):
        for client in self.clients:
            client.socket.close()
        self.clients = []
