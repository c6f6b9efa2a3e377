"""How a subscription works: how much at a time, how long, how often, and where to in the end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from slipstream.bus.errors import InvalidArgument
from slipstream.outcome import Duration

SECONDS_MAX = 1e10
"""Some three hundred years: what engines count in milliseconds or nanoseconds has room for it."""

FACTOR_MAX = 1_000
"""To the power of 64 it is still a number; see `Backoff.pause`."""


def seconds(duration: Duration) -> float:
    """Raises InvalidArgument for what is no duration: it would be found by the engine, with a message in hand."""
    if isinstance(duration, dt.timedelta):
        return seconds(duration.total_seconds())
    if isinstance(duration, int | float) and 0 <= duration <= SECONDS_MAX:  # not NaN, either
        return float(duration)
    raise InvalidArgument(f"a duration is a number of seconds, or a timedelta, and not negative: {duration!r:.80}")


class Backoff(msgspec.Struct, frozen=True):
    """The pauses between the attempts at a message: `first`, then `factor` times as long, up to `longest`.

    Example:
        Backoff(first=1, longest=60)  # 1, 2, 4, 8, 16, 32, 60, 60 … seconds
    """

    first: Duration = 1.0
    longest: Duration = 60.0
    factor: float = 2.0

    def pause(self, failures: int) -> float:
        """In seconds, after so many failed attempts, counted from 1."""
        # 2**64 seconds are longer than anything: a larger power only costs time, and then overflows.
        return min(seconds(self.first) * self.factor ** min(failures - 1, 64), seconds(self.longest))


class SubscribeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The same meaning on every driver. Durations are seconds, or `timedelta`.

    Example:
        SubscribeOptions(max_in_flight=8, ack_deadline=60, max_deliver=3)
    """

    max_in_flight: int = 64
    """Messages in the hands of this subscriber at a time: so many handlers run, and no more is taken from the engine.
    With 1 they are handled one after the other, in order."""
    ack_deadline: Duration = 30.0
    """How long the engine waits for a consumer that has died before it gives its message to another. While a handler
    runs, the time is extended for it."""
    extend_for: Duration = 3600.0
    """How long it is extended for at most. 0: never, except by `message.extend()`; a handler that takes longer has lost
    its message and is cancelled."""
    backoff: Backoff | Sequence[float] = Backoff()
    """The pause before each retry; or the pauses, of which the last is repeated."""
    max_deliver: int = 5
    """Attempts, after which a message goes to the dead letters; 0 for no limit."""
    dead_letter_topic: str | None = None
    """Where to; by default `<topic>.DLQ`."""

    def pause(self, failures: int) -> float:
        """In seconds, after so many failed attempts, counted from 1."""
        if isinstance(self.backoff, Backoff):
            return self.backoff.pause(failures)
        return seconds(self.backoff[min(failures, len(self.backoff)) - 1])

    def is_exhausted(self, attempt: int) -> bool:
        """Whether there is none after this attempt."""
        return 0 < self.max_deliver <= attempt

    def check(self) -> None:
        """Raises InvalidArgument for what could not work."""
        if not _is_count(self.max_in_flight, 1):
            raise InvalidArgument("max_in_flight must be a whole number, and at least 1")
        if not _is_count(self.max_deliver, 0):
            raise InvalidArgument("max_deliver must be a whole number, at least 1, or 0 for no limit")
        if seconds(self.ack_deadline) < 0.01:
            raise InvalidArgument("ack_deadline must be at least 0.01 seconds")
        seconds(self.extend_for)
        if isinstance(self.backoff, Backoff):
            seconds(self.backoff.first)
            seconds(self.backoff.longest)
            if not 1 <= self.backoff.factor <= FACTOR_MAX:  # nor NaN
                raise InvalidArgument(f"the factor of a backoff must be 1 to {FACTOR_MAX}")
        elif not isinstance(self.backoff, Sequence) or not self.backoff:
            raise InvalidArgument("backoff must be a Backoff, or a list of at least one pause in seconds")
        else:
            for pause in self.backoff:
                seconds(pause)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and value >= least


class OptionFields(TypedDict, total=False):
    """The same, for `subscribe(…, max_in_flight=8)`."""

    max_in_flight: int
    ack_deadline: Duration
    extend_for: Duration
    backoff: Backoff | Sequence[float]
    max_deliver: int
    dead_letter_topic: str | None
