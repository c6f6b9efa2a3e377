"""An event loop in a thread, for things that outlive one test or that run beside a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Use it as a context manager: what `enter` has opened is closed at the end, the last first."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def enter(self, thing: contextlib.AbstractAsyncContextManager[T]) -> T:
        opened = self.run(thing.__aenter__())
        self._opened.callback(lambda: self.run(thing.__aexit__(None, None, None)))
        return opened
