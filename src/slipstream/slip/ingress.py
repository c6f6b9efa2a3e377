"""Where messages begin."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Any

from slipstream.bus import Bus
from slipstream.slip import clock
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Envelope, Event, Malformed, encode
from slipstream.slip.incoming import receive
from slipstream.slip.routes.duration import seconds
from slipstream.slip.topics import INGRESS
from slipstream.slip.tracing import span_within


async def submit(
    bus: Bus,
    event_type: str,
    payload: Any,
    *,
    source: str,
    correlation_id: str = "",
    trace_id: str | None = None,
    reply_to: str | None = None,
    timeout: float | dt.timedelta | None = None,  # noqa: ASYNC109 - of the message, not of this call
) -> str:
    """Hands a new event to the router, and returns its correlationId when it is safe. With a `correlation_id` of your
    own, the same event may be submitted any number of times, and is routed once.

    Example:
        await submit(bus, "chat.message.v1", {"text": "!hello"}, source="ingress.twitch", timeout=60)
    """
    correlation_id = correlation_id or secrets.token_hex(16)
    timeout_at = None
    if timeout is not None:
        timeout_at = clock.now() + dt.timedelta(seconds=seconds("timeout", timeout))
    envelope = Envelope("1", source, correlation_id, trace_id=trace_id, reply_to=reply_to, timeout_at=timeout_at)
    data = _encoded(Event(envelope, event_type, payload))
    about = {"correlation_id": correlation_id, "type": event_type}
    with span_within("submit", trace_id, "producer", about):
        # Without an id for the engine: who submits it again, because there is a route now, means it.
        await bus.publish(INGRESS, data, {"correlationId": correlation_id}, key=correlation_id)
    return correlation_id


def _encoded(event: Event) -> bytes:
    """What the router could only bury is refused here, to who made it."""
    try:
        data = encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSlip(f"this payload cannot be sent as JSON: {error}") from error
    try:
        receive(data)
    except Malformed as error:
        raise InvalidSlip(f"nobody could route this event: {error}") from error
    return data
