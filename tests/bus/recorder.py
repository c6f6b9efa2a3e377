"""A handler that remembers what it got, and a way to wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from slipstream.bus import Message


class Recorder:
    """Called with messages; does with each what the test says, after it has noted it."""

    def __init__(self, act: Callable[[Message], Awaitable[None]] | None = None) -> None:
        self.messages: list[Message] = []
        self.times: list[float] = []
        self._act = act
        self._came = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self.times.append(time.monotonic())
        self._came.set()
        if self._act is not None:
            await self._act(message)

    @property
    def data(self) -> list[bytes]:
        return [message.data for message in self.messages]

    async def have(self, count: int) -> list[Message]:
        """Returns when so many have come."""
        await self.until(lambda: len(self.messages) >= count)
        return self.messages

    async def until(self, question: Callable[[], bool]) -> None:
        while not question():
            self._came.clear()
            await self._came.wait()


def failing(times: int, error: Exception | None = None) -> Callable[[Message], Awaitable[None]]:
    """Fails so many attempts at each message."""

    async def act(message: Message) -> None:
        if message.attempt <= times:
            raise error or RuntimeError(f"attempt {message.attempt} fails")

    return act
