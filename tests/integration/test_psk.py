"""Pre-shared keys of TLS, names in certificates, and keys and users that change while clients are connected: real
mosquitto_pub, mosquitto_sub and openssl against a real node."""
import json
import signal
import subprocess
import time

from test_access import Sub, gateway, hash_of, hs, mqtt, passwd, pub, refused, subscribe, token  # noqa: F401
from waiting import patience, wait_until

SECONDS = 20
KEY, OTHER = "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"


def psk(identity, key=KEY, *more):
    return ["--psk", key, "--psk-identity", identity, *more]


def allowed(outcome):
    return outcome[0] == 0 and "Not authorized" not in outcome[1]


def reload(node):
    before = node.log()
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any(word in node.log()[len(before):] for word in ("configuration_reloaded", "reload_refused")), SECONDS)
    return node.log()[len(before):]


def only_own(who="%u"):
    return {"authz": {"no_match": "deny"}, "acl": [{"permission": "allow", "topics": [f"m/{who}/#"]}]}


def test_an_identity_of_the_file_or_the_configuration_is_a_user_name(gateway, tmp_path):  # noqa: F811
    file = tmp_path / "psk"
    file.write_text(f"# keys\nmeter-1:{KEY}\nmeter-2:{OTHER.upper()}\n")
    node = gateway({"psk": {"file": file}, "psk_identity": [{"identity": "meter-3", "key": KEY}], **only_own()},
                   {"psk": True, "allow_anonymous": False})
    for version in ("311", "5"):
        for identity, key in (("meter-1", KEY), ("meter-2", OTHER), ("meter-3", KEY)):
            assert allowed(pub(node, f"m/{identity}/x", None, version, 1, "m", *psk(identity, key))), (version, identity)
    # The key is the identity's alone, and its rights as well. What CONNECT says beside it counts for nothing.
    assert not allowed(pub(node, "m/meter-1/x", None, "5", 1, "m", *psk("meter-2", OTHER)))
    assert allowed(pub(node, "m/meter-2/x", "meter-1:x", "5", 1, "m", *psk("meter-2", OTHER)))
    assert not allowed(pub(node, "m/meter-1/x", "meter-1:x", "5", 1, "m", *psk("meter-2", OTHER)))
    before = mqtt(node, "connections"), mqtt(node, "tls_failures")
    assert before[0] == 0
    for identity, key in (("meter-1", OTHER), ("meter-9", KEY), ("meter-1", KEY[:-2])):
        assert pub(node, f"m/{identity}/x", None, "5", 1, "m", *psk(identity, key))[0] != 0
    wait_until(lambda: mqtt(node, "tls_failures") == before[1] + 3, SECONDS, node.status)
    assert 'identity is not known' in node.log() and 'another pre-shared key' in node.log()
    assert KEY not in node.log() and OTHER not in node.log()
    # Without a key there is no way in.
    assert pub(node, "m/meter-1/x")[0] != 0


def test_another_tls_library_agrees(gateway):  # noqa: F811
    node = gateway({"psk_identity": [{"identity": "s", "key": KEY}]}, {"psk": True, "allow_anonymous": False})
    for cipher in ("ECDHE-PSK-CHACHA20-POLY1305", "DHE-PSK-AES128-GCM-SHA256", "PSK-AES256-GCM-SHA384"):
        done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{node.mqtt_port}", "-psk_identity", "s", "-psk", KEY,
                               "-cipher", cipher, "-tls1_2"], input="", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=patience(SECONDS))
        assert f"Cipher    : {cipher}" in done.stdout, done.stdout
        assert "TLS session ticket:" not in done.stdout, "a ticket would forget whose key it was"


