"""LSD's protocol by hand (appliance/codec/lsd/frames.h is the format): a client that can misbehave, and a server that does
what real ones do and can be told to fail."""
import gzip
import socket
import struct
import threading
import time

from link import varint

REQUEST = 1
GENERIC, OFFSETS = 1, 2


def frame(kind, body, length=None):
    return struct.pack(">II", 4 + len(body) if length is None else length, kind) + body


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(key, value):
    return varint(key << 3) + varint(value)


def event(category, inode, offset, lines, compressed=False):
    category = category.encode() if isinstance(category, str) else category
    if compressed:
        lines = [gzip.compress(b"".join(lines), 1)]
    return field(1, field(1, category) + number(2, inode) + number(3, offset) + b"".join(field(4, one) for one in lines)
                 + (number(5, 1) if compressed else b""))


def request(*events):
    return frame(REQUEST, b"".join(events))


def fields(body):
    at = 0

    def take():
        nonlocal at
        out = shift = 0
        while True:
            byte = body[at]
            at += 1
            out |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return out

    while at < len(body):
        key = take()
        if key & 7 == 0:
            yield key >> 3, take()
        else:
            assert key & 7 == 2, key
            size = take()
            assert at + size <= len(body), "cut short"
            yield key >> 3, body[at:at + size]
            at += size


def read_events(body):
    """[(category, inode, offset, [lines])], gzip undone."""
    out = []
    for key, data in fields(body):
        assert key == 1, key
        category, inode, offset, lines, compressed = None, None, None, [], False
        for number_, value in fields(data):
            if number_ == 1:
                category = value.decode()
            elif number_ == 2:
                inode = value
            elif number_ == 3:
                offset = value
            elif number_ == 4:
                lines.append(value)
            elif number_ == 5:
                compressed = bool(value)
        if compressed:
            lines = gzip.decompress(lines[0]).splitlines(True)
        out.append((category, inode, offset, lines))
    return out


def read_offsets(body):
    return [tuple(value for _, value in fields(data)) for _, data in fields(body)]


def error(text, code=-1):
    return frame(GENERIC, number(1, ((code << 1) ^ (code >> 31)) & 0xFFFFFFFF) + field(2, text.encode()))


def read_error(body):
    """(code, text)"""
    got = dict(fields(body))
    return (got[1] >> 1) ^ -(got[1] & 1), got.get(2, b"").decode()


def offsets(tokens):
    return frame(OFFSETS, b"".join(field(1, number(1, inode) + number(2, offset)) for inode, offset in tokens))


def read_exactly(sock, size):
    out = bytearray()
    while len(out) < size:
        data = sock.recv(min(size - len(out), 1 << 20))
        if not data:
            return None
        out += data
    return bytes(out)


def read_frame(sock):
    """(id, body); None at the end."""
    head = read_exactly(sock, 8)
    if head is None:
        return None
    length, kind = struct.unpack(">II", head)
    body = read_exactly(sock, length - 4)
    return None if body is None else (kind, body)


class Client:
    def __init__(self, port, seconds=20):
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.socket.settimeout(seconds)

    def send(self, data):
        self.socket.sendall(data)

    def answer(self):
        return read_frame(self.socket)

    def ask(self, *events):
        self.send(request(*events))
        return self.answer()

    def accepted(self, *events):
        """Asks, and the answer must hold exactly the request's pairs."""
        kind, body = self.ask(*events)
        assert kind == OFFSETS, read_error(body)
        asked = sorted((inode, offset) for one in events for _, inode, offset, _ in read_events(one))
        assert sorted(read_offsets(body)) == asked
        return body

    def refused(self, *events):
        kind, body = self.ask(*events)
        assert kind == GENERIC, body
        return read_error(body)

    def ended(self):
        """Closed without a word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()


class Server:
    """As real ones: a thread a connection, one request at a time, answers on a tick. `wrong(events)` may return an answer to
    send instead, "close" to close, or None; what it refuses is not written."""

    def __init__(self, port=0, tick=0.05, wrong=None):
        self.tick, self.wrong = tick, wrong
        self.lock = threading.Lock()
        self.lines = {}      # category -> [lines without newlines]
        self.requests = []   # per request: [(category, inode, offset, number of lines)]
        self.busy = self.busiest = self.bytes_max = self.connections = 0
        self.open = set()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.add(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            while (got := read_frame(sock)) is not None:
                kind, body = got
                assert kind == REQUEST
                if not self.take(sock, body):
                    break
        except OSError:
            pass
        finally:
            self.open.discard(sock)
            sock.close()

    def take(self, sock, body):
        events = read_events(body)
        with self.lock:
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
            self.bytes_max = max(self.bytes_max, len(body))
            self.requests.append([(category, inode, offset, len(lines)) for category, inode, offset, lines in events])
            answer = self.wrong(events) if self.wrong else None
            if answer is None:
                for category, _, _, lines in events:
                    for line in lines:
                        assert line.endswith(b"\n"), line[-40:]
                        self.lines.setdefault(category, []).append(line[:-1])
        if self.tick:
            time.sleep(self.tick - time.monotonic() % self.tick)
        with self.lock:
            self.busy -= 1
        if answer == "close":
            return False
        tokens = [(inode, offset) for _, inode, offset, _ in events]
        sock.sendall(answer or offsets(tokens[:1] + tokens[:0:-1]))  # order is free
        return True

    def count(self):
        with self.lock:
            return sum(len(one) for one in self.lines.values())

    def stop(self):
        if self.listener.fileno() < 0:
            return
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in list(self.open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.thread.join(5)
