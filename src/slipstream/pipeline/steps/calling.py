"""Calling the function: for all rows at once, and where that fails for halves of them, until the guilty are alone."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import pyarrow as pa

from slipstream import handlers
from slipstream.outcome import Reject, Retry
from slipstream.pipeline.steps.attempt import Attempt, Outcome
from slipstream.pipeline.steps.columns import given, outcomes
from slipstream.pipeline.steps.errors import AnswerRefused
from slipstream.slip.errors import Pause, Skip, StepFailed
from slipstream.slip.event import Status, StepError

log = logging.getLogger(__name__)

ALONE_MAX = 32
"""So many rows fail one by one, and none succeeds: then it is not the rows."""
NO_ANSWER = StepError("no_answer", "the function has returned no row for it", retryable=False)


class Calls:
    """Calls of a function for the rows of one batch."""

    def __init__(
        self, function: Callable[[Any], object], schema: pa.Schema | None = None, timeout_s: float | None = None
    ) -> None:
        self._function = function
        self._schema = schema
        self._timeout_s = timeout_s
        self._failed_alone = 0
        self._succeeded = False

    def outcomes(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        """One for each. Raises Pause, which is about no row."""
        try:
            found = self._call(attempts)
        except (Pause, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - also an exit, or a panic of a library: some row has failed of it
            return self._apart(attempts, error)
        self._succeeded = True
        return [outcome or Outcome(Status.ERROR, error=NO_ANSWER) for outcome in found]

    def _call(self, attempts: Sequence[Attempt]) -> list[Outcome | None]:
        batch = given(attempts, self._schema)
        with _in_time(self._timeout_s):
            answered = self._function(batch)
        return outcomes(attempts, batch, answered)

    def _apart(self, attempts: Sequence[Attempt], error: BaseException) -> list[Outcome]:
        found = failure(error)
        # What is said of a row, and is final, is said of no other.
        is_general = found.error is not None and found.error.retryable is True
        if len(attempts) == 1:
            self._failed_alone += is_general
            log.warning("a row of a step has failed: %s", sendable(handlers.reason(error)))
            return [found]
        if is_general and self._failed_alone >= ALONE_MAX and not self._succeeded:
            return [found] * len(attempts)
        half = len(attempts) // 2
        return self.outcomes(attempts[:half]) + self.outcomes(attempts[half:])


def failure(error: BaseException) -> Outcome:
    """What an exception of the function means for the one row that it was called with."""
    text = sendable(handlers.said(error))
    match error:
        case Skip():
            return Outcome(Status.SKIP, notes=text)
        case Reject():
            said = StepError("rejected", text, retryable=False)
        case Retry():
            said = StepError("retry", text, retryable=True)
        case StepFailed():
            message = sendable(error.message) if error.message else None
            said = StepError(sendable(error.code) or "failed", message, error.retryable is not False)
        case AnswerRefused():
            said = StepError("bad_answer", text, retryable=False)
        case _:
            said = StepError(type(error).__name__, text or None, retryable=True)
    return Outcome(Status.ERROR, error=said)


def sendable(said: object) -> str | None:
    """As text that can be sent: what a function says of itself may be anything, and half of a surrogate pair."""
    return None if said is None else str(said).encode(errors="replace").decode()


@contextlib.contextmanager
def _in_time(timeout_s: float | None) -> Iterator[None]:
    """By a signal, for a function that knows nothing of it can be stopped in no other way. What it calls outside of
    Python is not interrupted."""
    if timeout_s is None:
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise StepFailed("step_timeout", f"not done after {timeout_s:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
