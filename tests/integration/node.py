"""One posthouse process under test: its folder, its configuration, its life and what can be seen of it from outside."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

from toml_text import document
from waiting import patience, wait_until

READY = "posthouse_ready"
MIB = 1024 * 1024
STOP_SECONDS = 10


def binary():
    """The program under test: $POSTHOUSE, else the development build. None if it does not exist."""
    tree = pathlib.Path(__file__).resolve().parents[2]
    path = pathlib.Path(os.environ.get("POSTHOUSE") or tree / "build/dev/posthouse")
    return path if path.exists() else None


class Ports:
    """Free loopback ports outside of the kernel's own range: no outgoing connection can take one while its node is down."""

    def __init__(self, random):
        self.random, self.given = random, set()

    def take(self):
        for _ in range(1000):
            port = self.random.randrange(15000, 32000)
            if port in self.given:
                continue
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            self.given.add(port)
            return port
        raise AssertionError("no free port")


class Node:
    def __init__(self, program, folder, name, tables, user=None):
        """tables: the configuration; [node] data_dir and [api] socket are filled in."""
        self.program, self.name, self.user = program, name, user
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.folder / "data"
        self.log_path = self.folder / "log"
        self.config_path = self.folder / "posthouse.toml"
        self.tables = {
            "node": {"name": name, "site": name, "data_dir": self.data, **tables.get("node", {})},
            "api": {"socket": self.folder / "api.sock", **tables.get("api", {})},
            "log": {"level": "info", **tables.get("log", {})},
            **{key: item for key, item in tables.items() if key not in ("node", "api", "log")},
        }
        for kind in ("agent", "receiver"):
            if self.tables.get(kind, {}).get("dir"):
                pathlib.Path(self.tables[kind]["dir"]).mkdir(parents=True, exist_ok=True)
        self.data.mkdir(exist_ok=True)
        self.process = None
        self.starts = 0
        self.peak_rss = 0
        self.log_from = 0
        self.write_config()
        if user is not None:
            for path in (self.folder, self.data):
                os.chown(path, user, user)

    # --- where things are
    @property
    def source_dir(self):
        return pathlib.Path(self.tables["agent"]["dir"])

    @property
    def events_dir(self):
        return pathlib.Path(self.tables["receiver"]["dir"])

    @property
    def link(self):
        return self.tables["receiver"]["link"]

    @property
    def mqtt_port(self):
        return int(self.tables["listener"][0]["bind"].rsplit(":", 1)[1])

    @property
    def link_port(self):
        return int(self.link.rsplit(":", 1)[1])

    def write_config(self):
        self.config_path.write_text(document(self.tables))

    # --- life
    @property
    def pid(self):
        return self.process.pid

    def launch(self, **environment):
        """Starts the process and does not wait."""
        assert self.process is None, f"{self.name} runs already"
        self.log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([str(self.program), "run", "-c", str(self.config_path)], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, user=self.user, group=self.user,
                                            env={**os.environ, **environment},
                                            extra_groups=[] if self.user is not None else None)
        self.starts += 1
        return self

    def start(self, seconds=20):
        self.launch()
        return self.wait_ready(seconds)

    def wait_ready(self, seconds=20):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.process.returncode} instead of becoming ready:\n"
                                     + self.log()[-3000:])
            return READY in self.log()

        wait_until(ready, seconds, lambda: f"{self.name} is not ready:\n" + self.log()[-3000:])
        return self

    def running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """An orderly stop, which must take at most STOP_SECONDS and exit 0."""
        self.note_rss()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(patience(STOP_SECONDS))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not stop within {STOP_SECONDS} s:\n" + self.log()[-3000:]) from None
        self.process = None
        assert code == 0, f"{self.name} ended with {code}:\n" + self.log()[-3000:]

    def kill(self):
        assert self.process.poll() is None, f"{self.name} died by itself ({self.process.returncode}):\n{self.log()[-3000:]}"
        self.note_rss()
        self.process.kill()
        self.process.wait()
        self.process = None

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def restart(self):
        self.stop()
        return self.start()

    def end(self):
        """For the end of a test: whatever state it is in."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    # --- what it says
    def log(self, whole=False):
        """The log since the last start."""
        if not self.log_path.exists():
            return ""
        with open(self.log_path, "rb") as log:
            log.seek(0 if whole else self.log_from)
            return log.read().decode(errors="replace")

    def wait_log(self, pattern, seconds=10):
        return wait_until(lambda: re.search(pattern, self.log()), seconds,
                          lambda: f"{pattern!r} in the log of {self.name}:\n" + self.log()[-3000:])

    def status(self):
        done = self.command("status", "--json", "-c", str(self.config_path))
        assert done.returncode == 0, f"status of {self.name}: exit {done.returncode}, {done.stderr}"
        return json.loads(done.stdout)

    def status_or_none(self):
        done = self.command("status", "--json", "-c", str(self.config_path))
        return json.loads(done.stdout) if done.returncode == 0 else None

    def command(self, *arguments, seconds=30):
        return subprocess.run([str(self.program), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=patience(seconds))

    def route(self, name, target=None):
        """One row of status: the counters of a route and target."""
        rows = [row for row in self.status()["routes"] if row["route"] == name and target in (None, row["target"])]
        assert len(rows) == 1, (self.name, name, target, rows)
        return rows[0]

    def total(self, field):
        return sum(row[field] for row in self.status()["routes"])

    def idle(self):
        """Nothing waits here: every route's target has everything that was read, and everything was read."""
        status = self.status_or_none()
        return status is not None and all(row["queued"] == 0 and row["unread_bytes"] == 0 for row in status["routes"])

    def waiting(self):
        """Whether anything waits for a target here: events that were read, or bytes of files that were not yet."""
        return any(row["queued"] or row["unread_bytes"] for row in self.status()["routes"])

    def wait_idle(self, seconds=30):
        wait_until(self.idle, seconds, lambda: f"{self.name} is not drained: {json.dumps(self.status_or_none())}\n"
                   + self.log()[-2000:])

    def balanced(self):
        """The accounting of every route adds up."""
        for row in self.status()["routes"]:
            out = row["delivered"] + row["dropped"] + row["dead_lettered"] + row["queued"]
            assert row["in"] == out, f"{self.name}: in != delivered + dropped + dead_lettered + queued: {row}"

    # --- what it takes
    def note_rss(self):
        """The peak so far of resident memory, in bytes, over all starts."""
        try:
            for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().split("\n"):
                if line.startswith("VmHWM:"):
                    self.peak_rss = max(self.peak_rss, int(line.split()[1]) * 1024)
        except FileNotFoundError:
            pass
        return self.peak_rss

    def spool_bytes(self):
        folder = self.data / "spool"
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0
