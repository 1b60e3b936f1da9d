"""What kill -9 cannot show, because the kernel keeps what was written: no acknowledgement leaves before its bytes were
synced. Seen from outside, in the order of the system calls."""
import os
import re
import shutil
import signal
import subprocess

import link
import pytest
from waiting import patience, wait_until

CALL = re.compile(r"^(?P<pid>\d+) (?P<text>.*)$")
WRITES = r"(?:pwrite64|pwritev2?|write|writev)"
SENDS = r"(?:sendmsg|sendto|writev|write)"

pytestmark = pytest.mark.skipif(shutil.which("strace") is None or os.geteuid() != 0, reason="needs strace and root")


class Trace:
    """strace on a running node, from when() to the end of the with block; calls holds them in order of their return."""

    CALLS = "trace=pwrite64,pwritev,pwritev2,write,writev,sendmsg,sendto,fdatasync,fsync,sync_file_range"

    def __init__(self, node):
        self.node, self.path = node, node.folder / "strace"

    def __enter__(self):
        self.process = subprocess.Popen(["strace", "-f", "-y", "-xx", "-s", "96", "-e", self.CALLS, "-e", "signal=none",
                                         "-o", str(self.path), "-p", str(self.node.pid)], stderr=subprocess.PIPE)
        os.set_blocking(self.process.stderr.fileno(), False)
        said = b""

        def attached():
            nonlocal said
            said += self.process.stderr.read() or b""
            return b"attached" in said or self.process.poll() is not None

        wait_until(attached, 10)
        if self.process.poll() is not None:
            pytest.skip(f"strace cannot attach here: {said.decode()}")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.calls = self.read()

    def read(self):
        """Calls in order: a call that was interrupted in the output counts where it returned, a send where it began."""
        out, begun = [], {}
        for line in self.path.read_text().split("\n"):
            found = CALL.match(line)
            if not found:
                continue
            pid, text = found["pid"], found["text"].strip()
            if text.endswith("<unfinished ...>"):
                text = text.removesuffix("<unfinished ...>")
                if re.match(r"f(?:data)?sync", text):
                    begun[pid] = text
                else:
                    out.append(text)
            elif resumed := re.match(r"<\.\.\. (\w+) resumed>(.*)", text):
                if re.match(r"f(?:data)?sync", resumed[1]) and pid in begun:
                    out.append(begun.pop(pid) + resumed[2])
            else:
                out.append(text)
        return [unhex(text) for text in out]


def unhex(text):
    """strace -xx writes paths, too, in hex."""
    return re.sub(r"<((?:\\x[0-9a-f]{2})+)>", lambda m: "<" + bytes.fromhex(m[1].replace("\\x", "")).decode() + ">", text)


def check_order(calls, data_file, acknowledgement):
    """Each time an acknowledgement is sent, all that was written to the data file before is synced, and so is the store's
    journal that was written behind it. Returns the number of acknowledgements."""
    dirty, logged, count = set(), set(), 0
    for call in calls:
        path = (re.search(r"^\w+\(\d+<([^>]*)>", call) or [None, ""])[1]
        if re.match(WRITES + r"\(", call) and re.search(data_file, path):
            dirty.add(path)
        elif re.match(WRITES + r"\(", call) and path.endswith(".jnl"):
            assert not dirty, f"the store says committed before the sync of {dirty}"
            logged.add(path)
        elif re.match(r"f(?:data)?sync\(", call):
            dirty.discard(path)
            logged.discard(path)
        elif re.match(SENDS + r"\(", call) and re.search(acknowledgement, call):
            assert not dirty and not logged, f"acknowledged before the sync of {dirty | logged}: {call[:200]}"
            count += 1
    return count


# The first frame of a send: length, version 1, type 6, reserved.
ACK = r'"(?:\\x[0-9a-f]{2}){4}\\x01\\x06\\x00\\x00'
PUBACK = r'"\\x40\\x02'


def test_a_receiver_acknowledges_what_is_on_disk(net):
    far = net.receiver("far")
    far.start()
    peer = link.Peer.resumed(far.link_port)
    at = 0
    with Trace(far) as trace:
        # One at a time, so that nothing else is being written while an acknowledgement leaves.
        for n in range(20):
            payload = b"line %02d\n" % n
            peer.send_events(link.events("clicks", payload, at, peer.node))
            at += len(payload)
            while link.read_ack(peer.wait_for(link.ACK)[1])["accepted"][-1][1] < at:
                pass
    assert check_order(trace.calls, r"/clicks/clicks-", ACK) == 20
    peer.close()
    net.stop()


def test_puback_follows_the_spools_sync(net):
    far = net.receiver("far")
    edge = net.edge("edge", [far], listener=True, routes=[
        {"name": "all", "to": ["next"]}, {"name": "pay", "topics": ["pay/#"], "to": ["next"]}])
    edge.start()  # no receiver: nothing but the spool is written
    publish = ["mosquitto_pub", "-p", str(edge.mqtt_port), "-t", "pay/1", "-q", "1", "-m"]
    subprocess.run([*publish, "first"], check=True, timeout=patience(10))
    with Trace(edge) as trace:
        for n in range(5):
            subprocess.run([*publish, f"m{n}"], check=True, timeout=patience(10))
    assert check_order(trace.calls, r"/spool/", PUBACK) == 5
    far.start()
    net.wait_drained()
    net.stop()
