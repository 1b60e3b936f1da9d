import os
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from net import Net  # noqa: E402
from node import binary  # noqa: E402

FULL = bool(os.environ.get("PH_FULL"))


def pytest_report_header():
    return f"posthouse: {binary() or 'not built, everything is skipped'}; {'full' if FULL else 'short'} forms"


@pytest.fixture
def full():
    """Whether the long forms are asked for: tools/dev test --full."""
    return FULL


@pytest.fixture
def program():
    found = binary()
    if found is None:
        pytest.skip("posthouse is not built")
    return found


@pytest.fixture
def rng():
    """Randomness of one test; PH_SEED repeats a run."""
    seed = int(os.environ.get("PH_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"PH_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def net(program, tmp_path, rng):
    made = Net(program, tmp_path, rng)
    yield made
    for node in made.nodes:
        print(f"--- last of the log of {node.name}\n{node.log(whole=True)[-2500:]}")
    made.end()
