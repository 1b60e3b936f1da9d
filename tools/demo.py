"""The demo behind `tools/dev run`: an edge, a relay and a datacenter node on loopback, everything below build/demo.

  tools/dev run                       all three in this terminal, until Ctrl-C
  tools/dev demo stop|start NODE      from a second terminal: NODE is edge, relay or datacenter
  tools/dev demo status               what each node says of itself
"""
import ctypes
import json
import os
import pathlib
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
DEMO = TREE / "build/demo"
CONTROL = DEMO / "control"
PROGRAM = pathlib.Path(os.environ.get("POSTHOUSE") or TREE / "build/dev/posthouse")
STOP_SECONDS = 10
HERE = pathlib.Path(os.environ.get("PH_FROM") or TREE).resolve()  # where tools/dev was called
NAMES = ("edge", "relay", "datacenter")
PORTS = {"edge": {"MQTT": 18830}, "relay": {"link": 13701}, "datacenter": {"link": 13702, "MQTT": 18832}}

CONFIG = {
    "edge": """# An edge node: programs write files or publish; everything goes to the relay.
[node]
name = "edge"
site = "edge"
data_dir = "{home}/data"

[agent]
dir = "{home}/in"

[[listener]]
name = "mqtt"
bind = "127.0.0.1:18830"

[[upstream]]
name = "relay"
addresses = ["127.0.0.1:13701"]

[[route]]
name = "files"
to = ["relay"]

[[route]]
name = "sensors"
topics = ["sensors/#"]
to = ["relay"]

[api]
socket = "{home}/api.sock"
""",
    "relay": """# A relay: takes events, keeps them on disk until the datacenter has them, and writes no files of its own.
[node]
name = "relay"
site = "relay"
data_dir = "{home}/data"

[receiver]
link = "127.0.0.1:13701"

[[upstream]]
name = "datacenter"
addresses = ["127.0.0.1:13702"]

[[route]]
name = "onward"
to = ["datacenter"]

[api]
socket = "{home}/api.sock"
""",
    "datacenter": """# The far end: every event becomes a line in a file; what came by MQTT is published here, too.
[node]
name = "datacenter"
site = "datacenter"
data_dir = "{home}/data"

[receiver]
link = "127.0.0.1:13702"
dir = "{home}/events"

[[listener]]
name = "mqtt"
bind = "127.0.0.1:18832"

[[route]]
name = "everything"
to = ["files"]

[[route]]
name = "sensors"
categories = ["sensors"]
to = ["files", {{ mqtt = "{{topic}}" }}]

[api]
socket = "{home}/api.sock"
""",
}


def shown(path):
    """A path as one would type it from where the demo was started."""
    try:
        return str(pathlib.Path(path).relative_to(HERE))
    except ValueError:
        return str(path)


