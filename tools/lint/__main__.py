"""tools/dev lint: what a compiler does not check. Prints one line per fault, closes with a count, exit 1 when there is one.

  floors and headers   appliance/floors.toml is the law
  clocks, names, text  conventions that have a pattern
  format               clang-format-19 on every file
  tidy                 clang-tidy-19 on what changed since the base (--all: everything), within --tidy-seconds, cached
Lengths over the aim are reported and do not fail.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

import floors
import scripts
import text
import tidy

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            stdout=subprocess.PIPE, check=True).stdout.decode()
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def changed_files(base):
    """Names that differ from the base, uncommitted ones included; newest commits first."""
    def git(*args):
        done = subprocess.run(["git", *args], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode().split("\n") if done.returncode == 0 else []

    names = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    if not base:
        for candidate in ("origin/main", "main"):
            found = git("merge-base", "HEAD", candidate)
            if found and found[0] and found[0] != (git("rev-parse", "HEAD") or [""])[0]:
                base = found[0]
                break
        else:
            # On the main branch itself, as in CI: the newest history, as far as the time given reaches.
            base = (git("rev-list", "--max-count=1", "--skip=200", "HEAD") or [""])[0]
    names += git("log", "--format=", "--name-only", f"{base}..HEAD" if base else "HEAD")
    return [name for name in dict.fromkeys(names) if name]


def check_format(names):
    faults = []
    for at in range(0, len(names), 64):
        done = subprocess.run(["clang-format-19", "--dry-run", "-Werror", "--ferror-limit=1", *names[at:at + 64]], cwd=ROOT,
                              stderr=subprocess.PIPE)
        for line in done.stderr.decode().split("\n"):
            if ": error:" in line:
                where = line.split(": error:")[0]
                faults.append(f"{where}: not formatted (clang-format-19 -i {where.split(':')[0]})")
    return faults


def main():
    options = argparse.ArgumentParser(prog="tools/dev lint", description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--all", action="store_true", help="clang-tidy on every file")
    options.add_argument("--no-tidy", action="store_true")
    options.add_argument("--base", default=os.environ.get("PH_LINT_BASE", ""), help="commit that changes count from")
    options.add_argument("--tidy-seconds", type=int, default=0, help="stop clang-tidy after that long (0: never)")
    options.add_argument("--lengths", action="store_true", help="list each file and function over the aim")
    options.add_argument("--fix", action="store_true", help="format every file first")
    asked = options.parse_args()

    begun = time.monotonic()
    files = tracked_files()
    cpp = [name for name in files if name.endswith((".h", ".cc"))]
    if asked.fix:
        subprocess.run(["clang-format-19", "-i", *cpp], cwd=ROOT, check=True)
    faults = floors.check(ROOT, cpp) + text.check(ROOT, files) + scripts.check(ROOT, files)
    faults += check_format(cpp)
    lengths = text.lengths(ROOT, cpp)
    for line in lengths if asked.lengths else lengths[:5]:
        print(f"note: {line}")
    if len(lengths) > 5 and not asked.lengths:
        print(f"note: {len(lengths) - 5} further lengths over the aim (--lengths)")
    if not asked.no_tidy:
        wanted = cpp if asked.all else [name for name in changed_files(asked.base) if name in set(cpp)]
        faults += tidy.check(ROOT, wanted, asked.tidy_seconds)
    for fault in faults:
        print(fault)
    print(f"lint: {len(cpp)} files in {time.monotonic() - begun:.0f} s, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
