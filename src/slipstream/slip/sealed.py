"""Events whose payload stays the text it came as: for who works at the slip of many, and leaves the payload to others.

Half of what it takes to decode and encode an event is its payload.
"""

from __future__ import annotations

import msgspec

from slipstream.slip.event import Event, Malformed
from slipstream.slip.incoming import DEPTH_MAX, receive

NOTHING = msgspec.Raw(b"null")


class SealedEvent(Event, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """As `Event`, and with the same bytes on the wire."""

    payload: msgspec.Raw = NOTHING


_decoder = msgspec.json.Decoder(SealedEvent)


def receive_sealed(data: bytes) -> SealedEvent:
    """Raises Malformed where it is no event. What `receive` asks besides, whether the payload is text and the slip one
    that can be followed, is left to who opens it, and to the router, to whom it goes."""
    try:
        event = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"this is no event: {error}") from error
    payload = memoryview(event.payload)
    if len(payload) > 2 * DEPTH_MAX and data.count(b"[") + data.count(b"{") > DEPTH_MAX:
        receive(data)  # hardly any has so many, and then they are counted there
    return event
