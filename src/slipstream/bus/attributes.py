"""Attributes: a map of strings that travels with the data, and always says what the message belongs to.

`correlationId` ties together everything that follows from one event, `traceparent` (W3C Trace Context) places it in a
trace. Whoever publishes while handling a message continues both without doing anything about it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TypeAlias

from slipstream.bus.errors import InvalidArgument
from slipstream.handling import HANDLED
from slipstream.spans import active_span

CORRELATION_ID = "correlationId"
TRACEPARENT = "traceparent"

AttributeValue: TypeAlias = str | int | float | bool | None
Attributes: TypeAlias = Mapping[str, AttributeValue]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})")


def normalize(given: Attributes | None) -> dict[str, str]:
    """As strings, with what is always there; names stay as they are."""
    attributes: dict[str, str] = {}
    if given:
        for name, value in given.items():
            if type(value) is str and type(name) is str and name and name.isascii() and value.isascii():
                attributes[name] = value
            elif value is not None:
                attributes[_name(name)] = encodable(f"attribute {name!r:.80}", _text(name, value))
    handled = HANDLED.get()
    if CORRELATION_ID not in attributes:
        attributes[CORRELATION_ID] = (handled or {}).get(CORRELATION_ID) or _noise(16)
    if TRACEPARENT not in attributes:
        attributes[TRACEPARENT] = active_span() or _continued(handled)
    return attributes


def traceparent_here() -> str:
    """Where in a trace what is asked of others now belongs; "" where there is none."""
    handled = HANDLED.get()
    return active_span() or (_continued(handled) if handled and handled.get(TRACEPARENT) else "")


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"the name of an attribute must be text, and not empty: {name!r}")
    return encodable("the name of an attribute", str(name))


def encodable(what: str, text: str) -> str:
    """Half of a surrogate pair cannot be sent by any engine: it is refused here, to who gave it, and not on the way."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} cannot be sent as UTF-8: {error}; mend it where it was decoded") from error
    return text


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            kind = type(value).__name__
            raise InvalidArgument(f"attribute {name} is {kind}: attributes are text, numbers, True or False")


def _continued(handled: dict[str, str] | None) -> str:
    """The next span of the trace that the handled message is in, or the first of a new one."""
    parent = _TRACEPARENT.fullmatch((handled or {}).get(TRACEPARENT, ""))
    if parent is None:
        return f"00-{_noise(16)}-{_noise(8)}-01"
    trace_id, flags = parent.groups()
    return f"00-{trace_id}-{_noise(8)}-{flags}"


_stock = b""


def _noise(size: int) -> str:
    """Asked of the system by the kilobyte: a call each time was a tenth of a publish."""
    global _stock  # noqa: PLW0603 - one for the process
    if len(_stock) < size:
        _stock = os.urandom(4096)
    taken, _stock = _stock[:size], _stock[size:]
    return taken.hex()


def _forget_noise() -> None:
    """A child would draw the same numbers as its parent."""
    global _stock  # noqa: PLW0603
    _stock = b""


os.register_at_fork(after_in_child=_forget_noise)
