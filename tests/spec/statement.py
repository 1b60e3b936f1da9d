"""Decorators by which tests name the statements that they hold the broker to; tests/spec/coverage.py reads them."""
import pytest


def _named(*numbers):
    def same(test):
        return test
    return same


v311 = _named
v5 = _named

both = pytest.mark.parametrize("v", [4, 5], ids=["v311", "v5"])
every = pytest.mark.parametrize("v", [3, 4, 5], ids=["v31", "v311", "v5"])
