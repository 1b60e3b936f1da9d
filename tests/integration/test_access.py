"""Who may use the broker: real mosquitto_pub, mosquitto_sub and mosquitto_passwd against a real node."""
import subprocess
import time

import pytest

from node import Node
from waiting import wait_until

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
                           *credentials(user), *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
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
