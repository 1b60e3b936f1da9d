"""Compressed files of a receiver that is killed while it writes: gunzip and zstd read them, every line is there once."""
import subprocess
import time

import pytest
import readers
import writers
from waiting import wait_until

READERS = {"gzip": ("gunzip", "-c"), "zstd": ("zstd", "-dc", "-q")}
SUFFIX = {"gzip": ".gz", "zstd": ".zst"}
MIB = 1024 * 1024


def unpack(path, compress):
    """The lines of a file. An end that is not whole is told by the program's exit code."""
    with open(path, "rb") as packed:
        done = subprocess.run(READERS[compress], stdin=packed, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.stdout.split(b"\n")[:-1], done.returncode


def files(far, category, compress, mode):
    if mode == "plain":
        return [far.events_dir / (category + SUFFIX[compress])]
    folder = far.events_dir / category
    return sorted(path for path in folder.iterdir() if not path.is_symlink() and path.stat().st_size > 0)


def all_lines(far, category, compress, mode):
    out = []
    for path in files(far, category, compress, mode):
        assert path.name.endswith(SUFFIX[compress]), path
        lines, code = unpack(path, compress)
        assert code == 0, f"{path} does not end with a whole member"
        out += lines
    return out


@pytest.mark.parametrize("mode", ["chunks", "plain"])
@pytest.mark.parametrize("compress", ["gzip", "zstd"])
def test_killed_in_the_middle(net, rng, compress, mode):
    far = net.receiver("far", category=[{"match": ["clicks"], "mode": mode, "compress": compress, "chunk_max": "1MiB",
                                         "chunk_interval": "1s"}])
    edge = net.edge("edge", [far])
    net.start()
    total, kills = 60_000, 4
    producer = writers.Producer(edge.source_dir / "clicks", total, 12_000, rng)
    producer.start()
    for _ in range(kills):
        delivered = far.total("delivered")
        wait_until(lambda: far.total("delivered") > delivered, 20)
        time.sleep(rng.uniform(0, 0.5))
        delivered = far.total("delivered")
        far.kill()
        # As it was left: what had been acknowledged is readable before anything is mended. A plain log gets a group's
        # lines after their acknowledgement, so it lacks the last ones until the node is back.
        if mode == "chunks":
            left = [unpack(path, compress) for path in files(far, "clicks", compress, mode)]
            assert sum(len(lines) for lines, _ in left) >= delivered
            assert all(code == 0 for _, code in left[:-1]), "closed chunks are whole"
        far.start()
    written = producer.finish()
    net.wait_drained(60, written=written)
    wait_until(lambda: len(all_lines(far, "clicks", compress, mode)) >= total, 10)
    readers.check_once([all_lines(far, "clicks", compress, mode)], written)
    assert far.starts == kills + 1
    if mode == "chunks":
        assert (far.events_dir / "clicks" / "clicks_current").readlink().name.endswith(SUFFIX[compress])
    net.stop()


def test_two_thousand_compressed_categories_cost_little_memory(net):
    far = net.receiver("far", category=[{"match": ["z*"], "compress": "zstd"}, {"match": ["g*"], "compress": "gzip"}])
    edge = net.edge("edge", [far])
    far.start()
    count = 2000
    for n in range(count):
        writers.append_lines(edge.source_dir / f"{'zg'[n % 2]}{n:05d}" / "1.log", "s", 0, 20)
    edge.start()
    net.wait_drained(120, written={"all": count * 20})
    for n in (0, 1, count - 2, count - 1):
        compress = ("zstd", "gzip")[n % 2]
        readers.check_once([all_lines(far, f"{'zg'[n % 2]}{n:05d}", compress, "chunks")], {"s": 20})
    assert far.note_rss() < 64 * MIB, far.peak_rss
    net.stop()
