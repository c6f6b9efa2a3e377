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

Function: TypeAlias = Callable[[str, RoutedMessage], object]


class CallableRouter:
    """Calls the function; one that is not `async` runs in a thread, so that it cannot hold up the broker."""

    def __init__(self, function: Function, threads: int = 8) -> None:
        self.function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = DaemonThreads(0 if self._is_async else threads, "slipstream-router")

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
        else:
            answer = await self._threads.call(self.function, topic, message)
        if inspect.isawaitable(answer):
            answer = await cast("Awaitable[object]", answer)
        if answer is None or isinstance(answer, RoutingDecision):
            return answer
        return msgspec.convert(answer, RoutingDecision)

    async def close(self) -> None:
        self._threads.close()
