"""What a handler is for."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from slipstream.client.message import AsyncMessage, SyncMessage

Handler: TypeAlias = Callable[[AsyncMessage], Awaitable[object]] | Callable[[SyncMessage], object]
"""Gets the message. `async`, or an ordinary function, which then runs in a thread."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages go to which handler, and how."""

    topic: str
    group: str
    handler: Handler
    concurrency: int
    lease_ms: int

    @property
    def is_async(self) -> bool:
        """A coroutine function, or an object whose call is one."""
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(type(self.handler).__call__)

    def __str__(self) -> str:
        return f"{self.topic} (group {self.group})"
