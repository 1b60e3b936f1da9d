"""A disk that hangs: writes neither return nor fail until it goes on."""
import shutil
import struct
import subprocess
import time

import pytest
from disks import needs_root
from mqtt_wire import CONNACK, alive, connect_packet, open_tcp, packet, read, subscribe_packet, text
from waiting import wait_until
from wires import resident

pytestmark = [needs_root, pytest.mark.skipif(shutil.which("fsfreeze") is None, reason="needs fsfreeze")]
MIB = 1024 * 1024


def ran(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Disk:
    def __init__(self, path):
        self.path, self.hangs = path, False

    def hang(self):
        assert ran("fsfreeze", "-f", str(self.path))
        self.hangs = True

    def go_on(self):
        if self.hangs:
            assert ran("fsfreeze", "-u", str(self.path))
        self.hangs = False


@pytest.fixture
def disk(net, tmp_path):  # after net, so that it goes on before nodes are ended
    image, path = tmp_path / "image", tmp_path / "disk"
    path.mkdir()
    with open(image, "wb") as file:
        file.truncate(512 * MIB)
    if not ran("mkfs.ext4", "-q", str(image)) or not ran("mount", "-o", "loop", str(image), str(path)):
        pytest.skip("cannot mount an image")
    made = Disk(path)
    yield made
    made.go_on()
    ran("umount", "-l", str(path))


@pytest.fixture
def node(net, disk):
    return net.node("gw", listener=True, node={"data_dir": disk.path / "data"}, broker={"workers": 2}).start()


def connect_with_will(name, will):
    """A session of an hour, a will that comes ten minutes late."""
    expiry = b"\x05\x11" + struct.pack(">I", 3600)
    delay = b"\x05\x18" + struct.pack(">I", 600)
    return packet(0x10, b"\0\4MQTT\5\4\0\0" + expiry + text(name) + delay + text(b"gone") + text(will))


@pytest.mark.parametrize("names", [1, 1000])
def test_clients_that_come_and_go_take_no_memory_while_the_disk_hangs(node, disk, names):
    for i in range(20):
        with open_tcp(node.mqtt_port) as of:
            of.sendall(connect_with_will(b"c%d" % (i % names), bytes(60_000)))
            assert read(of, 2)[:1] == b"\x20"
    disk.hang()
    before = resident(node)
    for i in range(1000):
        with open_tcp(node.mqtt_port) as of:
            of.sendall(connect_with_will(b"d%d" % (i % names), bytes(60_000)))
    time.sleep(1)
    assert resident(node) < before + 24 * MIB  # of 57 that they brought
    disk.go_on()
    with open_tcp(node.mqtt_port) as of:
        of.sendall(connect_with_will(b"d0", b"bye"))
        assert read(of, 4)[3:] == b"\0"


def test_who_only_listens_is_answered_while_the_disk_hangs(node, disk):
    listener = open_tcp(node.mqtt_port)
    listener.sendall(connect_packet("l") + subscribe_packet("other"))
    assert read(listener, 9)[:4] == CONNACK
    disk.hang()
    sender = open_tcp(node.mqtt_port)
    sender.sendall(connect_packet("p"))
    assert read(sender, 4) == CONNACK
    sender.settimeout(0.5)
    with pytest.raises(TimeoutError):  # it is not read from any more
        for i in range(3000):
            sender.sendall(packet(0x31, text(b"kept/%d" % i) + bytes(50_000)))
    assert node.status()["mqtt"]["limit_journal"] == 1
    for _ in range(5):
        assert alive(listener)
    disk.go_on()
    sender.settimeout(60)
    wait_until(lambda: node.status()["mqtt"]["journal_waiting_bytes"] == 0, 60, "the disk has it all")
