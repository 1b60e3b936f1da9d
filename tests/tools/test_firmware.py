"""What ships around the binary is accepted by the tools that will read it, and says what the product rests on."""
import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
FIRMWARE = TREE / "firmware"
UNIT = FIRMWARE / "systemd/posthouse.service"


def needs(tool):
    return pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool} here")


def settings(section):
    """Last value wins, as for systemd; repeated keys of lists are joined."""
    values, here = {}, None
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            here = line.strip("[]")
        elif here == section and "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            values.setdefault(key, []).append(value)
    return {k: " ".join(v) for k, v in values.items()}


@pytest.fixture
def unit(tmp_path):
    """The unit with a binary that exists here."""
    path = tmp_path / "posthouse.service"
    path.write_text(UNIT.read_text().replace("/usr/bin/posthouse", shutil.which("true")))
    return path


@needs("systemd-analyze")
def test_unit_verifies_without_a_word(unit):
    run = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True,
                         text=True, timeout=60)
    words = [line for line in (run.stdout + run.stderr).splitlines() if "posthouse" in line]
    assert run.returncode == 0 and not words, run.stderr


@needs("systemd-analyze")
def test_unit_is_confined(unit):
    run = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=25", unit], capture_output=True,
                         text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr


def test_unit_says_what_the_daemon_rests_on():
    service = settings("Service")
    assert service["Type"] == "notify" and service["WatchdogSec"]
    assert service["Restart"] == "always" and service["RestartPreventExitStatus"] == "2"
    for key in ("AmbientCapabilities", "CapabilityBoundingSet"):
        assert set(service[key].split()) == {"CAP_LEASE", "CAP_DAC_READ_SEARCH"}
    assert "/var/spool/posthouse" in service["ReadWritePaths"].split()
    assert service["StateDirectory"] == service["RuntimeDirectory"] == "posthouse"
    assert int(service["LimitNOFILE"]) >= 65536
    assert "PrivateUsers" not in service  # leases on others' files need the initial user namespace
    assert settings("Unit")["StartLimitIntervalSec"] == "0"


def test_unit_and_settings_name_the_same_places():
    settings_h = (TREE / "appliance/core/settings/settings.h").read_text()
    assert 'data_dir = "/var/lib/posthouse"' in settings_h
    assert '"/run/posthouse/api.sock"' in settings_h
    assert ".posthouse" in (TREE / "appliance/core/agent/source_name.h").read_text()
    assert "/var/spool/posthouse/.posthouse" in (FIRMWARE / "tmpfiles.d/posthouse.conf").read_text()


@needs("systemd-sysusers")
@needs("systemd-tmpfiles")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give directories away")
def test_users_and_directories_come_into_an_empty_root(tmp_path):
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", FIRMWARE / "sysusers.d/posthouse.conf"], check=True,
                   capture_output=True, timeout=60)
    users = dict(line.split(":")[0::2][:2] for line in (tmp_path / "etc/passwd").read_text().splitlines())
    groups = {line.split(":")[0]: int(line.split(":")[2]) for line in (tmp_path / "etc/group").read_text().splitlines()}
    assert "posthouse" in users
    made = subprocess.run(["systemd-tmpfiles", "--create", f"--root={tmp_path}",
                           FIRMWARE / "tmpfiles.d/posthouse.conf"], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    for place, mode, group in (("var/spool/posthouse", 0o2770, "posthouse-spool"),
                               ("var/spool/posthouse/.posthouse", 0o700, "posthouse"),
                               ("var/lib/posthouse", 0o751, "posthouse"),
                               ("var/lib/posthouse/events", 0o2770, "posthouse-consumers"),
                               ("etc/posthouse/pki", 0o750, "posthouse")):
        found = (tmp_path / place).stat()
        assert stat.S_IMODE(found.st_mode) == mode, place
        assert found.st_gid == groups[group], place
    # A producer's directory, whatever its umask: the agent's group may rename and delete in it.
    before = os.umask(0o077)
    try:
        category = tmp_path / "var/spool/posthouse/clicks"
        category.mkdir()
    finally:
        os.umask(before)
    assert stat.S_IMODE(category.stat().st_mode) & 0o2070 == 0o2070
    assert category.stat().st_gid == groups["posthouse-spool"]


def test_kernel_buffers_hold_a_long_fat_link():
    values = dict(re.findall(r"^([a-z0-9_.]+) = (.+)$", (FIRMWARE / "sysctl.d/60-posthouse.conf").read_text(), re.M))
    for key in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"):
        least, start, most = map(int, values[key].split())
        assert least <= start <= most == 64 * 1024 * 1024
        assert pathlib.Path("/proc/sys", key.replace(".", "/")).exists()