def holder_of(port):
    """Who listens on the TCP port: a text, or None for nobody."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = pathlib.Path(table).read_text().split("\n")[1:]
        except OSError:
            continue
        for row in rows:
            parts = row.split()
            if len(parts) > 9 and parts[3] == "0A" and int(parts[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{parts[9]}]")
    if not inodes:
        return None
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(link) in inodes for link in (folder / "fd").iterdir()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {folder.name} ({command[:100]})"
        except OSError:
            continue
    return "a process of another user"


def end_with_parent():
    """Asks the kernel to send SIGTERM when the demo dies, however it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Node:
    def __init__(self, name):
        self.name = name
        self.home = DEMO / name
        self.config = self.home / "posthouse.toml"
        self.log = self.home / "log"
        self.process = None
        self.wanted = True

    def prepare(self):
        for folder in ("data", "in/clicks") if self.name == "edge" else ("data", "events"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        self.config.write_text(CONFIG[self.name].format(home=self.home))

    def start(self):
        self.wanted = True
        if self.running():
            return
        if self.log.exists() and self.log.stat().st_size > 10_000_000:
            self.log.unlink()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([PROGRAM, "run", "-c", self.config], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True, preexec_fn=end_with_parent)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def signal_stop(self):
        self.wanted = False
        if self.running():
            self.process.send_signal(signal.SIGTERM)

    def finish_stop(self):
        if self.process is None:
            return
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{self.name} did not stop within {STOP_SECONDS} s; killed.")
            self.process.kill()
            self.process.wait()
        self.process = None

    def status(self):
        """What it says of itself; None when it does not answer."""
        if not self.running():
            return None
        try:
            done = subprocess.run([PROGRAM, "status", "--json", "-c", self.config], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5)
            return json.loads(done.stdout) if done.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError):
            return None

    def last_log(self, lines=5):
        return "\n".join("    " + line for line in self.log.read_text(errors="replace").rstrip().split("\n")[-lines:])

    def summary(self, status):
        if not self.running():
            return f"{self.name}: stopped"
        if status is None:
            return f"{self.name}: starting"
        rows = status["routes"]
        text = f"{self.name}: {sum(row['delivered'] for row in rows)} delivered, {sum(row['queued'] for row in rows)} queued"
        if unread := sum(row["unread_bytes"] for row in rows):
            text += f" + {unread} bytes unread"
        oldest = max((row["oldest_unacked_seconds"] for row in rows), default=0)
        return text + (f" ({oldest:.0f} s)" if oldest >= 1 else "")


class Arrivals:
    """New lines in the datacenter's files."""

    def __init__(self, folder):
        self.folder, self.sizes = folder, {}
        self.new()

    def new(self):
        out = []
        for path in sorted(self.folder.glob("*/*")):
            if path.is_symlink() or not path.is_file() or path.name.startswith("."):
                continue
            size, before = path.stat().st_size, self.sizes.get(path, 0)
            if size > before:
                with open(path, "rb") as chunk:
                    chunk.seek(before)
                    data = chunk.read(min(size - before, 1 << 20))
                out += [(path, line.decode(errors="replace")) for line in data.split(b"\n") if line]
                self.sizes[path] = size
        return out


class Screen:
    """Lines that stay, above one line that is drawn anew; without a terminal the one line is printed when it changes."""

    def __init__(self):
        self.terminal = sys.stdout.isatty()
        self.last = ""

    def say(self, text):
        if self.terminal:
            sys.stdout.write("\r\033[K")
        print(text, flush=True)
        if self.terminal:
            sys.stdout.write(self.last)
            sys.stdout.flush()

    def live(self, text):
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self.last = text[:width]
            sys.stdout.write("\r\033[K" + self.last)
            sys.stdout.flush()
        elif text != self.last:
            self.last = text
            print(text, flush=True)


def guide():
    edge, far, dev = DEMO / "edge", DEMO / "datacenter", shown(TREE / "tools/dev")
    return f"""
  edge  ->  relay  ->  datacenter        (all on this machine, everything below {shown(DEMO)})

In a second terminal:

  an event by file       echo hello >> {shown(edge / 'in/clicks')}/$(date +%Y%m%d%H%M).log
    comes out in         {shown(far / 'events/clicks')}/clicks-{time.strftime('%Y-%m-%d')}_NNNNNN
  an event by MQTT       mosquitto_pub -p 18830 -t sensors/room1 -m 21.5 -q 1
    comes out in         {shown(far / 'events/sensors')}/   and at   mosquitto_sub -p 18832 -t 'sensors/#' -v
  let the queue grow     {dev} demo stop relay        and drain    {dev} demo start relay
    the edge looks for it again within ten seconds
  ask a node             {shown(PROGRAM)} status -c {shown(edge / 'posthouse.toml')}

Logs: {shown(DEMO)}/*/log   Configurations: {shown(DEMO)}/*/posthouse.toml   Ctrl-C stops all three; their data stays.
"""


