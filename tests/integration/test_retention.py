"""Chunks that nobody fetches: they go by age and size, or stop their events at a quota, and the disk keeps its reserve."""
import readers
import writers
from disks import alarm_codes, free_bytes, needs_root, small_disk  # noqa: F401
from node import MIB
from waiting import holds_for, wait_until


def files_status(node):
    return node.status()["files"]


def size_of(folder):
    return sum(path.stat().st_size for path in folder.iterdir() if not path.is_symlink())


def test_old_chunks_and_what_is_too_much_go_and_are_counted_by_reason(net):
    far = net.receiver("far", keep="30d", category=[{"match": ["old"], "keep": "1s", "chunk_interval": "500ms"},
                                                    {"match": ["much"], "max": "1MiB", "chunk_max": "100KiB"}])
    edge = net.edge("edge", [far])
    net.start()
    for n in range(3):
        writers.append_lines(edge.source_dir / f"old/{n}.log", f"s{n}", 0, 100)
        wait_until(lambda: far.total("delivered") == (n + 1) * 100, 20)
    for first in range(0, 20_000, 500):
        writers.append_lines(edge.source_dir / "much/1.log", "m", first, 500)
    writers.append_lines(edge.source_dir / "other/1.log", "o", 0, 100)
    net.wait_drained(written={"all": 20_400})
    wait_until(lambda: size_of(far.events_dir / "old") == 0, 40, lambda: files_status(far))
    wait_until(lambda: size_of(far.events_dir / "much") <= 1.2 * MIB, 40, lambda: files_status(far))
    counted = files_status(far)
    assert counted["expired_bytes"] == 300 * writers.LINE_BYTES and counted["expired_chunks"] >= 1, counted
    assert counted["over_max_bytes"] == 20_000 * writers.LINE_BYTES - size_of(far.events_dir / "much"), counted
    left = [int(line.split(b" ")[1]) for line in readers.lines(far.events_dir, "much")]
    # By the order in which they came: what is appended while the agent takes the file away comes behind its successor's.
    assert len(set(left)) == len(left) == size_of(far.events_dir / "much") // writers.LINE_BYTES and set(left) <= set(range(20_000))
    serials = [int(path.name.rsplit("_", 1)[1]) for path in readers.chunks(far.events_dir, "much")]
    assert serials == list(range(serials[0], serials[0] + len(serials))) and serials[0] > 1, "the oldest went"
    assert len(readers.lines(far.events_dir, "other")) == 100
    for category in ("old", "much", "other"):
        readers.check_current(far.events_dir, category)
    assert far.total("delivered") == 20_400
    net.stop()


def test_a_category_over_its_quota_waits_and_the_others_go_on(net):
    far = net.receiver("far", category=[{"match": ["greedy"], "quota": "1MiB", "chunk_max": "100KiB"}])
    edge = net.edge("edge", [far])
    net.start()
    for n in range(20):
        writers.append_lines(edge.source_dir / f"greedy/{n:02}.log", f"g{n}", 0, 1000)
    wait_until(lambda: "quota_used_up" in alarm_codes(far), 30, far.log)
    writers.append_lines(edge.source_dir / "modest/1.log", "m", 0, 1000)
    wait_until(lambda: len(readers.lines(far.events_dir, "modest")) == 1000, 20, far.log)
    holds_for(lambda: far.total("delivered") < 15_000, 2)
    taken = []
    while len(taken) < 20_000:  # its consumer comes
        folder = far.events_dir / "greedy"
        current = (folder / "greedy_current").readlink().name
        for path in readers.chunks(far.events_dir, "greedy"):
            if path.name < current:
                taken += path.read_bytes().split(b"\n")[:-1]
                path.unlink()
        if len(taken) == 20_000:
            break
        wait_until(lambda: (folder / "greedy_current").readlink().name != current, 20, far.log)
    assert len(set(taken)) == 20_000
    wait_until(lambda: "quota_used_up" not in alarm_codes(far), 10)
    assert files_status(far)["over_quota"] == 0
    net.wait_drained()
    net.stop()