def test_certificates_and_keys_at_one_listener(gateway, program, tmp_path):  # noqa: F811
    pki = tmp_path / "pki"
    for verb in (["init", str(pki)], ["issue", str(pki), "gw", "--dns", "localhost"], ["issue", str(pki), "meter-9"]):
        subprocess.run([str(program), "pki", *verb], check=True, stdout=subprocess.DEVNULL)
    node = gateway({"psk_identity": [{"identity": "meter-3", "key": KEY}], **only_own()},
                   {"psk": True, "tls": True, "certificate_as": "username", "allow_anonymous": False},
                   tls={"ca": pki / "ca.crt", "cert": pki / "gw.crt", "key": pki / "gw.key"})
    assert allowed(pub(node, "m/meter-3/x", None, "5", 1, "m", *psk("meter-3")))
    ca = ["--cafile", str(pki / "ca.crt")]
    own = ["--cert", str(pki / "meter-9.crt"), "--key", str(pki / "meter-9.key")]
    assert allowed(pub(node, "m/meter-9/x", None, "5", 1, "m", *ca, *own))
    assert refused(pub(node, "m/meter-9/x", None, "5", 1, "m", *ca))


def test_listeners_may_leave_keys_aside(gateway):  # noqa: F811
    """Where order does not name psk, a key opens the connection and nothing else."""
    node = gateway({"psk_identity": [{"identity": "meter-3", "key": KEY}]}, {"psk": True, "authn": ["users"], "allow_anonymous": False})
    assert refused(pub(node, "x", None, "5", 1, "m", *psk("meter-3")))


# --- alternative names

def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def certificate(pki, name, subject, alternatives):
    """A certificate of the authority with these alternative names, made with openssl."""
    (pki / f"{name}.ext").write_text(f"subjectAltName = {alternatives}\n" if alternatives else "basicConstraints = CA:FALSE\n")
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-utf8", "-subj", subject,
            "-keyout", str(pki / f"{name}.key"), "-out", str(pki / f"{name}.csr"))
    openssl("x509", "-req", "-in", str(pki / f"{name}.csr"), "-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key"), "-CAcreateserial",
            "-days", "30", "-extfile", str(pki / f"{name}.ext"), "-out", str(pki / f"{name}.crt"))
    return ["--cafile", str(pki / "ca.crt"), "--cert", str(pki / f"{name}.crt"), "--key", str(pki / f"{name}.key")]


def test_alternative_names_become_user_name_or_client_id(gateway, program, tmp_path, net):  # noqa: F811
    pki = tmp_path / "pki"
    for verb in (["init", str(pki)], ["issue", str(pki), "gw", "--dns", "localhost"]):
        subprocess.run([str(program), "pki", *verb], check=True, stdout=subprocess.DEVNULL)
    alternatives = "IP:10.0.0.1,DNS:dev7.example,DNS:second.example,email:ann@example,URI:urn:dev:ops:7"
    full, bare = certificate(pki, "full", "/CN=cn7", alternatives), certificate(pki, "bare", "/CN=cn8", None)
    odd = certificate(pki, "odd", "/CN=a\nb", "DNS:x.example")
    kinds = {"cn": "cn7", "dns": "dev7.example", "email": "ann@example", "uri": "urn:dev:ops:7"}
    listeners, ports = [], {}
    for kind in kinds:
        for become in ("username", "clientid"):
            ports[kind, become] = net.ports.take()
            listeners.append({"bind": f"127.0.0.1:{ports[kind, become]}", "tls": True, "allow_anonymous": become == "clientid",
                              "certificate_as": become, "certificate_field": kind})
    node = net.node("gw2", listener=listeners, tls={"ca": pki / "ca.crt", "cert": pki / "gw.crt", "key": pki / "gw.key"},
                    broker={"authz": {"no_match": "deny"}, "acl": [{"permission": "allow", "topics": ["u/%u", "c/%c"]}]})
    node.start()
    for kind, name in kinds.items():
        for become, letter in (("username", "u"), ("clientid", "c")):
            at = ["-p", str(ports[kind, become])]
            assert allowed(pub(node, f"{letter}/{name}", None, "5", 1, "m", *at, *full)), (kind, become)
            assert not allowed(pub(node, f"{letter}/other", None, "5", 1, "m", *at, *full)), (kind, become)
        if kind != "cn":  # a certificate without that name is nobody's
            assert refused(pub(node, "u/cn8", None, "5", 1, "m", "-p", str(ports[kind, "username"]), *bare)), kind
    # A name that CONNECT could not have is no name.
    assert refused(pub(node, "u/x", None, "5", 1, "m", "-p", str(ports["cn", "username"]), *odd))


