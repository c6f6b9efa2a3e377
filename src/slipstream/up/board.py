"""`parts.json`: how the parts are, for whoever looks at it, such as the console."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from slipstream.up.lock import is_alive, is_held
from slipstream.up.part import PartsFile, PartStatus


def write(path: Path, parts: Iterable[PartStatus]) -> None:
    """Whole or not at all: somebody may be reading it."""
    content = PartsFile(parts=list(parts), pid=os.getpid(), time_ms=time.time_ns() // 1_000_000)
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(msgspec.json.encode(content))
    fresh.replace(path)


def read(path: Path) -> PartsFile | None:
    """None where there is none, or its supervisor is gone."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PartsFile)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return found if is_current(path, found.pid) else None


def is_current(path: Path, pid: int) -> bool:
    """Whether the supervisor that wrote it still runs. Its number alone does not say: in a container another has the
    same. The lock alone does not either: a supervisor that was killed leaves it to its watcher."""
    return is_held(path.parent) and is_alive(pid)
