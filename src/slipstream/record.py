"""A message as it lies in the log: what the broker and the store share."""

from __future__ import annotations

from collections.abc import Iterator

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


class Published(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """A message was stored: the one change in a journal frame that the store understands (see `broker.changes`)."""

    topic_id: int
    partition: int
    record: Record


class PublishedBatch(msgspec.Struct, array_like=True, tag=19, frozen=True):
    """Messages that were stored together, in the order of their offsets: one change, because encoding each on its own
    was a seventh of the cost of a batch."""

    topic_id: int
    messages: list[tuple[int, Record]]
    """(partition, record)"""

    def published(self) -> Iterator[Published]:
        for partition, record in self.messages:
            yield Published(self.topic_id, partition, record)


_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_published = msgspec.msgpack.Decoder(Published).decode
_decode_batch = msgspec.msgpack.Decoder(PublishedBatch).decode
_PUBLISHED = b"\x94\x02"
_PUBLISHED_BATCH = b"\x93\x13"
"""How they start when encoded: an array of four, or of three, the first of them the tag."""


def published_in(frame: bytes) -> Iterator[Published]:
    """The messages among the changes of a journal frame."""
    for change in _split(frame):
        start = bytes(memoryview(change)[:2])
        if start == _PUBLISHED:
            yield _decode_published(change)
        elif start == _PUBLISHED_BATCH:
            yield from _decode_batch(change).published()


class LogUnreadable(Exception):
    """A stored record cannot be read: what is damaged, and where."""
