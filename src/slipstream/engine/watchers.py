"""Callbacks for what has happened in the broker: something new to read, a topic that changed."""

from __future__ import annotations

import enum
from collections.abc import Callable

from slipstream.broker import Partition


class Watch(enum.Enum):
    """What can be watched besides a single partition."""

    MESSAGES = enum.auto()
    """Any partition has something new to read."""
    TOPICS = enum.auto()
    """A topic was created, changed or deleted."""


class Watchers:
    """The callbacks of those who wait, each called once."""

    def __init__(self) -> None:
        self._callbacks: dict[Partition | Watch, dict[Callable[[], None], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def add(self, watched: Partition | Watch, callback: Callable[[], None]) -> None:
        self._callbacks.setdefault(watched, {})[callback] = None

    def remove(self, watched: Partition | Watch, callback: Callable[[], None]) -> None:
        callbacks = self._callbacks.get(watched, {})
        callbacks.pop(callback, None)
        if not callbacks:
            self._callbacks.pop(watched, None)

    def call(self, watched: Partition | Watch) -> None:
        for callback in self._callbacks.pop(watched, ()):
            callback()
