#!/usr/bin/env python3
"""Restart of a broker with many offline sessions: time until it serves, and memory. Arguments: build directory, sessions
(100000), queued messages in all (1000000), payload bytes (100)."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))
from packets import Mqtt, PUBACK  # noqa: E402

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
sessions, queued, payload = (int(sys.argv[n]) if len(sys.argv) > n else d for n, d in ((2, 100000), (3, 1000000), (4, 100)))
folder = pathlib.Path(tempfile.mkdtemp(prefix="sessions-"))
PORT = 18977
each = queued // sessions
process = None


def rss(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().split("\n"):
        if line.startswith(field):
            return int(line.split()[1]) // 1024
    return 0


def cpu(pid):
    """Seconds of all threads, user's and system's."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


try:
    begun = time.monotonic()
    subprocess.run([build / "tests/sessions_load", folder / "data", str(sessions), str(each), str(payload)], check=True)
    size = sum(path.stat().st_size for path in (folder / "data").rglob("*") if path.is_file())
    print(f"written: {sessions} sessions, {sessions * each} messages, {size >> 20} MiB, {time.monotonic() - begun:.1f} s")
    config = folder / "posthouse.toml"
    config.write_text(f'[node]\nname = "bench"\ndata_dir = "{folder}/data"\n[api]\nsocket = "{folder}/api.sock"\n'
                      f'[[listener]]\nbind = "127.0.0.1:{PORT}"\n')
    log = open(folder / "log", "w+")
    begun = time.monotonic()
    process = subprocess.Popen([build / "posthouse", "run", "-c", config], stdout=log, stderr=log)
    while True:
        try:
            first = Mqtt(PORT, "device-1")
            break
        except OSError:
            assert process.poll() is None, open(folder / "log").read()
            time.sleep(0.02)
    print(f"load average {os.getloadavg()[0]:.0f}")
    print(f"serves after {time.monotonic() - begun:.2f} s and {cpu(process.pid):.2f} s of CPU, resident {rss(process.pid, 'VmRSS')} MiB (peak {rss(process.pid, 'VmHWM')} MiB)")
    assert first.session_present
    begun = time.monotonic()
    clients = min(sessions, 500)
    for n in range(1, clients + 1):
        c = first if n == 1 else Mqtt(PORT, f"device-{n}")
        for _ in range(each):
            c.ack(PUBACK, c.message()[2])
        c.disconnect()
    print(f"{clients} clients fetched {clients * each} messages in {time.monotonic() - begun:.1f} s, "
          f"resident {rss(process.pid, 'VmRSS')} MiB")
    process.terminate()
    process.wait()
finally:
    if process and process.poll() is None:  # something above failed
        process.kill()
        process.wait()
    shutil.rmtree(folder)
