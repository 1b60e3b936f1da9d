#!/usr/bin/env python3
"""Which normative statements of MQTT have a test: `tools/dev spec [--all]`.

Reads statements.toml and everything under tests/ and in appliance/**/*_test.cc that names statements, as
@v311("MQTT-...") and @v5("MQTT-...") or in a comment `spec v311: MQTT-..., MQTT-...`. Prints counts per version and what
binds a server and has neither test nor reason. Exit 1 if a test names a statement that does not exist, 2 on a bad file."""
import pathlib
import re
import sys
import tomllib

TREE = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"MQTT-[0-9]+(?:\.[0-9]+)+-[0-9]+")
DECORATOR = re.compile(r"@(v311|v5)\(([^)]*)\)", re.S)
COMMENT = re.compile(r"(?://|#|\*)\s*spec (v311|v5):([^\n]*(?:\n\s*(?://|#|\*)\s*MQTT-[^\n]*)*)")
BINDS = ("server", "client", "both")


def statements():
    with open(TREE / "tests/spec/statements.toml", "rb") as file:
        table = tomllib.load(file)
    for version, rows in table.items():
        for number, row in rows.items():
            assert NAME.fullmatch(number), f"{version} {number}: no such form"
            assert row.get("binds") in BINDS and row.get("asks"), f"{version} {number}: incomplete"
            assert set(row) <= {"binds", "asks", "untested"}, f"{version} {number}: unknown key"
    return table


def test_files():
    yield from (path for kind in ("py", "cc", "txt", "h") for path in sorted((TREE / "tests").rglob(f"*.{kind}"))
                if "corpus" not in path.parts and path != pathlib.Path(__file__).resolve())
    yield from sorted((TREE / "appliance").rglob("*_test.cc"))


def named():
    """(version, number) -> where."""
    out = {}
    for path in test_files():
        source = path.read_text(errors="replace")
        for pattern in (DECORATOR, COMMENT):
            for match in pattern.finditer(source):
                line = source.count("\n", 0, match.start()) + 1
                for number in NAME.findall(match[2]):
                    out.setdefault((match[1], number), []).append(f"{path.relative_to(TREE)}:{line}")
    return out


def main():
    try:
        table = statements()
    except (AssertionError, tomllib.TOMLDecodeError, OSError) as bad:
        print(f"statements.toml: {bad}", file=sys.stderr)
        return 2
    where = named()
    unknown = [(version, number) for version, number in where if number not in table.get(version, {})]
    for version, number in unknown:
        print(f"{where[version, number][0]}: {version} has no statement {number}", file=sys.stderr)
    for version, rows in table.items():
        duty = {number: row for number, row in rows.items() if row["binds"] != "client"}
        tested = [number for number in duty if (version, number) in where]
        excused = [number for number in duty if "untested" in duty[number] and (version, number) not in where]
        open_ones = [number for number in duty if number not in tested and number not in excused]
        print(f"{version}: {len(rows)} statements, {len(duty)} bind a server: {len(tested)} tested, "
              f"{len(excused)} cannot be, {len(open_ones)} open")
        for number in open_ones:
            print(f"  open  {number}  {duty[number]['asks']}")
        if "--all" in sys.argv[1:]:
            for number in duty:
                if number in excused:
                    print(f"  no    {number}  {duty[number]['untested']}")
                elif number in tested:
                    print(f"  test  {number}  {' '.join(where[version, number])}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
