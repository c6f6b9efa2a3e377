"""What a handler may raise to say more than "it failed"."""

from __future__ import annotations

import datetime as dt


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

    def __init__(
        self, reason: str = "", *, delay_ms: int | None = None, delay: float | dt.timedelta | None = None
    ) -> None:
        """`delay` is in seconds, as in `message.nack` of the bus."""
        super().__init__(reason)
        if delay is not None:
            delay_ms = round((delay.total_seconds() if isinstance(delay, dt.timedelta) else delay) * 1000)
        self.delay_ms = delay_ms
