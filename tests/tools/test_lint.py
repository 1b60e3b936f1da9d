"""The lint finds what it is there to find: each rule against a small tree that breaks it, and one that does not."""
import pathlib
import shutil
import sys

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tools/lint"))

import floors  # noqa: E402
import text  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "appliance").mkdir()
    shutil.copy(TREE / "appliance/floors.toml", tmp_path / "appliance")

    def write(**files):
        for name, content in files.items():
            path = tmp_path / "appliance" / name.replace("__", "/").replace("_h", ".h").replace("_cc", ".cc")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        names = [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.suffix in (".h", ".cc")]
        return floors.check(tmp_path, sorted(names))

    return write


H = "// What it is.\n#pragma once\n"


@pytest.mark.parametrize("source, why", [
    ('#include "base/x.h"\n', None),
    ('#include "core/one/y.h"\n', None),
    ('// #include "service/a/z.h"\n', None),
    ('#include "core/two/x.h"\n', "another room of its own floor"),
    ('#include "service/a/x.h"\n', "a floor above"),
    ('#include "core/none.h"\n', "not a file"),
    ("#include <boost/asio.hpp>\n", "only in io"),
    ("#include <boost/asio/ip/tcp.hpp>\n", "only in io"),
    ("#include <mbedtls/ssl.h>\n", "only in io"),
    ("#include <leveldb/db.h>\n", "only in io"),
    ("#include <sys/inotify.h>\n", "only in io"),
    ("#include <fcntl.h>\n", "only in io"),
    ("#include <boost/json.hpp>\n", "service/admin"),
    ("#include <thread>\n", "no thread"),
    ("int64_t n = std::chrono::steady_clock::now().count();\n", "reads a clock"),
    ("auto t = time(nullptr);\n", "reads a clock"),
    ('auto t = "time(nullptr)";  // system_clock::now\n', None),
])
def test_a_core(tree, source, why):
    found = tree(base__x_h=H, core__one__y_h=H, core__two__x_h=H, service__a__x_h=H, core__one__z_cc=source)
    if why is None:
        assert found == []
    else:
        assert len(found) == 1 and why in found[0], found


def test_exceptions_hold(tree):
    assert tree(store__commit__c_h=H, store__spool__s_h=H + '#include "store/commit/c.h"\n',
                io__t_cc='#include <boost/asio.hpp>\n#include <fcntl.h>\nauto t = std::chrono::steady_clock::now();\n',
                service__admin__j_cc="#include <boost/json.hpp>\n",
                main_cc='#include "io/t.h"\n#include <CLI/CLI.hpp>\n', io__t_h=H) == [
        'appliance/io/t.cc:1: its own header "io/t.h" comes first']


def test_the_other_way_round_is_no_exception(tree):
    assert len(tree(store__commit__c_h=H + '#include "store/spool/s.h"\n', store__spool__s_h=H)) == 1


@pytest.mark.parametrize("name, content, faults", [
    ("appliance/core/x/plan.h", H, 0),
    ("appliance/core/x/utils.h", H, 1),
    ("appliance/core/common/plan.h", H, 1),
    ("appliance/core/x/queue_manager.cc", "", 1),
    ("appliance/core/x/commonly.cc", "", 0),
    ("appliance/core/x/Plan.cc", "", 1),
    ("appliance/core/x/plan.h", "#pragma once\n", 1),
    ("appliance/core/x/plan.h", "// What.\n", 1),
    ("README.md", "see /" + "work/x\n", 1),
])
def test_names_and_text(tmp_path, name, content, faults):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert len(text.check(tmp_path, [name])) == faults


def test_lengths_of_functions(tmp_path):
    (tmp_path / "a.cc").write_text("namespace ph {\nvoid short_one() {\n}\nvoid f(int a) {\n" + "  g();\n" * 80 + "}\n}\n")
    assert text.lengths(tmp_path, ["a.cc"]) == ["a.cc:4: a function of 82 lines (aim: under 70)"]
