"""Names, words and lengths."""
import pathlib
import re

BAD_NAMES = re.compile(r"(?:^|[/_.-])(?:utils?|helpers?|common|managers?|misc)(?=[/_.-]|$)", re.I)
GOOD_CPP = re.compile(r"^[a-z0-9]+(?:_[a-z0-9]+)*\.(?:h|cc)$")
# Written apart, so that this file passes its own check.
MACHINE_PATH = re.compile("/" + r"work/|/home/[a-z]|/root/[.\w]")
CONFLICT = re.compile(r"^(?:<<<<<<<|>>>>>>>) ", re.M)
FILE_AIM, FUNCTION_AIM = 500, 70
BINARY = (".png", ".gz", ".zst", ".der", ".bin", ".pcap")


def check(root, names):
    faults = []
    for name in names:
        leaf = pathlib.PurePosixPath(name).name
        if BAD_NAMES.search(name):
            faults.append(f"{name}:1: a name that says nothing (utils, helpers, common, manager, misc)")
        if name.endswith((".h", ".cc")) and not GOOD_CPP.match(leaf):
            faults.append(f"{name}:1: file names are snake_case")
        if name.endswith(BINARY) or "/corpus/" in name:
            continue
        source = (root / name).read_text(errors="replace")
        for found in MACHINE_PATH.finditer(source):
            faults.append(f"{name}:{source.count(chr(10), 0, found.start()) + 1}: names a path of one machine "
                          f"({found.group()})")
        if CONFLICT.search(source):
            faults.append(f"{name}:1: a conflict marker")
        if name.endswith(".h"):
            if "#pragma once" not in source:
                faults.append(f"{name}:1: #pragma once is missing")
            if name.startswith("appliance/") and not source.startswith("//"):
                faults.append(f"{name}:1: a header opens with what it is")
        if name.endswith((".h", ".cc")) and source and not source.endswith("\n"):
            faults.append(f"{name}:1: no newline at the end")
    return faults


def functions(source):
    """(first line, lines) of each function body that closes at column 0: namespaces are not indented here."""
    opened = None
    for number, line in enumerate(source.split("\n"), 1):
        if opened is None:
            if line.endswith("{") and not line.startswith((" ", "}", "#", "/")) and \
                    not re.match(r"(?:inline )?namespace|(?:class|struct|union|enum|extern|template)\b", line):
                opened = number
            elif re.match(r"(?:class|struct|union|enum)\b.*\{$", line):
                opened = -number
        elif line.startswith("}"):
            if opened > 0:
                yield opened, number - opened + 1
            opened = None


def lengths(root, names):
    notes = []
    for name in names:
        source = (root / name).read_text(errors="replace")
        total = source.count("\n")
        if total > FILE_AIM:
            notes.append((total / FILE_AIM, f"{name}: {total} lines (aim: under {FILE_AIM})"))
        for at, size in functions(source):
            if size > FUNCTION_AIM and not name.endswith("_test.cc"):
                notes.append((size / FUNCTION_AIM, f"{name}:{at}: a function of {size} lines (aim: under {FUNCTION_AIM})"))
    return [text for _, text in sorted(notes, reverse=True)]