# --- reload

def test_users_and_keys_are_read_again_and_nobody_is_dropped(gateway, subscribe, tmp_path):  # noqa: F811
    users, keys, secret = tmp_path / "passwd", tmp_path / "psk", tmp_path / "secret"
    passwd(users, {"ann": "a", "bob": "b"})
    secret.write_text("one\n")
    node = gateway({"authn": {"password_file": users}, "jwt": {"secret_file": secret}}, {"allow_anonymous": False})
    ann, bob = subscribe(node, "t/#", user="ann:a"), subscribe(node, "t/#", user="bob:b")
    told = subscribe(node, "t/#", user="x:" + token({"sub": "s", "exp": time.time() + 600}, hs(b"one"), "HS256"))
    users.unlink()
    passwd(users, {"carol": "c"})
    users.write_text(f"ann:{hash_of(tmp_path, 'ann2', 'a')}\n" + users.read_text())
    secret.write_text("two\n")
    assert "configuration_reloaded" in reload(node)
    # Ann's hash is another one: she has to log in again, and does; Bob is gone; who came in with a token stays.
    assert pub(node, "t/1", "carol:c", message="new")[0] == 0
    assert refused(pub(node, "t/1", "bob:b"))
    told.wait("t/1 new")
    assert not bob.has("t/1 new")
    assert refused(pub(node, "t/1", "x:" + token({"sub": "s", "exp": time.time() + 600}, hs(b"one"), "HS256")))
    assert pub(node, "t/1", "x:" + token({"sub": "s", "exp": time.time() + 600}, hs(b"two"), "HS256"), message="newer")[0] == 0
    told.wait("t/1 newer")
    assert told.text().count("sending CONNECT") == 1
    ann.end()
    # A file that is wrong changes nothing.
    good = users.read_text()
    users.write_text("nonsense\n")
    assert "reload_refused" in reload(node)
    assert pub(node, "t/1", "carol:c")[0] == 0
    users.write_text(good)


def test_pre_shared_keys_are_read_again(gateway, subscribe, tmp_path):  # noqa: F811
    file = tmp_path / "psk"
    file.write_text(f"a:{KEY}\nb:{KEY}\n")
    node = gateway({"psk": {"file": file}}, {"psk": True, "allow_anonymous": False})
    sub = subscribe(node, "t", more=psk("a"))
    file.write_text(f"a:{OTHER}\nc:{KEY}\n")
    assert "configuration_reloaded" in reload(node)
    assert pub(node, "t", None, "5", 1, "1", *psk("c"))[0] == 0
    sub.wait("t 1")
    assert sub.text().count("sending CONNECT") == 1
    for identity, key in (("a", KEY), ("b", KEY), ("c", OTHER)):
        assert pub(node, "t", None, "5", 1, "2", *psk(identity, key))[0] != 0
    assert pub(node, "t", None, "5", 1, "3", *psk("a", OTHER))[0] == 0
    sub.wait("t 3")


def test_users_and_rules_of_the_file_are_live(gateway, subscribe, tmp_path):  # noqa: F811
    node = gateway({"user": [{"username": "u", "password_hash": hash_of(tmp_path, "u", "p")}]}, {"allow_anonymous": False})
    sub = subscribe(node, "t/#", user="u:p")
    node.tables["broker"]["user"].append({"username": "v", "password_hash": hash_of(tmp_path, "v", "q")})
    node.tables["broker"]["acl"] = [{"permission": "deny", "action": "publish", "topics": ["t/no"]}]
    node.write_config()
    said = reload(node)
    assert "configuration_reloaded" in said and "reload_needs_restart" not in said, said
    assert not allowed(pub(node, "t/no", "v:q", "5", 1, "x"))
    assert allowed(pub(node, "t/yes", "v:q", "5", 1, "y"))
    sub.wait("t/yes y")
    assert not sub.has("t/no x") and json.loads(json.dumps(node.status()))["mqtt"]["connections"] == 1
