"""A message as it lies in the log: what the broker and the store share."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One stored message.

    `meta` is whatever the broker wants kept beside the payload (envelope, routing, attributes), encoded by it;
    the store carries it and never looks inside.
    """

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    meta: bytes = b""

    @property
    def size(self) -> int:
        """What backpressure and retention count: the bytes the producer sent as key and value."""
        return len(self.key) + len(self.value)


class LogUnreadable(Exception):
    """A stored record cannot be read: what is damaged, and where."""
