"""An HTTP server decides what clients may do, plain and under TLS: real mosquitto clients, a real server."""
import http.server
import json
import ssl
import subprocess
import threading

import pytest
from mqtt_wire import CONNACK, connect_packet, open_tcp, read
from test_access import clients_connected, gateway, mqtt, pub, refused, subscribe  # noqa: F401
from waiting import patience, wait_until

SECONDS = 20


class Decider:
    """answers[topic]: (status, document); asked: the questions, with their path."""

    def __init__(self, certificate=None):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, question))
                status, document = outer.answers.get(question.get("topic"), (200, {"result": "ignore"}))
                body = document if isinstance(document, bytes) else json.dumps(document).encode()
                outer.release.wait(SECONDS)
                self.send_response(status)
                if status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.asked, self.answers, self.release = [], {}, threading.Event()
        self.release.set()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            self.scheme = "https"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path="/acl", host="127.0.0.1"):
        return f"{self.scheme}://{host}:{self.server.server_address[1]}{path}"

    def questions(self, topic):
        return [question for _, question in self.asked if question.get("topic") == topic]

    def end(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def decider():
    made = Decider()
    yield made
    made.end()


def told_no(outcome):
    return "Not authorized" in outcome[1]


def test_the_server_decides_what_no_rule_does(gateway, subscribe, decider):  # noqa: F811
    decider.answers.update({"yes": (200, {"result": "allow"}), "no": (200, {"result": "deny"}), "also": (204, None), "ruled": (200, {"result": "allow"}),
                            "all/#": (200, {"result": "allow"}), "none/#": (200, {"result": "deny"})})
    node = gateway({"http_authz": {"url": decider.url("/mqtt/acl?x=1")}, "acl": [{"permission": "deny", "topics": ["ruled"]}]})
    sub = subscribe(node, "all/#", "yes", "$share/g/also")
    denied = subscribe(node, "none/#", version="5")
    wait_until(lambda: "denied" in denied.text() or "135" in denied.text(), SECONDS, denied.text)
    assert not told_no(pub(node, "yes", None, "5", 1, "1", "-i", "c7"))
    assert decider.questions("yes")[-1] == {"clientid": "c7", "peerhost": "127.0.0.1", "action": "publish", "topic": "yes", "qos": 1, "retain": False}
    assert decider.asked[-1][0] == "/mqtt/acl?x=1"
    sub.wait("yes 1")
    assert {question["topic"] for question in decider.questions("also")} == {"also"}, "a shared filter is asked about as its topics"
    assert not told_no(pub(node, "all/x", None, "5", 2, "2"))  # ignored there, allowed by default
    sub.wait("all/x 2")
    assert told_no(pub(node, "no", None, "5", 1, "3")) and told_no(pub(node, "no", None, "5", 2, "3"))
    assert told_no(pub(node, "ruled", None, "5", 1, "4")) and decider.questions("ruled") == []
    # A will is asked about as well.
    assert pub(node, "yes", None, "5", 1, "m", "--will-topic", "yes")[0] == 0
    assert refused(pub(node, "yes", None, "5", 1, "m", "--will-topic", "no"))
    assert mqtt(node, "publish_denied") == 4 and mqtt(node, "http_unreachable") == 0


def test_ignore_leaves_it_to_what_holds_otherwise(gateway, decider):  # noqa: F811
    node = gateway({"http_authz": {"url": decider.url()}, "authz": {"no_match": "deny"}})
    assert told_no(pub(node, "unknown", None, "5", 1, "m"))
    decider.answers["unknown"] = (200, {"result": "allow"})
    assert not told_no(pub(node, "unknown", None, "5", 1, "m"))


@pytest.mark.parametrize("on_failure", ["deny", "ignore"])
def test_no_answer_is_what_the_configuration_says(gateway, decider, on_failure):  # noqa: F811
    decider.answers.update({"500": (500, {"result": "allow"}), "text": (200, b"allow"), "odd": (200, {"result": "perhaps"}), "list": (200, [1]),
                            "long": (200, b" " * 70_000 + b"{}")})
    node = gateway({"http_authz": {"url": decider.url(), "on_failure": on_failure, "request_timeout": "1s"}})
    topics = ["500", "text", "odd", "list", "long"]
    for topic in topics:
        assert told_no(pub(node, topic, None, "5", 1, "m")) == (on_failure == "deny"), topic
    assert mqtt(node, "http_unreachable") == len(topics)
    decider.release.clear()
    assert told_no(pub(node, "hangs", None, "5", 1, "m")) == (on_failure == "deny")
    decider.end()  # nobody there
    assert told_no(pub(node, "gone", None, "5", 1, "m")) == (on_failure == "deny")
    assert mqtt(node, "http_unreachable") == len(topics) + 2


def publish_lines(node, topic, count, *more):
    lines = "".join(f"{i}\n" for i in range(count))
    done = subprocess.run(["mosquitto_pub", "-p", str(node.mqtt_port), "-t", topic, "-l", "-q", "1", *more], input=lines, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patience(60))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("ttl, asked", [("1m", 1), ("0s", 50)])
def test_answers_are_remembered_for_their_time_and_order_is_kept(gateway, subscribe, decider, ttl, asked):  # noqa: F811
    decider.answers.update({"a": (200, {"result": "allow"}), "#": (200, {"result": "allow"})})
    node = gateway({"http_authz": {"url": decider.url(), "cache_ttl": ttl}, "authz": {"no_match": "deny"}})
    sub = subscribe(node, "a")
    decider.asked.clear()
    publish_lines(node, "a", 50)
    sub.wait("a 49")
    got = [line for line in sub.text().split("\n") if line.startswith("a ")]
    assert got == [f"a {i}" for i in range(50)]
    assert len(decider.questions("a")) == asked


def test_who_waits_for_an_answer_delays_nobody_and_is_bounded(gateway, subscribe, decider):  # noqa: F811
    node = gateway({"http_authz": {"url": decider.url(), "request_timeout": "20s", "requests_max": 2, "cache_ttl": "0s"},
                    "acl": [{"permission": "allow", "topics": ["free"]}]})
    free = subscribe(node, "free")
    decider.release.clear()
    waiting = [subprocess.Popen(["mosquitto_pub", "-p", str(node.mqtt_port), "-t", f"w{i}", "-m", "x", "-q", "1"]) for i in range(12)]
    wait_until(lambda: len(decider.asked) >= 2, SECONDS)
    assert pub(node, "free", message="go")[0] == 0
    free.wait("free go")
    assert len(decider.asked) <= 4, "two of each worker"
    left = waiting.pop()
    left.kill()  # one goes away while it waits
    left.wait()
    decider.release.set()
    assert all(one.wait(SECONDS) == 0 for one in waiting)
    assert len(decider.asked) >= 11
    clients_connected(node, 1)


def test_questions_of_clients_that_went_hold_nobody_up_and_cost_no_memory(gateway, decider):  # noqa: F811
    node = gateway({"http_authz": {"url": decider.url(), "request_timeout": "2s", "requests_max": 2}})
    decider.release.clear()
    before = node.note_rss()
    topic = b"t/" + b"x" * 60000
    for i in range(2000):
        with open_tcp(node.mqtt_port) as of:
            of.sendall(connect_packet(f"gone{i}"))
            assert read(of, 4) == CONNACK
            size = 2 + len(topic)
            of.sendall(b"\x30" + bytes([size & 0x7f | 0x80, size >> 7 & 0x7f | 0x80, size >> 14]) + len(topic).to_bytes(2, "big") + topic)
    assert node.note_rss() - before < 256 * 1024 * 1024
    assert pub(node, "hello", message="x")[0] == 0, "denied, but answered"
    wait_until(lambda: mqtt(node, "connections") == 0, SECONDS, node.status)


def test_many_filters_wait_once_for_a_server_that_hangs(gateway, decider):  # noqa: F811
    node = gateway({"http_authz": {"url": decider.url(), "request_timeout": "1s"}})
    decider.release.clear()
    of = open_tcp(node.mqtt_port)
    of.sendall(connect_packet("many"))
    assert read(of, 4) == CONNACK
    filters = b"".join(len(one).to_bytes(2, "big") + one + b"\0" for one in (b"f/%03d" % i for i in range(500)))
    size = 2 + len(filters)
    of.sendall(b"\x82" + bytes([size & 0x7f | 0x80, size >> 7]) + b"\0\1" + filters)
    assert read(of, 5) == b"\x90\xf6\x03\0\1"
    assert read(of, 500) == b"\x80" * 500


def test_a_client_that_sends_on_while_it_waits_costs_no_memory(gateway, decider):  # noqa: F811
    node = gateway({"http_authz": {"url": decider.url(), "request_timeout": "60s"}})
    decider.release.clear()
    of = open_tcp(node.mqtt_port)
    of.sendall(connect_packet("pusher"))
    assert read(of, 4) == CONNACK
    of.settimeout(1)
    before, sent = node.note_rss(), 0
    packet = b"\x30\xfe\x7f\0\1t" + b"x" * (0x3ffe - 3)
    try:
        while sent < 256 * 1024 * 1024:
            sent += of.send(packet)
    except TimeoutError:
        pass
    assert sent < 64 * 1024 * 1024, "it is not read from"
    assert node.note_rss() - before < 32 * 1024 * 1024
    decider.release.set()
    wait_until(lambda: mqtt(node, "messages_in") >= sent // len(packet) - 1, 60, node.status)


# --- https

@pytest.fixture
def pki(program, tmp_path):
    made = tmp_path / "pki"
    for verb in (["init", str(made)], ["issue", str(made), "decider", "--ip", "127.0.0.1"], ["issue", str(made), "other", "--dns", "other.example"]):
        subprocess.run([str(program), "pki", *verb], check=True, stdout=subprocess.DEVNULL)
    return made


@pytest.mark.parametrize("who, ca, works", [("decider", "own", True), ("other", "own", False), ("decider", "system", False)])
def test_https_servers_are_who_they_say(gateway, pki, who, ca, works, tmp_path, program):  # noqa: F811
    subprocess.run([str(program), "pki", "init", str(tmp_path / "foreign")], check=True, stdout=subprocess.DEVNULL)
    decider = Decider((pki / f"{who}.crt", pki / f"{who}.key"))
    authority = {"own": pki / "ca.crt", "system": tmp_path / "foreign" / "ca.crt"}[ca]
    try:
        decider.answers.update({None: (200, {"result": "allow"}), "t": (200, {"result": "allow"})})
        node = gateway({"http": {"url": decider.url("/in"), "ca": authority}, "http_authz": {"url": decider.url("/may"), "ca": authority},
                        "authz": {"no_match": "deny"}}, {"allow_anonymous": False})
        outcome = pub(node, "t", "u:p", "5", 1, "m")
        assert (outcome[0] == 0 and not told_no(outcome)) == works, outcome
        assert [path for path, _ in decider.asked] == (["/in", "/may"] if works else [])
        if works:
            assert decider.asked[0][1]["password"] == "p" and decider.asked[1][1]["username"] == "u"
        else:
            assert mqtt(node, "http_unreachable") == 1
    finally:
        decider.end()
