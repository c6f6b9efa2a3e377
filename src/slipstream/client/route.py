"""What a handler is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from slipstream import handlers
from slipstream.api import RetryPolicyFields
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
    retry: RetryPolicyFields | None = None

    @property
    def is_async(self) -> bool:
        return handlers.is_async(self.handler)

    def __str__(self) -> str:
        return f"{self.topic} (group {self.group})"
