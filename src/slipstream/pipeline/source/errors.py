"""What can go wrong between Spark and a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from slipstream.pipeline.source.range import Range


class ConnectorError(Exception):
    """Whatever the connector raises. Its text says what happened and what to do."""


class InvalidOption(ConnectorError, ValueError):
    """An option that is not there, or cannot be what it says."""


class Lost(msgspec.Struct, frozen=True):
    """Messages that were to be read and are gone."""

    topic: str
    partition: int
    start: int
    end: int | None
    """Behind the last that is gone; None where nobody knows."""
    why: str

    @property
    def story(self) -> str:
        """What happened, without what to do."""
        if self.end is None:
            gone = f"what was to be read from offset {self.start} on is gone"
        elif self.end - self.start == 1:
            gone = f"offset {self.start} is gone"
        else:
            gone = f"offsets {self.start} to {self.end - 1} are gone"
        return f"{self.topic}/{self.partition}: {gone}: {self.why}"


class DataLost(ConnectorError):
    """Raised for what is gone, unless it was said to go on without."""

    def __init__(self, lost: Lost) -> None:
        self.lost = lost
        super().__init__(f"{lost.story}. {ADVICE}")

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return DataLost, (self.lost,)


ADVICE = (
    "Set failOnDataLoss=false to go on with what is there, or begin again with a new checkpoint; so that it does not "
    "happen again, keep the messages longer (retention_ms, retention_bytes), or read more often"
)

REMOVED = "retention removed them before they were read"


def removed(asked: Range, earliest: int) -> Lost:
    """Of the range, what lies before `earliest`."""
    return Lost(asked.topic, asked.partition, asked.start, min(earliest, asked.end), REMOVED)


def replaced(asked: Range, incarnation: str) -> Lost:
    why = (
        f"the topic was deleted and created again (it was {asked.incarnation}, and is {incarnation})"
        if incarnation
        else "the topic was deleted"
    )
    return Lost(asked.topic, asked.partition, asked.start, None, why)
