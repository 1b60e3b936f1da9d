"""link_load.cc as benchmarks and tests use it: many agents of one process."""
import subprocess
import threading
import time


class Crowd:
    """link_load and its last word."""

    def __init__(self, program, address, **options):
        self.process = subprocess.Popen([str(program), address, *(f"{key}={value}" for key, value in options.items())],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.now, self.history = {}, []
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            words = line.split()
            self.now = {name: int(value) for name, value in zip(words[::2], words[1::2])}
            self.history.append((time.monotonic(), self.now))

    def __getitem__(self, name):
        return self.now.get(name, 0)

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def end(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.thread.join(5)
        self.process.stdout.close()
