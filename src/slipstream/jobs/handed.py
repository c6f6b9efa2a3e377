"""A task as it was handed out: what of a message of the bus is needed to do it, in this process or in another."""

from __future__ import annotations

import msgspec

from slipstream.bus import Message
from slipstream.jobs.given_back import NOTHING, Past
from slipstream.jobs.publishing import CONTROL_MS
from slipstream.spans import is_looked_at


class Handed(msgspec.Struct, frozen=True):
    """Holds no lease. Whoever took the message from the bus keeps that, and settles it."""

    topic: str
    id: str
    """The engine's name for it, the same at every delivery."""
    key: str
    data: bytes
    attempt: int
    """1 the first time it is handed out."""
    published_s: float
    past: Past = NOTHING
    """The attempts at the download that are known from before it was handed out."""
    control_ms: int = 0
    """When operators had last decided about its job as it was published (`publishing.CONTROL_MS`)."""
    is_repeated: bool = False
    """Somebody has died of it, or with it, and the bus knows nothing of that: Spark begins a task again by itself."""
    traceparent: str = ""
    """Where it is in its trace; only where somebody looks at traces."""


def handed(message: Message, past: Past = NOTHING) -> Handed:
    control_ms = message.attributes.get(CONTROL_MS, "")
    return Handed(
        topic=message.topic,
        id=message.id,
        key=message.key,
        data=message.data,
        attempt=message.attempt,
        published_s=message.published_at.timestamp(),
        past=past,
        control_ms=int(control_ms) if control_ms.isascii() and control_ms.isdigit() and len(control_ms) < 19 else 0,
        traceparent=message.attributes.get("traceparent", "") if is_looked_at() else "",
    )
