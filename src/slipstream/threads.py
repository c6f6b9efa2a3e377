"""Threads for code that is not ours and may never return: a router's function, a worker's handler."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class DaemonThreads:
    """A pool whose threads do not keep the process alive: a function that hangs must not hold up a stop.

    Those of `concurrent.futures` do; they are waited for when the interpreter ends. With `replacements`, a thread whose
    caller was cancelled is replaced by a new one, up to so many at a time, and ends when its call returns: functions
    that hang do not use up the pool.
    """

    def __init__(self, count: int, name: str, *, replacements: int = 0) -> None:
        self._count = count
        self._name = name
        self._numbers = itertools.count()
        self._replacements = replacements
        self._replaced = 0
        self._lock = threading.Lock()
        self.stuck = 0
        """The number of calls under way whose caller was cancelled."""
        self._calls: SimpleQueue[Callable[[], bool] | None] = SimpleQueue()
        for _ in range(count):
            self._start()

    def _start(self) -> None:
        threading.Thread(target=self._work, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the function returns, or raise what it raises. A cancelled call runs on in its thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        context = contextvars.copy_context()
        call = _Call()

        def settle(answer: list[R], error: BaseException | None) -> None:
            if future.done():
                return  # nobody waits any longer
            if error is None:
                future.set_result(answer[0])
            else:
                future.set_exception(error)

        def run() -> bool:
            with self._lock:
                if call.is_cancelled:
                    return True
                call.is_running = True
            answer: list[R] = []
            failure: BaseException | None = None
            try:
                answer.append(context.run(function, *args, **kwargs))
            except StopIteration as error:
                failure = RuntimeError(f"the function raised {error!r}")  # which no future can carry
            except BaseException as error:  # noqa: BLE001 - carried to whoever awaits the call; the thread goes on
                failure = error if isinstance(error, Exception) else RuntimeError(f"the function raised {error!r}")
            goes_on = self._finished(call)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, answer, failure)
            return goes_on

        self._calls.put(run)
        try:
            return await future
        except asyncio.CancelledError:
            self._cancelled(call)
            raise

    def _finished(self, call: _Call) -> bool:
        """Return whether the thread of the call goes on with others."""
        with self._lock:
            call.is_running = False
            self.stuck -= call.is_cancelled
            self._replaced -= call.is_replaced
            return not call.is_replaced

    def _cancelled(self, call: _Call) -> None:
        with self._lock:
            call.is_cancelled = True
            if not call.is_running:
                return
            self.stuck += 1
            call.is_replaced = self._replaced < self._replacements
            self._replaced += call.is_replaced
        if call.is_replaced:
            self._start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if not call():
                return  # another thread has its place

    def close(self) -> None:
        """End each thread when the call it is in has returned."""
        for _ in range(self._count):
            self._calls.put(None)


class _Call:
    """One call: whether it runs, and whether its caller still waits."""

    __slots__ = ("is_cancelled", "is_replaced", "is_running")

    def __init__(self) -> None:
        self.is_running = False
        self.is_cancelled = False
        self.is_replaced = False
