"""A router that is a Python function: `module:name`, called with (topic, message)."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import msgspec

from slipstream.broker import RoutingDecision
from slipstream.router.hook import RoutedMessage


class CallableRouter:
    """Calls the function; one that is not `async` runs in a thread, so that it cannot hold up the broker."""

    def __init__(self, function: Callable[[str, RoutedMessage], object], threads: int = 8) -> None:
        self.function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="slipstream-router")

    @classmethod
    def load(cls, reference: str) -> CallableRouter:
        module_name, _, name = reference.partition(":")
        if not module_name or not name:
            raise ValueError(f"a Python router is given as module:name, not {reference!r}")
        function: object = importlib.import_module(module_name)
        for part in name.split("."):
            function = getattr(function, part)
        if not callable(function):
            raise TypeError(f"{reference} is not callable")
        return cls(function)

    async def route(self, topic: str, message: RoutedMessage) -> RoutingDecision | None:
        if self._is_async:
            answer = await cast("Awaitable[object]", self.function(topic, message))
        else:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, self.function, topic, message)
        if answer is None or isinstance(answer, RoutingDecision):
            return answer
        return msgspec.convert(answer, RoutingDecision)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
