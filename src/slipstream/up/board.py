"""`parts.json`: how the parts are, for whoever looks at it, such as the console."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from slipstream.up.lock import is_alive
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
    return found if is_alive(found.pid) else None
