"""Whether a slip that came with a message makes sense. Whoever may publish can have written it, and what cannot be
acted upon would come again for ever: it is refused where it comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from slipstream.bus import InvalidArgument
from slipstream.bus.names import check_name
from slipstream.slip import hints
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
_undo_records = msgspec.json.Decoder(list[tuple[str, str]])
_NUMBERS = (hints.DEADLINE_MS, hints.NOT_BEFORE, hints.RUN)


def receive(data: bytes) -> Event:
    """An event from outside. Raises Malformed."""
    event = decode(data)
    # Counting is fast, and hardly any event has so many.
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and _is_deeper(event.payload, DEPTH_MAX):
        raise Malformed(f"this is no event: its payload nests deeper than {DEPTH_MAX}")
    envelope = event.envelope
    steps = envelope.routing_slip
    try:
        if envelope.reply_to:
            check_name("replyTo", envelope.reply_to)
        _check(steps)
    except (InvalidArgument, ValueError, RecursionError) as error:
        raise Malformed(f"the slip of {envelope.correlation_id:.80} makes no sense: {error}") from error
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


def _check(steps: Sequence[RoutingStep]) -> None:
    """Raises ValueError."""
    if len({step.id for step in steps}) != len(steps):
        raise ValueError("a step is there twice")
    undoing = False
    for number, step in enumerate(steps):
        if max(step.attempt or 0, step.max_attempts or 0) > NUMBER_MAX:
            raise ValueError(f"step {step.id:.80} has an attempt that is no number of attempts")
        if not step.attributes:
            is_undo = False
        else:
            is_undo = hints.UNDOES in step.attributes
            _check_hints(step.id, step.attributes)
        if undoing and not is_undo:
            raise ValueError(f"step {step.id:.80} comes after one that undoes")
        if is_undo and number == 0:
            raise ValueError("there are only steps that undo")
        undoing = is_undo


def _check_hints(step_id: str, attributes: dict[str, str]) -> None:
    name = ""
    try:
        for name in _NUMBERS:
            if name in attributes:
                _check_number(int(attributes[name]))
        if (name := hints.PARENT) in attributes:
            decode_parent(attributes[name])
        if (name := hints.UNDO_BRANCHES) in attributes:
            _undo_records.decode(attributes[name])
        if (name := hints.BRANCHES) in attributes:
            branches = decode_branches(attributes[name])
            _check_number(len(branches), 1)
            for steps in branches.values():
                _check(steps)
            if (name := hints.JOIN) in attributes and attributes[name] not in {"all", "any"}:
                int(attributes[name])
    except (ValueError, msgspec.MsgspecError) as error:
        raise ValueError(f"{name} of step {step_id:.80} is {attributes[name]!r:.80}: {error}") from error


def _check_number(number: int, least: int = 0) -> None:
    if not least <= number <= NUMBER_MAX:
        raise ValueError(f"{number:.3g} is out of all bounds")


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
