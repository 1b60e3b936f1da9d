"""Small file systems, and another process that fills them."""
import os
import subprocess

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a small file system at a folder."""
    mounted = []

    def mount(path, size):
        path.mkdir(parents=True, exist_ok=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]).returncode != 0:
            pytest.skip("cannot mount a tmpfs")
        mounted.append(path)
    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path):
    """To the last byte."""
    with open(path, "wb", buffering=0) as ballast:
        for size in (65536, 4096, 1):
            try:
                while True:
                    ballast.write(b"x" * size)
            except OSError:
                continue


def free_bytes(path):
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def alarm_codes(node):
    return {a["code"] for a in (node.status_or_none() or {}).get("alarms", [])}
