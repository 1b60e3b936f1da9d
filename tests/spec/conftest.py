"""Fixtures and decorators of the statement tests. One broker process serves a module; tests use names of their own."""
import pathlib
import random
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "integration"))

from client import Broker  # noqa: E402
from node import Node, Ports, binary  # noqa: E402


@pytest.fixture(scope="module")
def process(request, tmp_path_factory):
    program = binary()
    if program is None:
        pytest.skip("posthouse is not built")
    ports = Ports(random.SystemRandom())
    tables = {"listener": [{"name": "plain", "bind": f"127.0.0.1:{ports.take()}"}],
              "broker": getattr(request.module, "BROKER", {"workers": 1})}
    node = Node(program, tmp_path_factory.mktemp("spec"), "spec", tables).start()
    yield Broker(node)
    try:
        node.stop()
    finally:
        node.end()


@pytest.fixture
def broker(process):
    yield process
    process.end()
    assert process.node.running(), process.node.log()[-3000:]
