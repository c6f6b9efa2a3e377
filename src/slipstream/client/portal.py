"""From a thread into an event loop and back: how everything that does not await is done by what does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, TypeVar

from slipstream.client.errors import SlipstreamError

T = TypeVar("T")


class HandsOver(Protocol):
    """Holds something on this side of the loop."""

    def hand_over(self) -> None: ...


class Portal:
    """Runs coroutines on a loop that lives in another thread, and waits for what they return."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.producers: weakref.WeakSet[HandsOver] = weakref.WeakSet()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError as error:  # the loop has ended
            work.close()
            raise SlipstreamError("this client is closed: make a new one") from error
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()  # nobody waits for it any longer
            raise

    def iterated(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        async def advance() -> list[T]:
            """The next, or none."""
            try:
                return [await anext(items)]
            except StopAsyncIteration:
                return []

        try:
            while following := self.run(advance()):
                yield from following
        finally:
            self._close(items)

    def _close(self, items: AsyncGenerator[T, None]) -> None:
        """Where this is the end of an iterator that nobody holds any longer, it may come at any time and in any thread:
        after the loop has ended, or in the loop itself, which must not wait for itself."""
        if self.loop.is_closed():
            return

        async def close() -> None:
            await items.aclose()

        if _running_loop() is self.loop:
            self.loop.create_task(close())
        else:
            self.run(close())

    def entered(self, context: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        return _Entered(self, context)


class _Entered(AbstractContextManager[T]):
    def __init__(self, portal: Portal, context: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._context = context

    def __enter__(self) -> T:
        async def enter() -> T:
            return await self._context.__aenter__()

        return self._portal.run(enter())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        async def leave() -> bool | None:
            return await self._context.__aexit__(kind, error, trace)

        return self._portal.run(leave())


class LoopThread(Portal):
    """A loop with a thread of its own, until `close`. The thread does not keep the process alive."""

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self._thread = threading.Thread(target=self._work, name="slipstream-client", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def closed(self) -> bool:
        return self.loop.is_closed()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def settle_with(future: asyncio.Future[T], result: concurrent.futures.Future[T]) -> None:
    """Gives what becomes of a future of the loop to one that another thread can wait for."""

    def settle(done: asyncio.Future[T]) -> None:
        if not result.set_running_or_notify_cancel():
            return  # who waited has cancelled it
        if done.cancelled():
            result.set_exception(concurrent.futures.CancelledError())
        elif (error := done.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())

    future.add_done_callback(settle)
