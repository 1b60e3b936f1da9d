"""`posthouse migrate lsd`: the configuration is one that `config check` accepts, and offsets become cursors."""
import json
import os

import lsd
import writers
from node import Node
from waiting import holds_for, wait_until

CONF = {
    "daemon_config": {"listen": [{"proto": "lsd-gpb", "address": "0.0.0.0:7100"}], "log_level": "NOTICE",
                      "service_name": "lsd", "service_instance_name": "localhost"},
    "client_config": {"source_dir": "/var/spool/lsd", "offsets_db": "/var/lib/lsd.db", "max_file_size": 1000000,
                      "routing": [{"receivers": [{"addr": "localhost:8100", "weight": 1}]},
                                  {"categories": ["test1_*", "test2_*"], "receivers": [{"addr": "far:9100", "weight": 2}]}]},
}


def moved(net, conf_path, offsets=None, name="edge"):
    """A node with LSD's configuration, converted; and with its offsets."""
    node = Node(net.program, net.folder, name, {})
    done = node.command("migrate", "lsd", str(conf_path))
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace('data_dir = "/var/lib/posthouse"', f'data_dir = "{node.data}"')
    text += f'\n[api]\nsocket = "{node.folder / "api.sock"}"\n'
    node.config_path.write_text(text)
    checked = node.command("config", "check", str(node.config_path))
    assert checked.returncode == 0, checked.stderr + text
    taken = None
    if offsets is not None:
        taken = node.command("migrate", "lsd", str(conf_path), "--offsets", str(offsets), "-c", str(node.config_path))
    net.nodes.append(node)
    return node, taken


def conf_file(net, server, source, **client):
    path = net.folder / "lsd.conf"
    path.write_text("// as LSD takes it\n" + json.dumps({
        "daemon_config": {"pid_file": str(net.folder / "lsd.pid")},
        "client_config": {"source_dir": str(source), "offsets_db": str(net.folder / "offsets"), "file_rotate_interval": 1,
                          "periodic_scan_interval": 1,
                          "routing": [{"receivers": [{"addr": server.address, "weight": 1}]}], **client}}))
    return path


def test_what_is_printed_passes_config_check(net, tmp_path):
    path = tmp_path / "client.conf"
    path.write_text(json.dumps(CONF))
    node, _ = moved(net, path)
    text = node.config_path.read_text()
    assert 'protocol = "lsd"' in text and 'dir = "/var/spool/lsd"' in text
    path = tmp_path / "server.conf"
    path.write_text(json.dumps({"daemon_config": CONF["daemon_config"], "server_config": {
        "target_dir": "/data", "max_file_size": 10000, "per_category_settings": [
            {"categories": ["a_*"], "mode": "PLAIN_LOG", "gzip": True}]}}))
    moved(net, path, name="server")
    net.nodes.clear()


def test_masks_that_tie_are_told(net, tmp_path):
    path = tmp_path / "lsd.conf"
    conf = json.loads(json.dumps(CONF))
    conf["client_config"]["routing"].append({"categories": ["test1_*_x"], "receivers": [{"addr": "b:1", "weight": 1}]})
    path.write_text(json.dumps(conf))
    done = Node(net.program, net.folder, "n", {}).command("migrate", "lsd", str(path))
    assert done.returncode == 2 and "ties with" in done.stderr and "[[route]]" in done.stdout


def test_offsets_are_taken_over_and_nothing_is_lost_or_repeated(net):
    server = lsd.Server(tick=0)
    source = net.folder / "source"
    names = {"a": source / "clicks/202611300901", "b": source / "clicks/202611300902", "old": source / "views.log.old",
             "new": source / "views.log", "done": source / "done.log", "unseen": source / "fresh/1"}
    for name, path in names.items():
        writers.append_lines(path, name, 0, 1000)
    sent = {"a": 1000, "b": 400, "old": 1000, "new": 250, "done": 1000}
    entries = [{"Ino": names[name].stat().st_ino, "Off": count * writers.LINE_BYTES,
                "LastFileName": str(names[name]).removesuffix(".old")} for name, count in sent.items()]
    entries.append({"Ino": 1, "Off": 77, "LastFileName": str(source / "gone")})
    offsets = net.folder / "offsets"
    offsets.write_text(json.dumps(entries))
    node, taken = moved(net, conf_file(net, server, source), offsets)
    assert taken.returncode == 0, taken.stderr
    assert "6 files, 0 of them from their beginning" in taken.stdout and "1 offsets of files that are gone" in taken.stdout
    with open(names["b"], "ab", buffering=0) as writer:  # a producer that never noticed
        writer.write(b"".join(writers.line("b", n) for n in range(1000, 1100)))
        node.start()
        writer.write(b"".join(writers.line("b", n) for n in range(1100, 1200)))
        wanted = {"a": range(0), "b": range(400, 1200), "old": range(0), "new": range(250, 1000), "done": range(0),
                  "unseen": range(1000)}
        total = sum(len(one) for one in wanted.values())
        wait_until(lambda: server.count() >= total, 20, lambda: str(server.count()))
        holds_for(lambda: server.count() == total, 2, "something was repeated")
    lines = {line: category for category, some in server.lines.items() for line in some}
    for name, numbers in wanted.items():
        for n in numbers:
            assert writers.line(name, n)[:-1] in lines
    again = node.command("migrate", "lsd", str(net.folder / "lsd.conf"), "--offsets", str(offsets), "-c", str(node.config_path))
    assert again.returncode != 0, "the node runs"
    wait_until(lambda: not names["done"].exists() and not names["old"].exists(), 30, "what LSD had delivered is deleted")
    node.stop()
    again = node.command("migrate", "lsd", str(net.folder / "lsd.conf"), "--offsets", str(offsets), "-c", str(node.config_path))
    assert again.returncode == 0 and "0 files" in again.stdout, "a second time changes nothing: " + again.stdout
    node.start()
    holds_for(lambda: server.count() == total, 2, "a second take-over repeated something")
    server.stop()


def test_where_the_offset_is_of_another_file_it_is_read_from_its_beginning(net):
    server = lsd.Server(tick=0)
    source = net.folder / "source"
    cases = {"truncated": 5000, "other": 300, "rewritten": 450}
    entries = []
    for name, offset in cases.items():
        path = source / name
        writers.append_lines(path, name, 0, 10)
        entries.append({"Ino": path.stat().st_ino, "Off": offset,
                        "LastFileName": str(source / ("somebody-else" if name == "other" else name))})
    offsets = net.folder / "offsets"
    offsets.write_text(json.dumps(entries))
    node, taken = moved(net, conf_file(net, server, source), offsets)
    assert taken.returncode == 0, taken.stderr
    assert taken.stdout.count("FROM ITS BEGINNING") == 3 and "3 of them from their beginning" in taken.stdout, taken.stdout
    node.start()
    wait_until(lambda: server.count() == 30, 20)
    server.stop()


def test_a_running_lsd_and_bad_files_are_refused(net):
    server = lsd.Server(tick=0)
    source = net.folder / "source"
    source.mkdir()
    conf = conf_file(net, server, source)
    offsets = net.folder / "offsets"
    offsets.write_text("[{]")
    node, taken = moved(net, conf, offsets)
    assert taken.returncode == 2 and "migrate.malformed" in taken.stderr
    offsets.write_text("[]")

    (net.folder / "lsd.pid").write_text(str(os.getpid()))
    taken = node.command("migrate", "lsd", str(conf), "--offsets", str(offsets), "-c", str(node.config_path))
    assert taken.returncode == 2 and "stop LSD first" in taken.stderr
    server.stop()


