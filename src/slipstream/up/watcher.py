"""Sees to it that no part outlives its supervisor, however that ends: a program that the supervisor starts.

It reads a pipe whose other end only the supervisor has. `+123` is a process group that has begun, `-123` one that has
ended. When the pipe ends, the supervisor has: what is left is asked to stop, and a little later killed, whole groups
with all that the parts have started. It needs the standard library only, and begins in a few milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 5.0
"""Less than a supervisor gives: whoever has killed it wants the ports back. Every part survives a kill."""
POLL_S = 0.05


def watch(fd: int) -> set[int]:
    """Returns the groups that are left at the end of the pipe."""
    groups: set[int] = set()
    with os.fdopen(fd, "rb") as told:
        for line in told:
            number = int(line)
            if number > 0:
                groups.add(number)
            else:
                groups.discard(-number)
    return groups


def end(groups: set[int]) -> None:
    for group in groups:
        _signal(group, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and any(_signal(group, 0) for group in groups):
        time.sleep(POLL_S)
    for group in groups:
        _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Whether there is anybody in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # there is, though we may not
    return True


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # it ends when the supervisor does, and not before
    end(watch(int(sys.argv[1])))
