"""Threads for code that is not ours and may never return: a router's function, a worker's handler."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class DaemonThreads:
    """A pool whose threads do not keep the process alive: a function that hangs must not hold up a stop.

    Those of `concurrent.futures` do; they are waited for when the interpreter ends.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns or raises. Who is cancelled while it runs leaves it running."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        context = contextvars.copy_context()

        def settle(answer: list[R], error: BaseException | None) -> None:
            if future.done():
                return  # nobody waits any longer
            if error is None:
                future.set_result(answer[0])
            else:
                future.set_exception(error)

        def run() -> None:
            if future.cancelled():
                return
            answer: list[R] = []
            failure: BaseException | None = None
            try:
                answer.append(context.run(function, *args, **kwargs))
            except StopIteration as error:
                failure = RuntimeError(f"the function raised {error!r}")  # which no future can carry
            except BaseException as error:  # noqa: BLE001 - carried to whoever awaits the call; the thread goes on
                failure = error if isinstance(error, Exception) else RuntimeError(f"the function raised {error!r}")
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, answer, failure)

        self._calls.put(run)
        return await future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def close(self) -> None:
        """Each thread ends when it has done what it is at."""
        for _ in range(self._count):
            self._calls.put(None)
