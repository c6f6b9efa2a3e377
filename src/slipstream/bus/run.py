"""One message, from the moment it arrives until the engine has been told what became of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any

from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.failure import Failure
from slipstream.bus.message import Message
from slipstream.outcome import Duration

if TYPE_CHECKING:
    from slipstream.bus.subscription import Subscription


class Run:
    """That long it takes one of the subscriber's slots."""

    __slots__ = (
        "_subscription",
        "began_at",
        "delivery",
        "extended_until",
        "given_up",
        "is_handled",
        "lost",
        "settled",
        "task",
        "telling",
    )

    def __init__(self, subscription: Subscription, delivery: Delivery, now: float) -> None:
        self._subscription = subscription
        self.delivery = delivery
        """The latest: a lease that ran out while the engine was away may come back to us."""
        self.task: asyncio.Task[None]
        self.began_at = now
        self.extended_until = 0.0
        """As the handler has asked for."""
        self.given_up = ""
        """Why the handler is not to go on."""
        self.is_handled = False
        """The handler has begun, and not ended."""
        self.lost = False
        """The message is another's now: whatever is said about it here does not count."""
        self.settled = False
        """It is decided what the engine is told."""
        self.telling: asyncio.Task[None] | None = None
        """On the way to the engine, because the handler did not wait for its own end."""

    @property
    def message(self) -> Message:
        """Made when it is asked for: were it kept, each would hold the other, and what is done would stay in memory
        until the garbage collector finds it."""
        return Message(self._subscription.topic, self._subscription.group, self.delivery, self)

    @property
    def is_told(self) -> bool:
        """The engine has heard what became of it, and the handler runs on: there is no lease to keep."""
        return self.telling is not None and self.telling.done()

    def settle_early(self, failure: Failure | None) -> Awaitable[None]:
        return self._in_loop(lambda: self._settle_early(failure))

    def extend(self, duration: Duration | None) -> Awaitable[None]:
        return self._in_loop(lambda: asyncio.ensure_future(self._subscription.extend_one(self, duration)))

    def give_up(self, reason: str) -> None:
        """Cancels the handler, if it runs. A function in a thread runs on, and nobody waits for it. One that has not
        begun does not: a task that is cancelled before its first step could not even give the message back."""
        if not self.given_up and not self.settled:
            self.given_up = reason
            if self.is_handled:
                self.task.cancel()

    def _settle_early(self, failure: Failure | None) -> asyncio.Future[None]:
        if self.telling is None:
            self.telling = asyncio.ensure_future(self._subscription.settle(self, failure))
        return self.telling

    def _in_loop(self, begin: Any) -> Awaitable[None]:
        """`begin` is called in the loop's thread; who calls from another waits for its end."""
        loop = self._subscription.loop
        if threading.get_ident() == self._subscription.thread:
            future: asyncio.Future[None] = begin()
            outer = asyncio.shield(future)  # who is cancelled while waiting for it does not undo it
            outer.add_done_callback(_heard)
            return outer

        async def run() -> None:
            await begin()

        asyncio.run_coroutine_threadsafe(run(), loop).result()
        return _Told()


class _Told:
    """For who awaits what has happened already."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


def _heard(future: asyncio.Future[None]) -> None:
    """Nobody has to await it; asyncio need not complain about what was not looked at."""
    if not future.cancelled():
        future.exception()
