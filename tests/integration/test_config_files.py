"""`config check` looks into the files that a configuration names, where they are on this machine."""
import re
import subprocess

import pytest
from waiting import patience, wait_until

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
        done = subprocess.run([str(program), "config", "check", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=patience(20))
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


# --- places: what would stop `run` at its start

def fails_at_start(program, path):
    """What `run` says when it ends by itself; None if it runs."""
    log = path.with_suffix(".log")
    with open(log, "wb") as out:
        process = subprocess.Popen([str(program), "run", "-c", str(path)], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until(lambda: process.poll() is not None or "posthouse_ready" in log.read_text(), 30, log.read_text)
        return None if process.poll() is None else log.read_text()
    finally:
        process.kill()
        process.wait()


BASE = '[node]\nname = "gw"\ndata_dir = "{data}"\n[api]\nsocket = "{socket}"\n{more}'


@pytest.mark.parametrize("case", ["socket is a folder", "socket is a file", "no folder for the socket", "data is a file", "data below a file",
                                  "data is the socket", "address elsewhere", "address and all", "all and address", "all twice over", "name and number",
                                  "unknown name", "receiver is a file", "agent is a file", "one folder, two names"])
def test_what_stops_run_is_told_by_check(check, program, tmp_path, case):
    (tmp_path / "file").write_text("")
    (tmp_path / "events").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "events")
    data, socket_, more = tmp_path / "data", tmp_path / "api.sock", ""
    listen = lambda *binds: "".join(f'[[listener]]\nbind = "{at}"\n' for at in binds)  # noqa: E731
    route = '[[route]]\nname = "all"\nto = ["files"]\n'
    port = 21000 + hash(case) % 9000
    if case == "socket is a folder":
        socket_ = tmp_path / "events"
    elif case == "socket is a file":
        socket_ = tmp_path / "file"
    elif case == "no folder for the socket":
        socket_ = tmp_path / "none/api.sock"
    elif case == "data is a file":
        data = tmp_path / "file"
    elif case == "data below a file":
        data = tmp_path / "file/data"
    elif case == "data is the socket":
        data = socket_ = tmp_path / "both"
    elif case == "address elsewhere":
        more = listen(f"192.0.2.1:{port}")
    elif case == "address and all":
        more = listen(f"127.0.0.1:{port}", f"0.0.0.0:{port}")
    elif case == "all and address":
        more = listen(f"0.0.0.0:{port}", f"127.0.0.1:{port}")
    elif case == "all twice over":
        more = listen(f"*:{port}", f"0.0.0.0:{port}")
    elif case == "name and number":
        more = listen(f"127.0.0.1:{port}", f"[::1]:{port}", f"localhost:{port}")
    elif case == "unknown name":
        more = listen(f"no-such-host.invalid:{port}")
    elif case == "receiver is a file":
        more = f'[receiver]\ndir = "{tmp_path}/file"\n' + route
    elif case == "agent is a file":
        more = f'[agent]\ndir = "{tmp_path}/file"\n[receiver]\ndir = "{tmp_path}/events"\n' + route
    elif case == "one folder, two names":
        more = f'[agent]\ndir = "{tmp_path}/events"\n[receiver]\ndir = "{tmp_path}/link"\n' + route
    text = BASE.format(data=data, socket=socket_, more=more)
    code, said = check(text)
    assert code == 2 and re.search(r"posthouse\.toml:\d+:\d+: error: ", said), said
    why = fails_at_start(program, tmp_path / "posthouse.toml")
    assert why is not None, "check is too strict: run does not mind"


def test_all_of_it_is_told_at_once(check, tmp_path):
    (tmp_path / "file").write_text("")
    text = BASE.format(data=tmp_path / "file", socket=tmp_path,
                       more='[[listener]]\nbind = "192.0.2.1:1883"\n[[listener]]\nbind = "127.0.0.1:1884"\n[[listener]]\nbind = "*:1884"\n')
    code, said = check(text)
    assert code == 2
    places = re.findall(r"posthouse\.toml:(\d+):(\d+): error: ", said)
    assert places == sorted(places, key=lambda at: (int(at[0]), int(at[1])))
    assert {line for line, _ in places} == {"3", "5", "7", "11"}, said


def test_what_runs_is_accepted(check, program, tmp_path):
    text = BASE.format(data=tmp_path / "a/b/data", socket=tmp_path / "api.sock",
                       more='[[listener]]\nbind = "localhost:0"\n[[listener]]\nbind = "0.0.0.0:0"\n')
    assert check(text)[0] == 0, check(text)
    assert fails_at_start(program, tmp_path / "posthouse.toml") is None
