"""What a handler may raise to say more than "it failed"."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeAlias

import msgspec

Duration: TypeAlias = float | dt.timedelta
"""Seconds, or a `timedelta`."""


class Reject(Exception):
    """This message will never succeed: it goes straight to the dead letters.

    Example:
        raise Reject("no such customer")
    """


class Undecodable(Reject, msgspec.ValidationError):
    """The payload of a message is not what its handler reads it as. No attempt would change that, so it is rejected."""


class Postpone(Exception):
    """The message was not attempted: it comes again after `delay_ms`, and this delivery is not counted.

    Example:
        raise Postpone("the host has no free connection", delay_ms=2_000)
    """

    def __init__(self, reason: str = "", *, delay_ms: int = 0) -> None:
        super().__init__(reason)
        self.delay_ms = delay_ms


class Retry(Exception):
    """A retry: of this message, where a handler raises it, or of all that fail, where a handler is registered with it.

    Raised, the message comes again after `delay_ms`, or when its retry policy says. As `retry=` of a handler it is
    that policy: the number of attempts, and the pause before the second one, which doubles up to `max_backoff`.

    Example:
        raise Retry("the bank is closed", delay_ms=60_000)

        @app.handler("orders", group="billing", retry=Retry(max_attempts=5, backoff=0.5))
        async def bill(message: Message) -> None: ...
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay_ms: int | None = None,
        delay: Duration | None = None,
        max_attempts: int | None = None,
        backoff: Duration | None = None,
        max_backoff: Duration | None = None,
    ) -> None:
        """Take durations in seconds or as `timedelta`; `max_attempts=0` means without limit."""
        super().__init__(reason)
        self.delay_ms = delay_ms if delay is None else _milliseconds(delay)
        self.max_attempts = max_attempts
        self.backoff_ms = None if backoff is None else _milliseconds(backoff)
        self.max_backoff_ms = None if max_backoff is None else _milliseconds(max_backoff)


def _milliseconds(duration: Duration) -> int:
    return round((duration.total_seconds() if isinstance(duration, dt.timedelta) else duration) * 1000)


def decode_json(payload: bytes, kind: Any) -> Any:
    """Decode the JSON payload of a message. Raises Undecodable."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.DecodeError as error:
        raise Undecodable(f"the payload cannot be decoded as {_name(kind)}: {error}") from error


def decode_text(payload: bytes) -> str:
    """Decode the UTF-8 payload of a message. Raises Undecodable."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"the payload cannot be decoded as UTF-8 text: {error}") from error


def _name(kind: Any) -> str:
    if kind is Any:
        return "JSON"
    return kind.__name__ if isinstance(kind, type) else str(kind)
