"""A part of the platform: what is started, and what is known of it once it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

State = Literal["waiting", "starting", "running", "crashed", "stopped"]
"""Waiting: what it needs is not ready, or it runs and takes no work. Crashed: it has ended, and is started again after
a pause. Stopped: as asked, or because to start it again would not help."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """As it is to be started."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """On top of the supervisor's own."""
    url: str = ""
    """Where others find it."""
    health: str = ""
    """Answers 200 when the part takes work; empty: it does as soon as it runs."""
    alive: str = ""
    """Answers 200 as long as another start would not help; empty: any answer of `health` says so."""
    needs: tuple[str, ...] = ()
    """Parts that are ready before this is started, and that end after it."""
    patience: str = ""
    """What to say to somebody who waits for it to start."""
    hopeless: Mapping[int, str] = msgspec.field(default_factory=dict)
    """Exit codes that another start would not change, and what to do about each. Of a part that was ready once they
    are a crash as any other: its settings made sense then, and whoever has its port now may go."""
    is_vital: bool = False
    """Without it there is nothing: where it stays away, everything ends."""


class PartStatus(msgspec.Struct, kw_only=True):
    """As it is, for those who look: one of `parts.json`."""

    name: str
    state: State = "waiting"
    pid: int | None = None
    url: str = ""
    restarts: int = 0
    since_ms: int = 0
    """When it came into this state."""
    reason: str = ""
    """Why it is not running."""
    log: list[str] = msgspec.field(default_factory=list)
    """The last lines that it has said."""


class PartsFile(msgspec.Struct, kw_only=True):
    """`<data>/up/parts.json`."""

    parts: list[PartStatus]
    pid: int
    """Of the supervisor: where it is gone, the rest is a memory."""
    time_ms: int
