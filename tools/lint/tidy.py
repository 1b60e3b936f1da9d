"""clang-tidy-19 over source files, on all cores, with a memory: a file whose text, includes, flags and .clang-tidy are as
they were when it last passed is not looked at again. The memory lies in build/dev/tidy and may be deleted."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import time

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
# Warnings of g++ that clang does not know.
EXTRA = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-unused-command-line-argument"]


class Memory:
    def __init__(self, root, folder):
        self.root, self.folder, self.texts = root, folder, {}
        self.config = (root / ".clang-tidy").read_bytes()
        folder.mkdir(parents=True, exist_ok=True)

    def text_and_includes(self, path):
        if path not in self.texts:
            text = path.read_bytes() if path.exists() else b""
            self.texts[path] = (text, INCLUDE.findall(text.decode(errors="replace")))
        return self.texts[path]

    def key(self, path, command):
        """A digest of everything of ours that the file's meaning rests on."""
        digest = hashlib.sha256(self.config + command.encode())
        seen, left = set(), [path]
        while left:
            at = left.pop()
            if at in seen:
                continue
            seen.add(at)
            text, includes = self.text_and_includes(at)
            digest.update(text)
            for name in includes:
                left += [there for there in (self.root / "appliance" / name, self.root / "tests" / name) if there.exists()]
        return self.folder / digest.hexdigest()[:40]


def sources_for(names, commands, root):
    """Translation units to look at: sources as they are; for a header, its own source."""
    wanted = []
    for name in names:
        path = str(root / name)
        if name.endswith(".h"):
            path = path[:-2] + ".cc"
        if path in commands and path not in wanted:
            wanted.append(path)
    return wanted


def check(root, names, seconds):
    database = root / "build/dev/compile_commands.json"
    sources = [str(root / name) for name in names if name.startswith("appliance/") and name.endswith(".cc")]
    known = database.read_text() if database.exists() else ""
    if any(f'"{path}"' not in known for path in sources) or not known:
        done = subprocess.run(["cmake", "--preset", "dev"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            return ["clang-tidy: cmake --preset dev fails: " + done.stdout.decode()[-300:]]
    commands = {entry["file"]: entry["command"] for entry in json.loads(database.read_text())}
    memory = Memory(root, root / "build/dev/tidy")
    # Tests are held to the compiler's warnings; their macros are noise to most checks.
    wanted = [path for path in sources_for(names, commands, root) if not path.endswith("_test.cc") and "/tests/" not in path]
    todo = [(path, key) for path in wanted if not (key := memory.key(pathlib.Path(path), commands[path])).exists()]
    until = time.monotonic() + seconds if seconds else float("inf")
    faults, skipped = [], 0

    def one(item):
        path, key = item
        if time.monotonic() > until:
            return None
        done = subprocess.run(["clang-tidy-19", "-quiet", "-p", str(database.parent), *EXTRA, path], cwd=root,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        found = [line for line in done.stdout.decode().split("\n") if re.search(r": (?:error|warning): ", line)]
        if not found and done.returncode == 0:
            key.touch()
        elif not found:
            found = [f"{path}: clang-tidy fails: {done.stderr.decode()[-300:]}"]
        return [line.replace(str(root) + os.sep, "") for line in found]

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("PH_JOBS", os.cpu_count()))) as pool:
        for result in pool.map(one, todo):
            if result is None:
                skipped += 1
            else:
                faults += result
    print(f"tidy: {len(todo) - skipped} files looked at, {len(wanted) - len(todo)} unchanged since they passed"
          + (f", {skipped} left for want of time" if skipped else ""))
    return list(dict.fromkeys(faults))
