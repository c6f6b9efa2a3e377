"""What a handler may raise to say more than "it failed"."""

from __future__ import annotations


class Reject(Exception):
    """This message will never succeed: it goes straight to the dead letters.

    Example:
        raise Reject("no such customer")
    """


class Retry(Exception):
    """Not now: the message comes again after `delay_ms`, or when its retry policy says.

    Example:
        raise Retry("the bank is closed", delay_ms=60_000)
    """

    def __init__(self, reason: str = "", *, delay_ms: int | None = None) -> None:
        super().__init__(reason)
        self.delay_ms = delay_ms
