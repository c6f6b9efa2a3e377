"""One demonstration at a time for a data directory: two would take each other's orders, as consumers of a group do."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def turn(folder: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Waits until nobody else has it, having called `wait`. Who is killed gives it up."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
