"""MQTT under TLS with other people's clients, and what a reload changes while they are connected."""
import re
import shutil
import signal
import socket
import ssl
import subprocess

import pytest
from mqtt_wire import CONNACK, alive, client_context, connect_packet, open_tcp, open_tls, read, read_all, subscribe_packet
from waiting import patience, wait_until

WAIT = 60


class Authority:
    """A CA of ours, its certificates, and its revocation list made with openssl."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.run("pki", "init", str(folder))
        self.index = folder / "index.txt"
        self.index.write_text("")
        (folder / "ca.cnf").write_text(
            f"[ca]\ndefault_ca = x\n[x]\ndatabase = {self.index}\ncertificate = {folder}/ca.crt\n"
            f"private_key = {folder}/ca.key\ndefault_md = sha256\n")

    def run(self, *arguments):
        subprocess.run([str(self.program), *arguments], check=True, stdout=subprocess.DEVNULL)

    def issue(self, name):
        self.run("pki", "issue", str(self.folder), name, "--ip", "127.0.0.1")
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    @property
    def ca(self):
        return self.folder / "ca.crt"

    @property
    def crl(self):
        return self.folder / "ca.crl"

    def openssl(self, *arguments):
        subprocess.run(["openssl", "ca", "-config", str(self.folder / "ca.cnf"), *arguments], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def revoke(self, name):
        self.openssl("-revoke", str(self.folder / f"{name}.crt"))

    def write_crl(self, *life):
        self.openssl("-gencrl", "-out", str(self.crl), *(life or ("-crldays", "30")))


@pytest.fixture
def authority(program, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    made = Authority(program, tmp_path / "pki")
    made.issue("server")
    return made


@pytest.fixture
def gateway(net, authority):
    """A node with a TLS listener; keys: further ones of the listener, tls: of [tls]."""
    def make(tls=None, **keys):
        cert, key = authority.folder / "server.crt", authority.folder / "server.key"
        port = net.ports.take()
        node = net.node("gw", tls={"ca": authority.ca, "cert": cert, "key": key, **(tls or {})},
                        listener=[{"name": "tls", "bind": f"127.0.0.1:{port}", "tls": True, **keys}])
        return node.start(60)
    return make


def publish(node, authority, *more, name=None):
    """mosquitto_pub as a user calls it: whether it worked, and what it said."""
    certificate = ["--cert", str(authority.folder / f"{name}.crt"), "--key", str(authority.folder / f"{name}.key")]
    done = subprocess.run(["mosquitto_pub", "-h", "127.0.0.1", "-p", str(node.mqtt_port), "--cafile", str(authority.ca),
                           "-t", "t", "-m", "x", "-q", "1", *(certificate if name else []), *more],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=patience(WAIT))
    return done.returncode == 0, done.stdout


def counters(node):
    return node.status()["mqtt"]


def reload(node):
    """SIGHUP; what was logged until it was dealt with."""
    before = node.log()
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any(word in node.log()[len(before):] for word in ("configuration_reloaded", "reload_refused")), WAIT)
    return node.log()[len(before):]


def session(port, context, name):
    of = open_tls(port, context)
    of.sendall(connect_packet(name))
    assert read(of, 4) == CONNACK
    return of


def test_versions(gateway, authority):
    node = gateway()
    assert publish(node, authority, "--tls-version", "tlsv1.2") == (True, "")
    context = client_context(authority.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with open_tls(node.mqtt_port, context) as of:
            assert of.version() == "TLSv1.3"
        assert publish(node, authority, "--tls-version", "tlsv1.3") == (True, "")
    except ssl.SSLError as refused:  # the TLS library of Debian 12 has no 1.3, and says so
        assert "ALERT" in str(refused)
    context = client_context(authority.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        open_tls(node.mqtt_port, context)
    assert counters(node)["tls_failures"] >= 1


def test_a_client_that_does_not_know_the_authority_refuses_us(gateway, authority, program, tmp_path):
    node = gateway()
    other = Authority(program, tmp_path / "other")
    ok, _ = publish(node, other)
    assert not ok
    wait_until(lambda: counters(node)["tls_failures"] == 1, WAIT)
    assert counters(node)["messages_in"] == 0


@pytest.mark.parametrize("wants", ["none", "optional", "required"])
def test_client_certificates(gateway, authority, program, tmp_path, wants):
    node = gateway(client_certificate=wants)
    authority.issue("alice")
    foreign = Authority(program, tmp_path / "foreign")
    foreign.issue("mallory")
    for name in ("mallory.crt", "mallory.key"):
        shutil.copy(foreign.folder / name, authority.folder / name)
    assert publish(node, authority, name="alice")[0]
    assert publish(node, authority)[0] == (wants != "required")
    assert publish(node, authority, name="mallory")[0] == (wants == "none")


def test_a_revoked_client_is_refused_from_the_reload_on_and_nobody_is_dropped(gateway, authority):
    authority.write_crl()
    node = gateway(tls={"crl": authority.crl})
    alice, bob = authority.issue("alice"), authority.issue("bob")
    connected = [session(node.mqtt_port, client_context(authority.ca, *one), name)
                 for one, name in ((alice, "a"), (bob, "b"))]
    assert publish(node, authority, name="bob")[0]
    authority.revoke("bob")
    authority.write_crl()
    assert publish(node, authority, name="bob")[0], "the list is read on reload"
    assert "configuration_reloaded" in reload(node)
    assert not publish(node, authority, name="bob")[0]
    assert publish(node, authority, name="alice")[0]
    assert all(alive(one) for one in connected)
    assert counters(node)["connections"] == 2


def test_an_expired_revocation_list_refuses_certificates_and_is_told(gateway, authority):
    authority.issue("alice")
    authority.write_crl("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z")
    node = gateway(tls={"crl": authority.crl})
    node.wait_log("revocation_list_expired")
    assert not publish(node, authority, name="alice")[0]
    assert publish(node, authority)[0], "who shows none is not concerned"


def certificate(port, context):
    of = open_tls(port, context)
    serial = of.getpeercert()["serialNumber"]
    of.close()
    return serial


def test_a_new_certificate_is_used_after_a_reload_and_nobody_is_dropped(gateway, authority):
    node = gateway()
    context = client_context(authority.ca)
    one = session(node.mqtt_port, context, "one")
    old = certificate(node.mqtt_port, context)
    for name in ("server.crt", "server.key"):
        (authority.folder / name).rename(authority.folder / f"old-{name}")
    authority.issue("server")
    assert certificate(node.mqtt_port, context) == old
    assert "configuration_reloaded" in reload(node)
    assert certificate(node.mqtt_port, context) != old
    assert alive(one)
    # Other paths are live, too.
    node.tables["tls"].update(cert=authority.folder / "old-server.crt", key=authority.folder / "old-server.key")
    node.write_config()
    assert "needs_restart" not in reload(node)
    assert certificate(node.mqtt_port, context) == old
    assert alive(one)


def test_what_is_wrong_changes_nothing(gateway, authority):
    node = gateway()
    context = client_context(authority.ca)
    old = certificate(node.mqtt_port, context)
    good = node.config_path.read_text()

    node.config_path.write_text(good.replace('level = "info"', 'level = "debug"') + "\n[nonsense]\nx = 1\n")
    said = reload(node)
    assert "reload_refused" in said and "nonsense" in said
    key = authority.folder / "server.key"
    text = key.read_text()
    other = authority.issue("other")
    node.config_path.write_text(good.replace('level = "info"', 'level = "debug"'))
    shutil.copy(other[1], key)
    said = reload(node)
    assert "reload_refused" in said and "is not the key of" in said
    assert certificate(node.mqtt_port, context) == old
    assert " debug " not in node.log(), "the level of a refused configuration is not used"

    key.write_text(text)
    assert "configuration_reloaded" in reload(node)
    with open_tcp(node.mqtt_port) as of:  # says nothing: told to who wants to know everything
        of.shutdown(socket.SHUT_WR)
        read_all(of)
    node.wait_log(" debug tls_handshake_failed")


def test_who_fails_to_shake_hands_is_told_with_the_reason(gateway, authority, program, tmp_path):
    node = gateway(client_certificate="required")
    assert not publish(node, authority)[0]
    node.wait_log(r" info tls_handshake_failed listener=127.0.0.1:\d+ peer=127.0.0.1:\d+ reason=\".*certificate")
    with open_tcp(node.mqtt_port) as of:
        of.sendall(b"GET / HTTP/1.1\r\n\r\n")
        read_all(of)
    wait_until(lambda: len(re.findall(" info tls_handshake_failed", node.log())) == 2, WAIT, node.log)
    with open_tcp(node.mqtt_port) as of:
        of.shutdown(socket.SHUT_WR)
        read_all(of)
    wait_until(lambda: counters(node)["tls_failures"] == 3, WAIT)
    assert node.log().count("tls_handshake_failed") == 2, "one that says nothing is no news"


def test_a_receiver_tells_who_fails_to_shake_hands_on_its_link(net, authority, program, tmp_path):
    def tls(folder, name):
        return {"ca": folder / "ca.crt", "cert": folder / f"{name}.crt", "key": folder / f"{name}.key"}

    foreign = Authority(program, tmp_path / "foreign")
    foreign.issue("edge")
    foreign_ca = tmp_path / "foreign-ca.crt"  # trusts the receiver, has a certificate that the receiver does not trust
    shutil.copy(authority.ca, foreign_ca)
    far = net.node("far", receiver={"tls": True}, tls=tls(authority.folder, "server"),
                   routes=[{"name": "all", "to": ["files"]}])
    edge = net.edge("edge", [far], upstream={"tls": True}, tls={**tls(foreign.folder, "edge"), "ca": foreign_ca})
    far.start(WAIT)
    edge.start(WAIT)
    said = far.wait_log(r" info tls_handshake_failed listener=(\S+) peer=127.0.0.1:\d+ reason=\"(.*)\"", WAIT)
    assert said[1] == far.link and "CA" in said[2], said[0]
    assert far.status()["receiver"]["tls_failures"] >= 1
    net.stop()


def test_what_a_reload_cannot_change_is_named(gateway):
    node = gateway()
    node.tables["listener"][0]["connections_max"] = 5
    node.tables["broker"] = {"inflight_max": 7}
    node.tables["log"]["level"] = "warn"
    node.write_config()
    said = reload_quietly(node)
    assert 'reload_needs_restart changed="listener \\"tls\\", broker"' in said, said
    node.tables["log"]["level"] = "info"
    node.write_config()
    assert "needs_restart" in reload(node), "again each time, as long as it is so"


def reload_quietly(node):
    """SIGHUP to level warn: what is info is not logged any more."""
    before = node.log()
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "reload_needs_restart" in node.log()[len(before):], WAIT)
    return node.log()[len(before):]


def test_renegotiation_is_off(gateway, authority):
    node = gateway()
    # s_client renegotiates at a line with R alone.
    client = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{node.mqtt_port}", "-tls1_2", "-CAfile",
                               str(authority.ca)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    wait_until(lambda: counters(node)["tls_handshakes"] == 1, WAIT)
    said, _ = client.communicate("R\n", timeout=WAIT)
    assert "RENEGOTIATING" in said
    assert counters(node)["tls_handshakes"] == 1
    assert publish(node, authority)[0]


def test_half_closed_connections_get_their_answers(gateway, authority):
    node = gateway()
    of = open_tls(node.mqtt_port, client_context(authority.ca))
    of.sendall(connect_packet("half") + subscribe_packet("a"))
    of.shutdown(socket.SHUT_WR)  # of TCP, without saying so in TLS
    raw = of.detach()
    left = socket.socket(fileno=raw)
    left.settimeout(WAIT)
    read_all(left)  # ends: the broker closes as well
    wait_until(lambda: counters(node)["connections"] == 0, WAIT)

    plain = open_tcp(node.mqtt_port)  # closed in the middle of a handshake
    plain.sendall(b"\x16\x03\x01\x02\x00\x01")
    plain.shutdown(socket.SHUT_WR)
    read_all(plain)
    wait_until(lambda: counters(node)["tls_failures"] == 1, WAIT)
    assert publish(node, authority)[0]
