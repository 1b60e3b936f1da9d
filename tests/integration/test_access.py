"""Who may use the broker: real mosquitto_pub, mosquitto_sub and mosquitto_passwd against a real node."""
import base64
import hashlib
import hmac
import http.server
import json
import os
import socket
import struct
import subprocess
import threading
import time

import pytest

from mqtt_wire import packet, text, varint
from node import Node
from packets import Mqtt
from waiting import patience, wait_until

SECONDS = 20


@pytest.fixture
def gateway(net, program, tmp_path):
    """Makes a node with one listener and the given [broker] and [[listener]] keys."""
    def make(broker=None, listener=None, start=True, **tables):
        port = net.ports.take()
        node = Node(program, tmp_path, "gw", {"listener": [{"bind": f"127.0.0.1:{port}", **(listener or {})}],
                                             "broker": {"workers": 2, **(broker or {})}, **tables})
        net.nodes.append(node)
        return node.start() if start else node
    return make


def passwd(path, users):
    """A password file of the real tool; a user that begins with '6' gets the older kind of hash."""
    path.touch()
    for name, password in users.items():
        kind = ["-H", "sha512"] if name.startswith("6") else []
        subprocess.run(["mosquitto_passwd", *kind, "-b", str(path), name, password], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    return path


def credentials(user):
    return [] if user is None else ["-u", user.partition(":")[0], "-P", user.partition(":")[2]]


def pub(node, topic="t", user=None, version="311", qos=1, message="m", *more):
    done = subprocess.run(["mosquitto_pub", "-p", str(node.mqtt_port), "-V", version, "-t", topic, "-m", message, "-q", str(qos),
                           *credentials(user), *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=patience(SECONDS))
    return done.returncode, done.stdout


def refused(outcome):
    return outcome[0] != 0 and ("not authori" in outcome[1].lower() or "bad user" in outcome[1].lower()
                                or "banned" in outcome[1].lower())


class Sub:
    """mosquitto_sub in the background; what it got, and what it said."""

    def __init__(self, node, tmp_path, *filters, user=None, version="311", more=()):
        self.path = tmp_path / f"sub-{time.monotonic_ns()}"
        topics = [part for each in filters for part in ("-t", each)]
        self.process = subprocess.Popen(["stdbuf", "-oL", "mosquitto_sub", "-p", str(node.mqtt_port), "-V", version, "-v", "-d", "-q", "1",
                                         *topics, *credentials(user), *more], stdout=open(self.path, "wb"), stderr=subprocess.STDOUT)
        wait_until(lambda: "Subscribed" in self.text() or self.process.poll() is not None, SECONDS, self.text)

    def text(self):
        return self.path.read_text()

    def has(self, line):
        return line in self.text().split("\n")

    def wait(self, line):
        wait_until(lambda: self.has(line), SECONDS, self.text)

    def wait_end(self):
        wait_until(lambda: self.process.poll() is not None, SECONDS, self.text)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def subscribe(tmp_path):
    made = []

    def make(*args, **more):
        made.append(Sub(args[0], tmp_path, *args[1:], **more))
        return made[-1]
    yield make
    for sub in made:
        sub.end()


def mqtt(node, field):
    return node.status()["mqtt"][field]


def hash_of(tmp_path, name, password):
    return passwd(tmp_path / f"hash-{name}", {name: password}).read_text().strip().partition(":")[2]


def test_users_of_the_file_and_of_a_mosquitto_password_file(gateway, tmp_path):
    file = passwd(tmp_path / "passwd", {"alice": "secret", "bob": "pa:ss wörd", "6carol": "geheim"})
    node = gateway({"authn": {"password_file": file},
                    "user": [{"username": "dave", "password_hash": hash_of(tmp_path, "dave", "d")}]},
                   {"allow_anonymous": False})
    for version in ("31", "311", "5"):
        for user in ("alice:secret", "bob:pa:ss wörd", "6carol:geheim", "dave:d"):
            if version == "31" and ":" in user.partition(":")[2]:
                continue
            assert pub(node, user=user, version=version)[0] == 0, (version, user)
        for user in ("alice:wrong", "alice:", "nobody:secret", "6carol:secret", "dave:dd"):
            assert refused(pub(node, user=user, version=version)), (version, user)
        assert refused(pub(node, version=version))
    assert mqtt(node, "logins_failed") == 18
    node.stop()



def test_anonymous_clients_need_no_user_but_a_user_needs_its_password(gateway, tmp_path):
    node = gateway({"user": [{"username": "dave", "password_hash": hash_of(tmp_path, "dave", "d")}]})
    assert pub(node)[0] == 0
    assert pub(node, user="dave:d")[0] == 0
    assert refused(pub(node, user="dave:x"))
    assert refused(pub(node, user="eve:x"))


def test_rules_decide_over_topics(gateway, subscribe, tmp_path):
    node = gateway({"user": [{"username": name, "password_hash": hash_of(tmp_path, name, "p")} for name in ("dev", "boss")],
                    "authz": {"no_match": "deny"},
                    "acl": [{"permission": "deny", "action": "all", "topics": ["plant/secret/#"]},
                            {"permission": "allow", "action": "publish", "topics": ["dev/%u/#", "dev/${clientid}/up"]},
                            {"permission": "allow", "action": "subscribe", "username": "boss", "topics": ["dev/#", "plant/#", "eq $SYS/x"]},
                            {"permission": "allow", "action": "all", "clientid": "special", "topics": ["plant/+/x"]}]},
                   {"allow_anonymous": False})
    boss = subscribe(node, "dev/#", user="boss:p", version="5")
    other = subscribe(node, "plant/1/x", user="boss:p")
    assert pub(node, "dev/dev/a", "dev:p", message="1")[0] == 0
    assert pub(node, "dev/c9/up", "dev:p", "5", 1, "2", "-i", "c9")[0] == 0
    boss.wait("dev/dev/a 1")
    boss.wait("dev/c9/up 2")
    assert pub(node, "plant/1/x", "dev:p", "5", 1, "3", "-i", "special")[0] == 0
    other.wait("plant/1/x 3")
    # Not allowed: version 3 is not told, version 5 is; nobody gets it.
    assert pub(node, "dev/boss/a", "dev:p", message="4")[0] == 0
    code, said = pub(node, "dev/boss/a", "dev:p", "5", 1, "4")
    assert code == 0 and "Not authorized" in said, said
    assert pub(node, "dev/c8/up", "dev:p", "311", 0, "4", "-i", "c9")[0] == 0
    assert pub(node, "dev/dev/z", "dev:p", message="5")[0] == 0
    boss.wait("dev/dev/z 5")
    assert " 4" not in boss.text()
    assert mqtt(node, "publish_denied") == 3
    # Filters: wider than allowed, or with a denied part in them.
    for wanted in ("#", "+/dev/a", "plant/#", "plant/secret/x", "$SYS/#", "$share/g/plant/secret/x", "dev"):
        denied = subscribe(node, wanted, user="boss:p")
        if wanted == "dev":
            assert "QoS: 1" in denied.text() or denied.process.poll() is None, denied.text()
            continue
        wait_until(lambda: "denied" in denied.text() or "128" in denied.text(), SECONDS, denied.text)
    assert mqtt(node, "subscribe_denied") == 6


def test_nobody_subscribes_to_everything_by_default(gateway, subscribe):
    node = gateway()
    for wanted in ("#", "+/#", "$SYS/#", "$SYS/broker/uptime"):
        denied = subscribe(node, wanted)
        wait_until(lambda: "denied" in denied.text() or "128" in denied.text(), SECONDS, denied.text)
    one = subscribe(node, "a/#", "+/b")
    assert pub(node, "a/b", message="x")[0] == 0
    one.wait("a/b x")


def test_a_denied_publisher_may_be_disconnected(gateway):
    node = gateway({"authz": {"deny_action": "disconnect"}, "acl": [{"permission": "deny", "topics": ["no"]}]})
    assert pub(node, "yes")[0] == 0
    assert pub(node, "no", version="5")[0] != 0
    wait_until(lambda: mqtt(node, "publish_denied") >= 1, SECONDS)


def test_a_will_that_is_not_allowed_is_no_way_in(gateway):
    node = gateway({"acl": [{"permission": "deny", "action": "publish", "topics": ["no/#"]}]})
    assert pub(node, "yes", None, "5", 1, "m", "--will-topic", "yes/too")[0] == 0
    assert refused(pub(node, "yes", None, "5", 1, "m", "--will-topic", "no/x"))


def test_what_is_wrong_in_the_file_is_told_with_its_place(gateway):
    node = gateway({"user": [{"username": "a:b", "password_hash": "$9$x"}], "authn": {"order": ["usrs"]},
                    "acl": [{"permission": "alow", "ipaddress": "10.0.0.0/33", "topics": ["a/#/b"]}]}, start=False)
    done = node.command("config", "check", str(node.config_path))
    assert done.returncode == 2
    for part in ("is no user name", "a hash begins with", "did you mean \"users\"", "did you mean \"allow\"",
                 "no address or network", "is no topic filter"):
        assert part in done.stderr, (part, done.stderr)


# --- changes while the node runs

def cli(node, *arguments, code=0, stdin=None):
    verb = [str(node.program), *arguments, "--socket", str(node.folder / "api.sock")]
    done = subprocess.run(verb, input=stdin if stdin is not None else "", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=patience(60))
    assert done.returncode == code, (verb, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def clients_connected(node, count):
    wait_until(lambda: mqtt(node, "connections") == count, SECONDS, node.status)


def test_users_come_and_go_at_once_and_survive_kill_9(gateway, subscribe):
    node = gateway(listener={"allow_anonymous": False})
    assert refused(pub(node, user="eva:one"))
    assert "added eva" in cli(node, "users", "add", "eva", "--stdin", stdin="one\n")
    assert pub(node, user="eva:one")[0] == 0
    node.kill()
    node.start()
    assert pub(node, user="eva:one")[0] == 0
    assert "ALREADY_EXISTS" in cli(node, "users", "add", "eva", "-p", "x", code=1)
    sub = subscribe(node, "a", user="eva:one")
    assert "changed eva" in cli(node, "users", "passwd", "eva", "-p", "two")
    wait_until(lambda: "CONNACK (5)" in sub.text() or "not authori" in sub.text().lower() or sub.process.poll() is not None,
               SECONDS, sub.text)  # put out, and its password does no more
    assert refused(pub(node, user="eva:one"))
    assert pub(node, user="eva:two")[0] == 0
    sub.end()
    kept = subscribe(node, "a", user="eva:two")
    assert "removed eva" in cli(node, "users", "del", "eva")
    wait_until(lambda: kept.process.poll() is not None or "CONNACK (5)" in kept.text(), SECONDS, kept.text)
    assert refused(pub(node, user="eva:two"))
    assert "NOT_FOUND" in cli(node, "users", "del", "eva", code=1)
    assert "no ':'" in cli(node, "users", "add", "a:b", "-p", "x", code=2)
    node.stop()


def test_a_mosquitto_password_file_is_imported(gateway, tmp_path):
    file = passwd(tmp_path / "passwd", {"alice": "secret", "6bob": "b"})
    node = gateway({"user": [{"username": "fix", "password_hash": hash_of(tmp_path, "fix", "f")}]}, {"allow_anonymous": False})
    assert "imported 2 users" in cli(node, "users", "import", str(file))
    for user in ("alice:secret", "6bob:b", "fix:f"):
        assert pub(node, user=user)[0] == 0, user
    rows = {row["user_id"]: row for row in json.loads(cli(node, "users", "list", "--json"))["data"]}
    assert {name: row["origin"] for name, row in rows.items()} == {"alice": "api", "6bob": "api", "fix": "config"}
    assert rows["6bob"]["algorithm"] == "sha512" and "hash" not in json.dumps(rows)
    text = cli(node, "users", "list")
    assert "alice" in text and "pbkdf2_sha512" in text
    assert "CONFIGURED" in cli(node, "users", "del", "fix", code=1)
    file.write_text("broken\n")
    assert "line 1" in cli(node, "users", "import", str(file), code=2)


def test_many_users_are_imported(gateway, tmp_path):
    line = passwd(tmp_path / "one", {"x": "secret"}).read_text().partition(":")[2]
    file = tmp_path / "many"
    file.write_text("".join(f"user-{n}:{line}" for n in range(5000)))
    node = gateway(listener={"allow_anonymous": False})
    assert "imported 5000" in cli(node, "users", "import", str(file))
    node.kill()
    node.start()
    assert pub(node, user="user-4999:secret")[0] == 0
    assert json.loads(cli(node, "users", "list", "--json"))["meta"]["count"] == 5000


def test_rules_hold_at_once_and_take_away_subscriptions(gateway, subscribe):
    node = gateway()
    sub = subscribe(node, "plant/#")
    assert pub(node, "plant/1", message="before")[0] == 0
    sub.wait("plant/1 before")
    first = json.loads(cli(node, "acl", "add", "deny", "plant/secret/#", "--action", "subscribe", "--json"))["id"]
    second = cli(node, "acl", "add", "deny", "other/%c", "eq x/#", "--user", "u", "--address", "10.0.0.0/8").split()[-1]
    assert pub(node, "plant/1", message="after")[0] == 0
    wait_until(lambda: mqtt(node, "subscriptions") == 0, SECONDS, node.status)
    assert not sub.has("plant/1 after")
    node.kill()
    node.start()
    rows = json.loads(cli(node, "acl", "list", "--json"))["data"]
    assert [row["id"] for row in rows] == [first, int(second)]
    assert rows[1] == {"id": int(second), "origin": "api", "permission": "deny", "action": "all", "username": "u",
                       "ipaddress": "10.0.0.0/8", "topics": ["other/%c", "eq x/#"]}
    assert "plant/secret/#" in cli(node, "acl", "list")
    cli(node, "acl", "del", str(first))
    other = subscribe(node, "plant/#")
    assert pub(node, "plant/1", message="again")[0] == 0
    other.wait("plant/1 again")
    assert "NOT_FOUND" in cli(node, "acl", "del", str(first), code=1)
    assert "no topic filter" in cli(node, "acl", "add", "allow", "a/#/b", code=2)
    assert cli(node, "acl", "add", "maybe", "a", code=2)


def test_rules_take_away_a_will_that_they_no_longer_allow(gateway, subscribe):
    node = gateway()
    sub = subscribe(node, "plant/#")
    one = Mqtt(node.mqtt_port, "one", will=("plant/secret", "forbidden", 1, False))
    two = Mqtt(node.mqtt_port, "two", will=("plant/open", "allowed", 1, False))
    cli(node, "acl", "add", "deny", "plant/secret", "--action", "publish")
    wait_until(lambda: mqtt(node, "publish_denied") == 1, SECONDS, node.status)
    one.drop()
    clients_connected(node, 2)
    two.drop()
    sub.wait("plant/open allowed")
    assert not sub.has("plant/secret")


def test_bans_put_clients_out_and_end(gateway, subscribe):
    node = gateway()
    sub = subscribe(node, "a", more=("-i", "meter-1"))
    assert "banned meter-*" in cli(node, "ban", "add", "clientid_mask", "meter-*", "--reason", "noisy")
    wait_until(lambda: "CONNACK (5)" in sub.text() or sub.process.poll() is not None, SECONDS, sub.text)
    sub.end()
    clients_connected(node, 0)
    code, said = pub(node, "a", None, "5", 1, "m", "-i", "meter-2")
    assert code != 0 and "banned" in said.lower(), said
    assert pub(node, "a", None, "5", 1, "m", "-i", "other")[0] == 0
    row = json.loads(cli(node, "ban", "list", "--json"))["data"][0]
    assert (row["as"], row["who"], row["by"], row["reason"], row["until"]) == ("clientid_mask", "meter-*", "cli", "noisy", "infinity")
    node.kill()
    node.start()
    assert pub(node, "a", None, "5", 1, "m", "-i", "meter-2")[0] != 0
    cli(node, "ban", "del", "clientid_mask", "meter-*")
    assert pub(node, "a", None, "5", 1, "m", "-i", "meter-2")[0] == 0
    cli(node, "ban", "add", "network", "127.0.0.0/8", "--for", "2s")
    assert pub(node)[0] != 0
    wait_until(lambda: pub(node)[0] == 0, SECONDS, "the ban is over")
    assert json.loads(cli(node, "ban", "list", "--json"))["data"] == []
    assert "no network" in cli(node, "ban", "add", "network", "x", code=2)
    assert cli(node, "ban", "add", "shoe", "x", code=2)
    assert "NOT_FOUND" in cli(node, "ban", "del", "client", "x", code=1)
    assert mqtt(node, "banned") >= 3


def test_a_hash_is_made_without_a_node(program, gateway):
    done = subprocess.run([str(program), "users", "hash", "--stdin", "--iterations", "1000"], input="pässword\n", stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stdout.startswith("$7$1000$")
    node = gateway({"user": [{"username": "h", "password_hash": done.stdout.strip()}]}, {"allow_anonymous": False})
    assert pub(node, user="h:pässword")[0] == 0


def test_a_storm_of_logins_is_shed_and_does_not_stop_the_loops(gateway, tmp_path):
    """Hashing is slow; those who wait are bounded, and clients that are in go on."""
    node = gateway(listener={"allow_anonymous": False})
    cli(node, "users", "add", "slow", "-p", "s", "--iterations", "300000")
    cli(node, "users", "add", "quick", "-p", "q", "--iterations", "1")
    begin = time.monotonic()
    assert pub(node, user="slow:s")[0] == 0
    once = time.monotonic() - begin
    for _ in range(3):
        assert pub(node, user="slow:s")[0] == 0  # remembered: no PBKDF2 (per worker)
    many = [subprocess.Popen(["mosquitto_pub", "-p", str(node.mqtt_port), "-t", "t", "-m", "x", "-u", "slow", "-P", f"wrong{n}"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in range(8)]
    try:
        assert json.loads(node.command("status", "--json", "-c", str(node.config_path)).stdout)["mqtt"]
        assert all(one.wait(60 + 8 * once) != 0 for one in many)
    finally:
        for one in many:
            one.kill()
    assert mqtt(node, "logins_failed") == 8


# --- certificates and limits

def test_a_certificate_is_a_user_name(gateway, tmp_path, program):
    pki = tmp_path / "pki"
    for verb in (["init", str(pki)], ["issue", str(pki), "gw", "--ip", "127.0.0.1", "--dns", "localhost"], ["issue", str(pki), "meter-9"]):
        subprocess.run([str(program), "pki", *verb], check=True, stdout=subprocess.DEVNULL)
    node = gateway({"authz": {"no_match": "deny"}, "acl": [{"permission": "allow", "topics": ["m/%u/#"]}]},
                   {"tls": True, "allow_anonymous": False, "certificate_as": "username"},
                   tls={"ca": pki / "ca.crt", "cert": pki / "gw.crt", "key": pki / "gw.key"})
    ca = ["--cafile", str(pki / "ca.crt")]
    own = ["--cert", str(pki / "meter-9.crt"), "--key", str(pki / "meter-9.key")]
    code, said = pub(node, "m/meter-9/x", None, "5", 1, "m", *ca, *own)
    assert code == 0 and "Not authorized" not in said, said
    code, said = pub(node, "m/other/x", None, "5", 1, "m", *ca, *own)
    assert "Not authorized" in said, said
    assert refused(pub(node, "m/meter-9/x", None, "5", 1, "m", *ca))


def test_a_client_that_sends_too_much_is_slowed_down_and_loses_nothing(gateway, subscribe):
    node = gateway(listener={"messages_rate": 200})
    sub = subscribe(node, "r")
    begin = time.monotonic()
    subprocess.run(["mosquitto_pub", "-p", str(node.mqtt_port), "-t", "r", "-q", "1", "-l"],
                   input="".join(f"m{n}\n" for n in range(600)), text=True, check=True, timeout=60)
    took = time.monotonic() - begin
    sub.wait("r m599")
    lines = [line for line in sub.text().split("\n") if line.startswith("r m")]
    assert lines == [f"r m{n}" for n in range(600)]
    assert took > 1.0 and mqtt(node, "throttled") >= 1, took
    assert pub(node)[0] == 0


def test_connections_beyond_their_rate_are_closed(gateway):
    node = gateway(listener={"max_conn_rate": 3})
    codes = [pub(node)[0] for _ in range(12)]
    assert codes.count(0) >= 3
    wait_until(lambda: mqtt(node, "connections_over_rate") > 0 or pub(node)[0] is None, SECONDS)
    wait_until(lambda: pub(node)[0] == 0, SECONDS, "later they get in again")


def test_a_client_that_flaps_is_banned_for_a_while(gateway):
    node = gateway({"flapping_detect": {"enable": True, "max_count": 4, "ban_time": "3s"}})
    for _ in range(4):
        assert pub(node, "a", None, "5", 1, "m", "-i", "nervous")[0] == 0
    wait_until(lambda: pub(node, "a", None, "5", 1, "m", "-i", "nervous")[0] != 0, SECONDS)
    assert pub(node, "a", None, "5", 1, "m", "-i", "calm")[0] == 0
    row = json.loads(cli(node, "ban", "list", "--json"))["data"][0]
    assert row["who"] == "nervous" and row["by"] == "flapping"
    wait_until(lambda: pub(node, "a", None, "5", 1, "m", "-i", "nervous")[0] == 0, SECONDS)


# --- SCRAM-SHA-256, spoken here by Python's own hashes

class Scram:
    """A version 5 client that authenticates with AUTH packets."""
    METHOD = b"SCRAM-SHA-256"

    def __init__(self, node, user, password):
        self.socket = socket.create_connection(("127.0.0.1", node.mqtt_port), SECONDS)
        self.user, self.password = user, password

    def properties(self, data):
        block = b"\x15" + text(self.METHOD) + (b"\x16" + text(data) if data is not None else b"")
        return varint(len(block)) + block

    def send(self, first, body):
        self.socket.sendall(packet(first, body))

    def exact(self, n):
        out = b""
        while len(out) < n:
            got = self.socket.recv(n - len(out))
            assert got, "closed"
            out += got
        return out

    def receive(self):
        first, size, shift = self.exact(1)[0], 0, 0
        while True:
            digit = self.exact(1)[0]
            size |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                return first >> 4, self.exact(size)

    @staticmethod
    def data_of(block):
        at = block.index(b"\x16")
        while True:  # the id may stand in a value before
            size = struct.unpack("!H", block[at + 1:at + 3])[0]
            if at + 3 + size <= len(block) and block[at + 3:at + 5] in (b"r=", b"v="):
                return block[at + 3:at + 3 + size]
            at = block.index(b"\x16", at + 1)

    def first(self):
        self.nonce = base64.b64encode(os.urandom(18))
        return b"n,,n=" + self.user + b",r=" + self.nonce

    def last(self, server_first):
        parts = dict(part.split(b"=", 1) for part in server_first.split(b","))
        assert parts[b"r"].startswith(self.nonce) and len(parts[b"r"]) > len(self.nonce)
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(parts[b"s"]), int(parts[b"i"]))
        mac = lambda key, text: hmac.new(key, text, "sha256").digest()
        without = b"c=biws,r=" + parts[b"r"]
        signed = b"n=" + self.user + b",r=" + self.nonce + b"," + server_first + b"," + without
        key = mac(salted, b"Client Key")
        proof = bytes(a ^ b for a, b in zip(key, mac(hashlib.sha256(key).digest(), signed)))
        self.expected = b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), signed))
        return without + b",p=" + base64.b64encode(proof)

    def connect(self):
        """The CONNACK's reason."""
        self.send(0x10, text(b"MQTT") + b"\x05\x02\x00\x3c" + self.properties(self.first()) + text(b"scram"))
        kind, body = self.receive()
        if kind == 2:
            return body[1]
        assert kind == 15 and body[0] == 0x18
        self.send(0xF0, b"\x18" + self.properties(self.last(self.data_of(body))))
        kind, body = self.receive()
        assert kind == 2
        if body[1] == 0:
            assert self.data_of(body) == self.expected  # the server knows the password, too
        return body[1]

    def again(self):
        """What the re-authentication ends with: packet and reason."""
        self.send(0xF0, b"\x19" + self.properties(self.first()))
        kind, body = self.receive()
        assert kind == 15 and body[0] == 0x18
        self.send(0xF0, b"\x18" + self.properties(self.last(self.data_of(body))))
        kind, body = self.receive()
        return kind, body[0] if body else 0


def test_scram_as_another_implementation_speaks_it(gateway):
    node = gateway(listener={"allow_anonymous": False})
    cli(node, "users", "add", "sam", "-p", "pencil")
    client = Scram(node, b"sam", b"pencil")
    assert client.connect() == 0
    assert client.again() == (15, 0)
    client.password = b"other"
    assert client.again() == (14, 0x87)
    assert Scram(node, b"sam", b"pen").connect() == 0x87
    assert Scram(node, b"nobody", b"pencil").connect() == 0x87
    # RFC 4013: one form of a name and a password, whichever way they are typed; what has none is refused.
    cli(node, "users", "add", "J\u00fcrgen", "-p", "two\u00a0words\u00ad")
    assert Scram(node, "J\u00fc\u00adrgen".encode(), b"two words").connect() == 0
    assert Scram(node, "Ju\u0308rgen".encode(), b"two words").connect() == 0x87
    assert "RFC 4013: write \"sam\"" in cli(node, "users", "add", "s\u00adam", "-p", "x", code=2)
    assert "normal form KC, U+FF41" in cli(node, "users", "add", "\uff41", "-p", "x", code=2)
    cli(node, "users", "add", "emo", "-p", "\U0001f600")
    assert pub(node, user="emo:\U0001f600")[0] == 0
    assert Scram(node, b"emo", "\U0001f600".encode()).connect() == 0x87


# --- tokens

def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(claims, sign, algorithm, **header):
    text = b64(json.dumps({"alg": algorithm, "typ": "JWT", **header}).encode()) + "." + b64(json.dumps(claims).encode())
    return text + "." + b64(sign(text.encode()))


def hs(secret, kind="sha256"):
    return lambda text: hmac.new(secret, text, kind).digest()


def openssl(*arguments, data=None):
    return subprocess.run(["openssl", *arguments], input=data, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def rs(key):
    return lambda text: openssl("dgst", "-sha256", "-sign", str(key), data=text)


def es(key):
    def sign(text):
        der = openssl("dgst", "-sha256", "-sign", str(key), data=text)
        out, at = b"", 2
        for _ in range(2):  # two INTEGERs
            size = der[at + 1]
            out += der[at + 2:at + 2 + size].lstrip(b"\0").rjust(32, b"\0")
            at += 2 + size
        return out
    return sign


def test_tokens_of_every_algorithm_let_clients_in(gateway, tmp_path):
    rsa, ec, other = tmp_path / "rsa.pem", tmp_path / "ec.pem", tmp_path / "other.pem"
    openssl("genrsa", "-out", str(rsa), "2048")
    for key in (ec, other):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
    public = tmp_path / "rsa.pub"
    public.write_bytes(openssl("rsa", "-in", str(rsa), "-pubout"))
    point = openssl("ec", "-in", str(ec), "-pubout", "-outform", "DER")[-64:]
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "kid": "e1", "use": "sig", "x": b64(point[:32]), "y": b64(point[32:])}]}))
    node = gateway({"jwt": {"secret": "s3cret", "public_key_file": public, "jwks_file": jwks}, "authz": {"no_match": "deny"},
                    "acl": [{"permission": "allow", "action": "publish", "topics": ["u/%u"]}]}, {"allow_anonymous": False})
    claims = {"username": "max", "exp": int(time.time()) + 600, "acl": {"pub": ["own/%u/#"]}}
    good = {"HS256": token(claims, hs(b"s3cret"), "HS256"), "HS384": token(claims, hs(b"s3cret", "sha384"), "HS384"),
            "HS512": token(claims, hs(b"s3cret", "sha512"), "HS512"), "RS256": token(claims, rs(rsa), "RS256"),
            "ES256": token(claims, es(ec), "ES256", kid="e1")}
    for name, password in good.items():
        for topic in ("u/max", "own/max/x"):
            code, said = pub(node, topic, "anything:" + password, "5")
            assert code == 0 and "Not authorized" not in said, (name, topic, said)
        assert "Not authorized" in pub(node, "u/other", "anything:" + password, "5")[1], name
    wrong = [token(claims, hs(b"other"), "HS256"), token(claims, es(other), "ES256"), token(claims, es(ec), "ES256", kid="e2"),
             token({**claims, "exp": 1}, hs(b"s3cret"), "HS256"), token({**claims, "nbf": time.time() + 1000}, hs(b"s3cret"), "HS256"),
             token(claims, hs(public.read_bytes()), "HS256"), token(claims, lambda _: b"x", "none"), good["RS256"][:-4] + "AAAA",
             token({**claims, "acl": 5}, hs(b"s3cret"), "HS256"), "no token"]
    for password in wrong:
        assert refused(pub(node, "u/max", "max:" + password)), password
    assert mqtt(node, "logins_failed") == len(wrong)


