"""What comes from outside: decoded, and asked whether it makes sense. Whoever may publish can have written it, and what
decodes may still be impossible to follow: a topic that no engine takes, a number that is none. All that follows relies
on the answer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from slipstream.bus import InvalidArgument
from slipstream.bus.names import check_name
from slipstream.slip import hints
from slipstream.slip.control import Signal
from slipstream.slip.event import Envelope, Event, Malformed, RoutingStep, Status, decode
from slipstream.slip.slip import topic_of

NUMBER_MAX = 10**15
"""Of milliseconds and attempts. More is no number that anybody meant, and cannot be kept."""
DEPTH_MAX = 200
"""Of lists and objects in each other: what is read at one place must be written at another, with more around it."""

_signals = msgspec.json.Decoder(Signal)


def receive(data: bytes) -> Event:
    """An event whose slip can be followed. Raises Malformed."""
    event = decode(data)
    # Counting is fast, and hardly any event has so many.
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and _is_deeper(event.payload, DEPTH_MAX):
        raise Malformed(f"this is no event: its payload nests deeper than {DEPTH_MAX}")
    if problem := _why_not(event.envelope):
        raise Malformed(problem, event)
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


# Whether it makes sense


def _why_not(envelope: Envelope) -> str:
    """Why nobody could follow the slip, or answer to where the envelope says; "" if one can."""
    if envelope.reply_to and (problem := _name_problem(envelope.reply_to)):
        return f"replyTo: {problem}"
    return _why_not_steps(envelope.routing_slip)


def _why_not_steps(steps: Sequence[RoutingStep]) -> str:
    if len({step.id for step in steps}) != len(steps):
        ids = [step.id for step in steps]
        twice = next(step_id for step_id in ids if ids.count(step_id) > 1)
        return f"there are two steps {twice}: give one of them an id of its own"
    if steps and hints.UNDOES in steps[0].attributes:
        return f"step {steps[0].id} undoes {steps[0].attributes[hints.UNDOES]}, and nothing was done before it"
    undoing = False
    for step in steps:
        attributes = step.attributes
        if not attributes and not undoing and _is_plain(step.id, step.next_topic, step.attempt, step.max_attempts):
            continue
        if problem := why_not_step(step):
            return problem
        if undoing and hints.UNDOES not in attributes:
            return f"step {step.id} comes after one that undoes"
        undoing = hints.UNDOES in attributes
    return ""


def why_not_step(step: RoutingStep) -> str:
    """Why nobody could do this step; "" if one can."""
    if not step.id:
        return "a step needs an id"
    attributes = step.attributes
    is_sent = step.status is Status.PENDING and not (hints.WAIT in attributes or hints.BRANCHES in attributes)
    if is_sent and (problem := _name_problem(topic_of(step))):
        return f"step {step.id}: {problem}"
    if (step.attempt or 0) > NUMBER_MAX or (step.max_attempts or 0) > NUMBER_MAX:
        return f"step {step.id}: that is no number of attempts"
    return _why_not_attributes(step) if attributes else ""


def _why_not_attributes(step: RoutingStep) -> str:
    for name, text in step.attributes.items():
        is_right = _CHECKS.get(name)
        if is_right is not None and not is_right(text):
            return f"step {step.id}: {name} cannot be {text!r:.80}"
        if not name:
            return f"step {step.id}: an attribute needs a name"
    return ""


@functools.lru_cache(10_000)
def _is_plain(step_id: str, next_topic: str | None, attempt: int | None, max_attempts: int | None) -> bool:
    """Nothing is to be said about it, whatever its status. Kept: the same few are asked for at every hop."""
    step = RoutingStep(step_id, Status.PENDING, attempt=attempt, max_attempts=max_attempts, next_topic=next_topic)
    return not why_not_step(step)


@functools.lru_cache(10_000)
def _name_problem(topic: str) -> str:
    """Kept: the same few are asked for at every hop."""
    try:
        check_name("topic", topic)
    except InvalidArgument as error:
        return str(error)
    return ""


# Hints

_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _is(kind: Any) -> Callable[[str], bool]:
    decoder = msgspec.json.Decoder(kind)

    def decodes(text: str) -> bool:
        try:
            decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return False
        return True

    return decodes


_are_branches = _is(dict[str, tuple[RoutingStep, ...]])


def _can_be_branches(text: str) -> bool:
    if not _are_branches(text):
        return False
    branches = hints.decode_branches(text)
    return bool(branches) and not any(_why_not_steps(steps) for steps in branches.values())


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    hints.TIMEOUT_MS: _is_number,
    hints.NOT_BEFORE: _is_number,
    hints.DEADLINE_MS: _is_number,
    hints.RUN: _is_number,
    hints.ON_DEADLINE: lambda text: text in {"fail", "skip", "go on"},
    hints.JOIN: lambda text: text in {"all", "any"} or _is_number(text),
    hints.JOINED: _is(list[str]),
    hints.PARENT: _is(hints.Parent),
    hints.BRANCHES: _can_be_branches,
    hints.UNDO_BRANCHES: _is(list[tuple[str, str]]),
}
