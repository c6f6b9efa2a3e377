"""Callers that wait for the engine: for a command to be safe, for messages, or for something to happen."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Generator
from typing import Any, Protocol

from slipstream.broker import BrokerError, Delivery


class Waiter(Protocol):
    """Somebody to be answered when a command is as safe as the durability promises."""

    def settled(self, error: BrokerError | None) -> None: ...


class Sink(Protocol):
    """Where a consumer's messages go."""

    def deliver(self, deliveries: list[Delivery]) -> None: ...

    def ended(self) -> None:
        """Its group or topic is no more: nothing will come."""
        ...


class Answer:
    """A waiter to be awaited."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(self, error: BrokerError | None) -> None:
        if self._future.done():
            return  # whoever waited has gone
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()


class Watch(enum.Enum):
    """What can be watched besides a single partition."""

    MESSAGES = enum.auto()
    """Any partition has something new to read."""
    TOPICS = enum.auto()
    """A topic was created, changed or deleted."""
