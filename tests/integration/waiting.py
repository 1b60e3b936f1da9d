"""Waiting for something to become true, instead of sleeping. Bounds are for a quiet machine: where others use it, too, they
grow with the load, so that a test fails for what it tests and not for who else is there."""
import os
import time

STEP = 0.02
LEAST = 10  # no wait for a condition fails before


def patience(seconds):
    """So long on this machine as it is now."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_until(condition, seconds=20, what=None):
    """The first true value of condition(), asked again and again; fails with `what` (text or a function that makes it)."""
    begun = time.monotonic()
    while True:
        late = time.monotonic() - begun > patience(max(seconds, LEAST))
        value = condition()
        if value:
            return value
        if late:  # asked once more after the time was over
            text = what() if callable(what) else what
            raise AssertionError(f"not within {patience(max(seconds, LEAST)):.0f} s: {text or condition}")
        time.sleep(STEP)


def holds_for(condition, seconds, what=None):
    """condition() stays true that long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not condition():
            raise AssertionError(f"did not stay so for {seconds} s: {what or condition}")
        time.sleep(STEP)
