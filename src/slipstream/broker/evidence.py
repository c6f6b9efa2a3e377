"""What happened to a message, attempt by attempt: kept while it is in flight, and stored with its dead letter.

All of it is bounded: each text, the attempts of one message, and the memory of the broker. Of a message with more
attempts than are kept, the first and the newest stay, because they show how it began and how it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from slipstream.excerpt import excerpt

ATTEMPTS_KEPT = 25
"""Attempts kept of one message: as many as the default retry policy allows."""
MESSAGE_CHARS_MAX = 32_000
"""Maximum length of the texts of one message together, in characters."""
ERROR_CHARS_MAX = 1_000
TRACEBACK_CHARS_MAX = 8_000
BROKER_CHARS_MAX = 64 << 20
"""Maximum length of the texts of all messages in flight, in characters. Past that, attempts are kept without them."""
LEAN_ERROR_CHARS = 100
"""What is kept of an error past that limit."""
RECOUNT_EVERY = 1_000
"""At the limit, the sum is measured again after this many texts at the earliest: it reads all messages in flight."""


class Attempt(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One failed attempt at a message."""

    number: int
    """1 for the first."""
    started_ms: int
    """When the message was delivered; 0 where a journal of an older version does not say."""
    ended_ms: int
    """When the attempt failed, or its lease ran out."""
    owner: str
    error: str
    traceback: str = ""

    @property
    def chars(self) -> int:
        return len(self.error) + len(self.traceback)


Evidence: TypeAlias = tuple[Attempt, ...]
"""The attempts kept of one message, oldest first."""

NO_EVIDENCE: Evidence = ()


def attempt_of(
    number: int, started_ms: int, ended_ms: int, owner: str, error: str, traceback: str, budget: EvidenceBudget
) -> Attempt:
    """Return the attempt with its texts cut to what may be kept of them."""
    error, traceback = excerpt(error, ERROR_CHARS_MAX), excerpt(traceback, TRACEBACK_CHARS_MAX)
    if not budget.take(len(error) + len(traceback)):
        error, traceback = error[:LEAN_ERROR_CHARS], ""
    return Attempt(number, started_ms, ended_ms, owner, error, traceback)


def with_attempt(kept: Evidence, attempt: Attempt) -> Evidence:
    """Add an attempt. Only the first and the newest keep their traceback, and those between are dropped first."""
    attempts = list(kept)
    if len(attempts) > 1 and attempts[-1].traceback:
        attempts[-1] = replace(attempts[-1], traceback="")
    attempts.append(attempt)
    chars = sum(each.chars for each in attempts)
    while len(attempts) > 2 and (len(attempts) > ATTEMPTS_KEPT or chars > MESSAGE_CHARS_MAX):
        chars -= attempts.pop(1).chars
    return tuple(attempts)


class EvidenceBudget:
    """The limit on the texts of all messages in flight together.

    A message that is finished does not report here. So the sum only grows, and is measured again when it reaches the
    limit.
    """

    def __init__(self, measure: Callable[[], Iterable[Evidence]], chars_max: int = BROKER_CHARS_MAX) -> None:
        self._measure = measure
        self._chars_max = chars_max
        self._chars = 0
        self._taken = 0
        """Calls of `take` since the sum was measured."""

    def take(self, chars: int) -> bool:
        """Return whether texts of this length may be kept."""
        self._taken += 1
        if self._chars + chars > self._chars_max and self._taken >= RECOUNT_EVERY:
            self.recount()
        if self._chars + chars > self._chars_max:
            return False
        self._chars += chars
        return True

    def recount(self) -> None:
        self._chars = sum(attempt.chars for evidence in self._measure() for attempt in evidence)
        self._taken = 0
