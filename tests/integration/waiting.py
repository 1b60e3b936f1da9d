"""Waiting for something to become true, instead of sleeping."""
import time

STEP = 0.02


def wait_until(condition, seconds=20, what=None):
    """The first true value of condition(), asked again and again; fails with `what` (text or a function that makes it)."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            text = what() if callable(what) else what
            raise AssertionError(f"not within {seconds} s: {text or condition}")
        time.sleep(STEP)


def holds_for(condition, seconds, what=None):
    """condition() stays true that long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not condition():
            raise AssertionError(f"did not stay so for {seconds} s: {what or condition}")
        time.sleep(STEP)
