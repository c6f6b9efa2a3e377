"""What can go wrong with slips, as exceptions; and what a step may raise to say more than "it failed"."""

from __future__ import annotations


class InvalidSlip(ValueError):
    """What was asked for makes no sense; the reason says what would."""


class NothingKept(InvalidSlip):
    """The store knows nothing of this message: it is another's, or it is too old."""


class RunAgain(InvalidSlip):
    """The message was run again since, by somebody else or by the same who asks twice."""


class StepFailed(Exception):
    """The step failed, with a code that others can act upon.

    Example:
        raise StepFailed("card_declined", "the bank said no", retryable=False)
    """

    def __init__(self, code: str, message: str = "", *, retryable: bool = True) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.retryable = retryable


class Skip(Exception):
    """There is nothing to do: the step is skipped, and the message goes on.

    Example:
        raise Skip("no memory for guests")
    """


class Pause(Exception):
    """What the step depends on is down: nobody tries the step for a while, for any message. It costs no attempt.

    Example:
        raise Pause("the bank is away", seconds=60)
    """

    def __init__(self, reason: str = "", *, seconds: float = 60.0) -> None:
        super().__init__(reason)
        if not 0 < seconds < float("inf"):
            raise InvalidSlip(f"seconds={seconds!r}: a pause has a length, and an end")
        self.seconds = seconds
