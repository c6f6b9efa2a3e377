"""Ctrl-C at a place of our choosing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Interrupt(AbstractContextManager["Interrupt"]):
    """The first Ctrl-C ends the waiting for more and nothing else, so that what was taken is counted and finished. It
    may also come in the very moment when the last item does. A second one ends everything.
    """

    def __init__(self) -> None:
        self.asked = False
        self._waits = False
        self._hears = threading.current_thread() is threading.main_thread()
        """Python tells no other thread, nor lets it ask to be told."""

    def among(self, items: Iterable[T]) -> Iterator[T]:
        """The items, until there are no more or somebody asks to stop."""
        iterator = iter(items)
        try:
            while not self.asked:
                self._waits = True
                item = next(iterator)
                self._waits = False
                yield item
        except StopIteration:
            self._waits = False
        except KeyboardInterrupt:
            self.asked = True

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        if self.asked or self._waits:
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> Self:
        if self._hears:
            self._before: Any = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hears:
            signal.signal(signal.SIGINT, self._before)
