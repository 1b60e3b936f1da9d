"""The real LSD as a process, where there is one: $PH_LSD names its binary. It is made from the source of badoo/lsd with
Debian's golang: the tree in <GOPATH>/src/github.com/badoo/lsd (its dependencies are in it), then
GO111MODULE=off GOPATH=<GOPATH> go build -o lsd github.com/badoo/lsd."""
import argparse
import json
import os
import signal
import socket
import subprocess

from waiting import wait_until


def binary():
    path = os.environ.get("PH_LSD")
    return path if path and os.access(path, os.X_OK) else None


def named(path):
    """An argument that names the binary, for all of this process."""
    os.environ["PH_LSD"] = path
    if binary() is None:
        raise argparse.ArgumentTypeError(f"{path}: no such program")
    return path


class Daemon:
    """server: keys of server_config; client: {"to": [addresses], "gzip": bool} and keys of client_config."""

    def __init__(self, folder, ports, server=None, client=None):
        self.folder = folder
        folder.mkdir(parents=True)
        self.process = None
        self.port = ports.take()
        self.address = f"127.0.0.1:{self.port}"
        config = {"daemon_config": {
            "listen": [{"proto": "lsd-gpb", "address": self.address}], "max_cpus": 0, "log_file": str(folder / "log"),
            "pid_file": str(folder / "pid"), "log_level": "NOTICE", "service_name": "lsd", "service_instance_name": "test"}}
        if server is not None:
            self.target = folder / "target"
            self.target.mkdir()
            config["server_config"] = {"target_dir": str(self.target), **server}
        if client is not None:
            self.source = folder / "source"
            self.source.mkdir()
            self.offsets_path = folder / "offsets.db"
            more = {key: value for key, value in client.items() if key not in ("to", "gzip")}
            config["client_config"] = {
                "source_dir": str(self.source), "offsets_db": str(self.offsets_path), "usage_check_interval": 10,
                "routing": [{"receivers": [{"addr": one, "weight": 1} for one in client["to"]],
                             **({"gzip": True} if client.get("gzip") else {})}], **more}
        self.config = folder / "lsd.conf"
        self.config.write_text(json.dumps(config, indent=1))

    def start(self):
        with open(self.folder / "out", "ab") as out:
            self.process = subprocess.Popen([binary(), "-c", str(self.config)], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

        def listens():
            assert self.process.poll() is None, self.log()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(listens, 20, self.log)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def stop(self, seconds=30):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)
        self.process = None

    def end(self):
        if self.process is not None:
            self.kill()

    def log(self):
        return "".join(path.read_text(errors="replace") for path in (self.folder / "out", self.folder / "log") if path.exists())

    def offsets(self):
        return json.loads(self.offsets_path.read_text()) if self.offsets_path.exists() else []
