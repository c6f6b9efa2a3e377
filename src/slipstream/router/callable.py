"""A router that is a Python function: `module:name`, called with (topic, message)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import msgspec

from slipstream import references
from slipstream.broker import RoutingDecision
from slipstream.router.hook import RoutedMessage, RouterRefused
from slipstream.threads import DaemonThreads

STUCK_MAX = 64
"""Calls that may hang at the same time. Each keeps a thread until it returns; with more the function is not called."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RoutingDecision).decode

Function: TypeAlias = Callable[[str, RoutedMessage], object]


class RouterStuck(Exception):
    """Too many calls of a router hang."""


class CallableRouter:
    """A router that calls a function.

    A function that is not `async` runs in a thread, so that it cannot hold up the broker. A call that does not return
    in time keeps its thread, and another thread takes its place.
    """

    def __init__(self, function: Function, threads: int = 8) -> None:
        self.function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = DaemonThreads(0 if self._is_async else threads, "slipstream-router", replacements=STUCK_MAX)

    @classmethod
    def load(cls, reference: str) -> CallableRouter:
        if not all(reference.partition(":")):
            raise RouterRefused(f"router {reference!r} is no module:name, http(s) URL or path of a .toml file")
        try:
            function = references.find(reference)
        except references.NotFound as error:
            raise RouterRefused(f"router {error}") from error
        if not callable(function):
            raise RouterRefused(f"router {reference} is not callable")
        return cls(function)

    async def route(self, topic: str, message: RoutedMessage) -> RoutingDecision | None:
        if self._is_async:
            answer = self.function(topic, message)
        elif self._threads.stuck >= STUCK_MAX:
            raise RouterStuck(f"{self._threads.stuck} calls of it have not returned; restart the broker to end them")
        else:
            answer = await self._threads.call(self.function, topic, message)
        if inspect.isawaitable(answer):
            answer = await cast("Awaitable[object]", answer)
        # Also a RoutingDecision is checked: its fields may hold anything, and it is stored with the message.
        return None if answer is None else _decode(_encode(answer))

    @property
    def stuck(self) -> int:
        """The number of calls that nobody waits for and that have not returned."""
        return self._threads.stuck

    async def close(self) -> None:
        self._threads.close()
