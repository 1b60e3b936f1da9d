"""tools/delay_proxy as tests and benchmarks use it: a long, narrow or broken way in front of a port of this machine."""
import os
import pathlib
import subprocess

from waiting import patience

TREE = pathlib.Path(__file__).resolve().parents[2]


def build_folder():
    """Of the program under test, else of the development build."""
    program = os.environ.get("POSTHOUSE")
    return pathlib.Path(program).parent if program else TREE / "build/dev"


def proxy_binary():
    return build_folder() / "tools/delay_proxy"


class DelayProxy:
    def __init__(self, target_port, listen_port=0, *, delay_ms=0, rate=0, queue=256 * 1024, program=None):
        """delay_ms: one way. rate: bytes per second of each direction, 0 for none."""
        self.process = subprocess.Popen(
            [str(program or proxy_binary()), str(listen_port), str(target_port), f"delay={delay_ms}", f"rate={rate}", f"queue={queue}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        words = self.process.stdout.readline().split()
        assert words and words[0] == "listening", "the delaying proxy did not start"
        self.port = int(words[1])

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def say(self, line):
        self.process.stdin.write(line + "\n")
        answer = self.process.stdout.readline().strip()
        assert answer.startswith("ok"), f"{line}: {answer}"
        return answer

    def stats(self):
        words = self.say("stats").split()[1:]
        return {name: int(value) for name, value in zip(words[::2], words[1::2])}

    def end(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(patience(10))
            self.process.stdout.close()
            self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