def test_a_client_is_put_out_when_its_token_ends(gateway, subscribe):
    node = gateway({"jwt": {"secret": "k"}}, {"allow_anonymous": False})
    sub = subscribe(node, "a", user="x:" + token({"sub": "s", "exp": time.time() + 3}, hs(b"k"), "HS256"))
    assert "Subscribed" in sub.text()
    wait_until(lambda: mqtt(node, "logins_expired") == 1, SECONDS, sub.text)
    clients_connected(node, 0)


# --- an HTTP server decides

@pytest.fixture
def decider():
    """A server that is asked: answers[user] is status and document, or a callable that makes them."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append(asked)
            status, document = self.server.answers.get(asked.get("username"), (200, {"result": "ignore"}))
            body = json.dumps(document).encode() if document is not None else b""
            self.server.release.wait(SECONDS)
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.answers, server.release = [], {}, threading.Event()
    server.release.set()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    server.server_close()


def test_an_http_server_decides(gateway, decider):
    node = gateway({"http": {"url": f"http://127.0.0.1:{decider.server_address[1]}/auth", "request_timeout": "2s"},
                    "authz": {"no_match": "deny"}}, {"allow_anonymous": False})
    decider.answers.update({"good": (200, {"result": "allow", "acl": {"pub": ["own/#"]}}), "root": (200, {"result": "allow", "is_superuser": True}),
                            "bad": (200, {"result": "deny"}), "empty": (204, None), "broken": (500, {"result": "allow"})})
    assert "Not authorized" not in pub(node, "own/x", "good:p", "5", 1, "m", "-i", "c7")[1]
    asked = decider.asked[-1]
    assert (asked["clientid"], asked["username"], asked["password"], asked["peerhost"]) == ("c7", "good", "p", "127.0.0.1")
    assert "Not authorized" in pub(node, "other", "good:p", "5")[1]
    assert "Not authorized" not in pub(node, "other", "root:p", "5")[1]
    assert pub(node, "x", "empty:p", "5")[0] == 0
    for user in ("bad:p", "broken:p", "unknown:p"):
        assert refused(pub(node, "x", user)), user
    decider.release.clear()  # it hangs: the client is told within the bound
    assert pub(node, "x", "good:p")[0] != 0
    assert mqtt(node, "http_unreachable") == 1
    decider.release.set()
    assert pub(node, "own/x", "good:p")[0] == 0
