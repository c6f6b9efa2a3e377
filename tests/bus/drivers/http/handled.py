"""A handler that keeps what it was given, for a test to wait for."""

from __future__ import annotations

import asyncio

from slipstream.bus import Message


class Handled:
    """`await bus.subscribe(topic, group, handled)`. Holds every message until `go_on` is set, if `held`."""

    def __init__(self, *, held: bool = False) -> None:
        self.messages: list[Message] = []
        self.go_on = asyncio.Event()
        if not held:
            self.go_on.set()
        self._came = asyncio.Condition()

    async def __call__(self, message: Message) -> None:
        async with self._came:
            self.messages.append(message)
            self._came.notify_all()
        await self.go_on.wait()

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    async def until(self, *texts: str) -> None:
        """All of these have come."""
        async with self._came:
            await self._came.wait_for(lambda: set(texts) <= set(self.texts))
