"""What comes from outside, decoded. Whoever may publish can have written it; whether a slip makes sense, besides, is
asked of `sense`."""

from __future__ import annotations

from typing import Any

import msgspec

from slipstream.slip.control import Signal
from slipstream.slip.event import Event, Malformed, RoutingStep, decode

NUMBER_MAX = 10**15
"""Of milliseconds and attempts. More is no number that anybody meant, and cannot be kept."""
DEPTH_MAX = 200
"""Of lists and objects in each other: what is read at one place must be written at another, with more around it."""


class Parent(msgspec.Struct, frozen=True, rename="camel"):
    """Whom a branch belongs to."""

    correlation_id: str
    run: int
    step: str
    branch: str


decode_parent = msgspec.json.Decoder(Parent).decode
decode_branches = msgspec.json.Decoder(dict[str, tuple[RoutingStep, ...]]).decode
_signals = msgspec.json.Decoder(Signal)


def receive(data: bytes) -> Event:
    """An event from outside. Raises Malformed."""
    event = decode(data)
    # Counting is fast, and hardly any event has so many.
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and _is_deeper(event.payload, DEPTH_MAX):
        raise Malformed(f"this is no event: its payload nests deeper than {DEPTH_MAX}")
    return event


def receive_signal(data: bytes) -> Signal:
    """A word from outside. Raises Malformed."""
    try:
        signal = _signals.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"no signal: {error}") from error
    if _is_deeper(signal.data, DEPTH_MAX):
        raise Malformed(f"no signal: its data nests deeper than {DEPTH_MAX}")
    return signal


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    while level and depth >= 0:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        level = inner
        depth -= 1
    return bool(level)
