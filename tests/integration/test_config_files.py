"""`config check` looks into the files that a configuration names, where they are on this machine."""
import re
import subprocess

import pytest

LINES = {"password_file": "[broker.authn]\npassword_file = \"{}\"\n", "psk": "[broker.psk]\nfile = \"{}\"\n",
         "jwks": "[broker.jwt]\njwks_file = \"{}\"\n", "jwt_key": "[broker.jwt]\npublic_key_file = \"{}\"\n",
         "secret": "[broker.jwt]\nsecret_file = \"{}\"\n", "ca": "[broker.http]\nca = \"{}\"\nurl = \"https://127.0.0.1:1/x\"\n"}
GOOD = {"password_file": "", "psk": "a:00112233445566778899aabbccddeeff\n", "jwks": '{"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}]}', "secret": "s\n"}
BAD = {"password_file": "alice\n", "psk": "a:0g\n", "jwks": "{", "jwt_key": "no key", "secret": "\n", "ca": "no certificate"}


@pytest.fixture
def check(program, tmp_path):
    def run(text):
        path = tmp_path / "posthouse.toml"
        path.write_text(text)
        done = subprocess.run([str(program), "config", "check", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
        return done.returncode, done.stdout + done.stderr
    return run


@pytest.mark.parametrize("kind", LINES)
def test_a_file_that_will_not_do_is_refused_where_it_is_named(check, tmp_path, kind):
    file = tmp_path / "file"
    if kind in GOOD:
        file.write_text(GOOD[kind])
        assert check(LINES[kind].format(file))[0] == 0, check(LINES[kind].format(file))
    file.write_text(BAD[kind])
    code, said = check(LINES[kind].format(file))
    assert code == 2 and re.search(r"posthouse\.toml:2:\d+: error: ", said) and str(file) in said, said
    file.unlink()
    code, said = check(LINES[kind].format(file))
    assert code == 2 and "No such file" in said, said
    # On another machine, a laptop: its folder is not here, and what cannot be seen is only warned of.
    code, said = check(LINES[kind].format("/srv/elsewhere/gateway/" + kind))
    assert code == 0 and "was not checked" in said, said


def test_certificate_and_key_have_to_fit(check, program, tmp_path):
    pki = tmp_path / "pki"
    for verb in (["init", str(pki)], ["issue", str(pki), "a"], ["issue", str(pki), "b"]):
        subprocess.run([str(program), "pki", *verb], check=True, stdout=subprocess.DEVNULL)
    text = f'[tls]\nca = "{pki}/ca.crt"\ncert = "{pki}/a.crt"\nkey = "{pki}/{{}}.key"\n'
    assert check(text.format("a"))[0] == 0
    code, said = check(text.format("b"))
    assert code == 2 and re.search(r"toml:4:7: error: .*is not the key of", said), said
    (pki / "a.crt").write_text("nothing")
    assert check(text.format("a"))[0] == 2
