"""A task as it was handed out: what of a message of the bus is needed to do it, in this process or in another."""

from __future__ import annotations

import msgspec

from slipstream.bus import Message
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
    attempts: int = 0
    """At the download, that are known to have been made when it was handed out before."""
    is_repeated: bool = False
    """Somebody has died of it, or with it, and the bus knows nothing of that: Spark begins a task again by itself."""
    traceparent: str = ""
    """Where it is in its trace; only where somebody looks at traces."""


def handed(message: Message, attempts: int = 0) -> Handed:
    return Handed(
        topic=message.topic,
        id=message.id,
        key=message.key,
        data=message.data,
        attempt=message.attempt,
        published_s=message.published_at.timestamp(),
        attempts=attempts,
        traceparent=message.attributes.get("traceparent", "") if is_looked_at() else "",
    )
