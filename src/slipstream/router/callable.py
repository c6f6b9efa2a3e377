"""A router that is a Python function: `module:name`, called with (topic, message)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import TypeAlias, cast

import msgspec

from slipstream.broker import RoutingDecision
from slipstream.router.hook import RoutedMessage, RouterRefused

Function: TypeAlias = Callable[[str, RoutedMessage], object]


class CallableRouter:
    """Calls the function; one that is not `async` runs in a thread, so that it cannot hold up the broker."""

    def __init__(self, function: Function, threads: int = 8) -> None:
        self.function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = _Threads(0 if self._is_async else threads)

    @classmethod
    def load(cls, reference: str) -> CallableRouter:
        module_name, _, name = reference.partition(":")
        if not module_name or not name:
            raise RouterRefused(f"router {reference!r} is no module:name, http(s) URL or path of a .toml file")
        if "" not in sys.path:
            sys.path.insert(0, "")  # a file beside you, which an installed command would not find
        try:
            function: object = importlib.import_module(module_name)
            for part in name.split("."):
                function = getattr(function, part)
        except Exception as error:
            raise RouterRefused(f"router {reference} cannot be imported: {type(error).__name__}: {error}") from error
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


class _Threads:
    """A pool whose threads do not keep the process alive: a function that hangs must not hold up a stop.

    Those of `concurrent.futures` do; they are waited for when the interpreter ends.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._work, name=f"slipstream-router-{number}", daemon=True).start()

    async def call(self, function: Function, topic: str, message: RoutedMessage) -> object:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        def settle(answer: object, error: BaseException | None) -> None:
            if future.done():
                return  # nobody waits any longer
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        def run() -> None:
            if future.cancelled():
                return
            answer, failure = None, None
            try:
                answer = function(topic, message)
            except Exception as error:  # noqa: BLE001 - carried to whoever awaits the call
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, answer, failure)

        self._calls.put(run)
        return await future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def close(self) -> None:
        for _ in range(self._count):
            self._calls.put(None)
