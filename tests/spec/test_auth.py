"""AUTH packets: sections 3.15 and 4.12, with SCRAM-SHA-256 computed here."""
import base64
import hashlib
import hmac
import os
import random

import pytest

import wire
from client import Broker
from node import Node, Ports, binary
from statement import v5

METHOD = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    program = binary()
    if program is None:
        pytest.skip("posthouse is not built")
    ports = Ports(random.SystemRandom())
    node = Node(program, tmp_path_factory.mktemp("auth"), "auth", {
        "broker": {"workers": 1}, "listener": [{"name": "plain", "bind": f"127.0.0.1:{ports.take()}"}]}).start()
    try:
        if node.command("users", "add", "sam", "-p", "pencil", "-c", str(node.config_path)).returncode != 0:
            pytest.skip("this broker has no SCRAM")
        yield Broker(node)
        node.stop()
    finally:
        node.end()


class Scram:
    def __init__(self, user="sam", password="pencil"):
        self.user, self.password = user, password.encode()
        self.nonce = base64.b64encode(os.urandom(18)).decode()

    def first(self):
        return {"authentication_method": METHOD, "authentication_data": f"n,,n={self.user},r={self.nonce}"}

    def last(self, challenge):
        said = challenge.props.get("authentication_data").decode()
        parts = dict(part.split("=", 1) for part in said.split(","))
        assert parts["r"].startswith(self.nonce) and parts["r"] != self.nonce
        without = f"c=biws,r={parts['r']}"
        signed = f"n={self.user},r={self.nonce},{said},{without}".encode()
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(parts["s"]), int(parts["i"]))

        def mac(key, text):
            return hmac.new(key, text, "sha256").digest()

        key = mac(salted, b"Client Key")
        proof = bytes(a ^ b for a, b in zip(key, mac(hashlib.sha256(key).digest(), signed)))
        self.verifier = b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), signed))
        return {"authentication_method": METHOD, "authentication_data": f"{without},p={base64.b64encode(proof).decode()}"}


def challenge(c):
    p = c.expect("auth", reason=0x18)
    assert p.props.get("authentication_method") == METHOD
    return p


def begin(broker, scram):
    return broker.open(5).send(wire.connect(5, broker.name(), props=scram.first()))


@v5("MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-3.15.2-1", "MQTT-3.2.0-1")
def test_authentication_in_steps(broker):
    scram = Scram()
    c = begin(broker, scram)
    c.send(wire.auth(0x18, scram.last(challenge(c))))
    connack = c.expect("connack", reason=0)
    assert connack.props.get("authentication_method") == METHOD
    assert connack.props.get("authentication_data") == scram.verifier
    c.nothing()


@v5("MQTT-4.12.0-4", "MQTT-3.2.2-7", "MQTT-3.1.4-6")
def test_refused_at_each_step(broker):
    for scram in (Scram(password="pen"), Scram(user="nobody")):
        c = begin(broker, scram)
        c.send(wire.auth(0x18, scram.last(challenge(c))), wire.pingreq()).refused(0x87)
    c = broker.open(5).send(wire.connect(5, "x", props={"authentication_method": METHOD, "authentication_data": "nonsense"}))
    c.refused(0x87)


@v5("MQTT-3.1.2-30", "MQTT-3.14.0-1", "MQTT-4.12.0-5")
def test_other_packets_before_it_is_done(broker):
    for packet in (wire.pingreq(), wire.subscribe(5, "t"), wire.publish(5, "t")):
        c = begin(broker, Scram())
        challenge(c)
        c.send(packet).refused(0x82)
    c = begin(broker, Scram())
    challenge(c)
    c.send(wire.auth(0x18, {"authentication_method": "OTHER"})).refused(0x8C)
    c = begin(broker, Scram())
    challenge(c)
    c.disconnect()


@v5("MQTT-4.12.1-1", "MQTT-4.12.1-2", "MQTT-4.12.0-5")
def test_again_while_connected(broker):
    scram = Scram()
    c = begin(broker, scram)
    c.send(wire.auth(0x18, scram.last(challenge(c)))).expect("connack", reason=0)
    c.send(wire.auth(0x19, scram.first()))
    said = challenge(c)
    c.nothing()  # everything else goes on
    c.send(wire.auth(0x18, scram.last(said)))
    done = c.expect("auth", reason=0)
    assert done.props.get("authentication_method") == METHOD and done.props.get("authentication_data") == scram.verifier
    scram.password = b"forgotten"
    c.send(wire.auth(0x19, scram.first()))
    c.send(wire.auth(0x18, scram.last(challenge(c)))).closed(0x87)


@v5("MQTT-4.12.0-6", "MQTT-4.12.0-7")
def test_a_client_without_a_method(broker):
    c = broker.connect(5)
    assert "authentication_method" not in c.connack.props.all
    c.send(wire.auth(0x19, Scram().first())).closed(0x82)
