"""An event loop in a thread, beside a command that has the main thread and its signals."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0


class Aside:
    """The loop, which tests hand what is to be awaited there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, story: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(story, self._loop)

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Return what it has come to."""
        return self.start(story).result(PATIENCE_S)

    def until(self, story: Coroutine[Any, Any, T], is_running: Callable[[], bool]) -> T:
        """The same for what a command brings about; raises where that has ended without it."""
        awaited = self.start(story)
        while is_running():
            with contextlib.suppress(TimeoutError):
                return awaited.result(0.2)
        try:
            return awaited.result(0)
        except TimeoutError as error:
            awaited.cancel()
            raise AssertionError("the command has ended before that") from error

    @contextlib.contextmanager
    def opened(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave it there, in one task."""
        found: Future[T] = Future()
        leave = asyncio.Event()

        async def hold() -> None:
            try:
                async with manager as value:
                    found.set_result(value)
                    await leave.wait()
            except BaseException as error:
                if not found.done():
                    found.set_exception(error)
                raise

        held = self.start(hold())
        value = found.result(PATIENCE_S)
        try:
            yield value
        finally:
            self._loop.call_soon_threadsafe(leave.set)
            held.result(PATIENCE_S)


@contextlib.contextmanager
def aside() -> Iterator[Aside]:
    """Run a loop in a thread until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="aside")
    thread.start()
    try:
        yield Aside(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
