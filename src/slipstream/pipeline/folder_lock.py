"""One process writes a folder of tables at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from slipstream.pipeline.errors import TablesBusy


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Raises TablesBusy. The lock goes with the process, however that ends."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "_lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "another process"
            raise TablesBusy(
                f"{root} is written by {who}: stop it first, or give these tables another folder"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield
