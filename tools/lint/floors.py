"""Includes against appliance/floors.toml: floors, exceptions, headers of the outside world, clock reads."""
import fnmatch
import pathlib
import re
import tomllib

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
CLOCK = re.compile(r"\b(?:steady_clock|system_clock|high_resolution_clock|utc_clock)::now\b|\bgettimeofday\s*\(|"
                   r"\bclock_gettime\s*\(|\b(?:std::)?time\s*\(\s*(?:nullptr|NULL|0|&)|\bstd::random_device\b")


def line_of(source, at):
    return source.count("\n", 0, at) + 1


def blank(match):
    """A literal or comment as spaces, with its line breaks: places stay what they were."""
    return re.sub(r"[^\n]", " ", match.group())


def without_comments(source, strings=True):
    pattern = r'//[^\n]*|/\*.*?\*/'
    if strings:
        pattern = r'"(?:\\.|[^"\\\n])*"|' + pattern
    return re.sub(pattern, blank, source, flags=re.S)


def allowed(name, places):
    """Whether appliance/NAME lies in one of the folders or is one of the files."""
    return any(name.startswith(place + "/") or fnmatch.fnmatchcase(name, place) for place in places)


def room_of(name):
    """The room of appliance/NAME: its folder; an empty string for the files on top."""
    folder = str(pathlib.PurePosixPath(name).parent)
    return "" if folder == "." else folder


def check_include(law, name, header):
    """Why appliance/NAME may not include the house's own HEADER; an empty string if it may."""
    floors = law["floors"]
    here, there = room_of(name), room_of(header)
    floor_here, floor_there = here.split("/")[0], there.split("/")[0]
    if not here or here == there:
        return ""
    if floor_there not in floors:
        return f"includes {header}, which is on no floor"
    if floors.index(floor_there) < floors.index(floor_here):
        return ""
    if floor_there == floor_here and (here.startswith(there + "/") or there.startswith(here + "/")):
        return ""
    for edge in law["edge"]:
        if fnmatch.fnmatchcase(here, edge["from"]) and fnmatch.fnmatchcase(there, edge["to"]):
            return ""
    if floor_there == floor_here:
        return f"includes {header}: another room of its own floor ({floor_here})"
    return f"includes {header}: {floor_there} is a floor above {floor_here}"


def check(root, names):
    law = tomllib.loads((root / "appliance/floors.toml").read_text())
    faults = []
    for path in names:
        if not path.startswith("appliance/"):
            continue
        name = path.removeprefix("appliance/")
        source = (root / path).read_text(errors="replace")
        floor = name.split("/")[0]
        if "/" in name and floor not in law["floors"]:
            faults.append(f"{path}:1: {floor} is not a floor of appliance/floors.toml")
            continue
        code = without_comments(source, strings=False)
        includes = list(INCLUDE.finditer(code))
        for found in includes:
            where = f"{path}:{line_of(source, found.start())}"
            kind, header = found.groups()
            if kind == '"':
                if header.startswith("support/") and name.endswith(("_test.cc", "_fixture.h")):
                    continue
                if not (root / "appliance" / header).exists():
                    faults.append(f'{where}: includes "{header}", which is not a file of appliance/')
                elif why := check_include(law, name, header):
                    faults.append(f"{where}: {why}")
            rules = [rule for rule in law["header"]
                     if any(fnmatch.fnmatchcase(header, pattern) for pattern in rule["match"])]
            if rules and not allowed(name, rules[-1]["allow"]):
                faults.append(f"{where}: <{header}> only in {', '.join(rules[-1]['allow'])}: {rules[-1]['why']}")
        own = name.removesuffix(".cc") + ".h"
        if name.endswith(".cc") and (root / "appliance" / own).exists() and includes and includes[0].group(2) != own:
            faults.append(f'{path}:{line_of(source, includes[0].start())}: its own header "{own}" comes first')
        if not allowed(name, law["clock"]["allow"]):
            for found in CLOCK.finditer(without_comments(source)):
                faults.append(f"{path}:{line_of(source, found.start())}: reads a clock or the system's randomness "
                              f"({found.group().strip('( ')}): {law['clock']['why']}")
    return faults