def test_categories_that_are_held_leave_the_window_to_the_others(net):
    """Six categories at their quotas, with the smallest window there is; then one edge with files as its target."""
    far = net.receiver("far", category=[{"match": ["greedy*"], "quota": "64KiB", "chunk_max": "16KiB"}])
    edge = net.edge("edge", [far], upstream={"window": "256KiB"})
    alone = net.node("alone", agent={}, receiver={"category": [{"match": ["greedy*"], "quota": "64KiB"}]},
                     routes=[{"name": "all", "to": ["files"]}])
    net.start()
    for node, place in ((edge, far), (alone, alone)):
        for n in range(6):
            for part in range(2):
                writers.append_lines(node.source_dir / f"greedy{n}/{part}.log", f"g{n}.{part}", 0, 1000)
        wait_until(lambda node=node: node.status()["agent"]["held_lanes"] == 6, 60, lambda node=node: str(node.status()["agent"]))
        assert node.status()["agent"]["taken_back_bytes"] > 0
        for turn in range(3):
            writers.append_lines(node.source_dir / f"modest{turn}/1.log", "m", 0, 3000)
            wait_until(lambda place=place, turn=turn: len(readers.lines_so_far(place.events_dir, f"modest{turn}")) == 3000, 20,
                       node.log)
        taken = {n: [] for n in range(6)}

        def consume(place=place, taken=taken):
            for n in taken:
                current = place.events_dir / f"greedy{n}" / f"greedy{n}_current"
                for path in readers.chunks(place.events_dir, f"greedy{n}"):
                    if path.name < current.readlink().name:
                        taken[n] += path.read_bytes().split(b"\n")[:-1]
                        path.unlink()
            rest = {n: len(readers.lines_so_far(place.events_dir, f"greedy{n}")) for n in taken}
            return all(len(taken[n]) + rest[n] == 2000 for n in taken)

        if node is edge:
            wait_until(consume, 120, lambda: str({n: len(lines) for n, lines in taken.items()}))
            for n in range(6):
                every = taken[n] + readers.lines(place.events_dir, f"greedy{n}")
                readers.check_once([every], {f"g{n}.{part}": 1000 for part in range(2)})
            wait_until(lambda node=node: node.status()["agent"]["held_lanes"] == 0, 20)
            node.wait_idle()
            assert node.route("all")["delivered"] == 21_000 and node.route("all")["duplicate"] == 0
    net.stop()


def test_events_over_a_quota_become_dead_letters_where_that_is_asked_for(net):
    far = net.receiver("far", over_quota="dead_letter", category=[{"match": ["greedy"], "quota": "64KiB"}])
    edge = net.edge("edge", [far])
    net.start()
    sent = 0
    while not edge.total("dead_lettered"):
        writers.append_lines(edge.source_dir / "greedy/1.log", "g", sent, 1000)
        sent += 1000
        net.wait_drained(written={"g": sent})
        assert sent < 20_000
    writers.append_lines(edge.source_dir / "modest/1.log", "m", 0, 100)
    net.wait_drained(written={"g": sent, "m": 100})
    assert len(readers.lines(far.events_dir, "modest")) == 100
    letters = edge.total("dead_lettered")
    assert len(readers.lines(far.events_dir, "greedy")) + letters == sent
    assert files_status(far)["over_quota"] > 0
    edge.balanced()
    net.stop()


@needs_root
def test_a_consumer_that_never_comes_cannot_take_the_reserve(net, small_disk):
    far = net.receiver("far")
    small_disk(far.events_dir, "64m")
    edge = net.edge("edge", [far])
    net.start()
    for n in range(10):
        writers.append_lines(edge.source_dir / f"clicks/{n}.log", f"s{n}", 0, 3000, 3000)
    wait_until(lambda: "disk_full" in alarm_codes(far), 60, far.log)
    holds_for(lambda: free_bytes(far.events_dir) > 8 * MIB, 3)
    delivered = far.total("delivered")
    assert len(readers.lines(far.events_dir, "clicks")) == delivered < 30_000
    far.restart()
    wait_until(lambda: "disk_full" in alarm_codes(far), 20)
    # With a bound on what is kept it goes on by itself: delivered is delivered, whoever came for it.
    far.stop()
    far.tables["receiver"]["max"] = "20MiB"
    far.write_config()
    far.start()
    net.wait_drained(60, written={"s": 30_000})
    assert far.total("delivered") == 30_000
    assert files_status(far)["over_max_chunks"] > 0
    wait_until(lambda: "disk_full" not in alarm_codes(far), 10)
    net.stop()