def start_all(nodes):
    for node in nodes:
        for what, port in PORTS[node.name].items():
            if holder := holder_of(port):
                sys.exit(f"The demo's {node.name} needs port {port} ({what}), and {holder} has it.")
        node.prepare()
    for node in nodes:
        node.start()
    until = time.monotonic() + 20
    for node in nodes:
        while node.status() is None:
            if not node.running() or time.monotonic() > until:
                why = "ended" if not node.running() else "does not answer"
                print(f"{node.name} {why}. The end of {shown(node.log)}:\n{node.last_log(10)}")
                raise SystemExit(1)
            time.sleep(0.05)


def obey(nodes, connection, screen):
    """One request of a second terminal: `stop relay`, `start relay`."""
    connection.settimeout(2)
    verb, _, name = connection.recv(200).decode(errors="replace").strip().partition(" ")
    found = [node for node in nodes if node.name == name]
    if verb not in ("stop", "start") or not found:
        connection.sendall(f"stop or start one of {', '.join(NAMES)}\n".encode())
        return
    node = found[0]
    if verb == "stop":
        node.signal_stop()
        node.finish_stop()
    else:
        node.start()
    screen.say(f"-- {name} {'stopped' if verb == 'stop' else 'started'}")
    connection.sendall(f"{name} is {'stopped' if verb == 'stop' else 'started'}\n".encode())


def watch(nodes, listener):
    screen, arrivals = Screen(), Arrivals(DEMO / "datacenter/events")
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for _ in selector.select(1):
            connection, _ = listener.accept()
            with connection:
                try:
                    obey(nodes, connection, screen)
                except OSError:
                    pass
        for node in nodes:
            if node.wanted and not node.running():
                screen.say(f"-- {node.name} ended by itself (exit {node.process.returncode if node.process else '?'}):\n"
                           + node.last_log())
                node.wanted = False
        new = arrivals.new()
        for path, line in new[:5]:
            screen.say(f"-> {path.relative_to(arrivals.folder)}: {line[:120]}")
        if len(new) > 5:
            screen.say(f"-> and {len(new) - 5} further lines")
        screen.live("   |   ".join(node.summary(node.status()) for node in nodes))


def run():
    if not PROGRAM.exists():
        sys.exit(f"{shown(PROGRAM)} is not built: tools/dev run builds it.")
    if ask("ping") is not None:
        sys.exit("The demo runs already, in another terminal.")
    nodes = [Node(name) for name in NAMES]
    # A terminal that closes, or a SIGTERM, ends the demo as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    signal.signal(signal.SIGHUP, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    DEMO.mkdir(parents=True, exist_ok=True)
    CONTROL.unlink(missing_ok=True)
    try:
        start_all(nodes)
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(DEMO)  # the path of a Unix socket has a short bound
            listener.bind(CONTROL.name)
            listener.listen()
            os.chdir(TREE)
            print(guide(), flush=True)
            watch(nodes, listener)
    except KeyboardInterrupt:
        print("\nStopping.", flush=True)
    finally:
        for node in nodes:
            node.signal_stop()
        for node in nodes:
            node.finish_stop()
        CONTROL.unlink(missing_ok=True)


def ask(text):
    """The running demo's answer; None when none runs."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(STOP_SECONDS + 5)
        try:
            os.chdir(DEMO)
            connection.connect(CONTROL.name)
        except OSError:
            return None
        finally:
            os.chdir(TREE)
        connection.sendall(text.encode())
        return connection.recv(1000).decode()


def main(arguments):
    if arguments == ["run"]:
        return run()
    if arguments == ["status"]:
        for name in NAMES:
            print(f"--- {name}", flush=True)
            subprocess.run([PROGRAM, "status", "-c", DEMO / name / "posthouse.toml"])
        return 0
    if len(arguments) == 2 and arguments[0] in ("stop", "start"):
        if arguments[1] not in NAMES:
            sys.exit(f"No such node: {arguments[1]}. There are {', '.join(NAMES)}.")
        answer = ask(" ".join(arguments))
        if answer is None:
            sys.exit("The demo does not run: start it with `tools/dev run` in another terminal.")
        print(answer, end="")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
