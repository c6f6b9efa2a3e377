"""Who waits for the engine: for an answer, or for messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Protocol

from slipstream.broker import BrokerError, Delivery, Publications


class Waiter(Protocol):
    """A caller to be answered when a command is as safe as the durability promises."""

    def settled(self, error: BrokerError | None) -> None: ...


class Sink(Protocol):
    """The place where a consumer's messages go."""

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
            return  # the caller has gone
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()


class Batch:
    """The commands of one turn of the event loop: one entry in the journal."""

    __slots__ = ("after", "publications", "waiters")

    def __init__(self, publications: Publications, waiters: list[Waiter], after: list[Callable[[], None]]) -> None:
        self.publications = publications
        self.waiters = waiters
        self.after = after
