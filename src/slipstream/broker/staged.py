"""What a batch will store in one topic, put together before anything is stored."""

from __future__ import annotations

from slipstream.broker.idempotency import Identity
from slipstream.broker.topic import Partition, Topic
from slipstream.record import Record


class StagedBatch:
    """Records with the offsets they will have, if nothing is wrong with any of them."""

    __slots__ = ("deadlines", "keys", "messages", "next_offset", "partitions", "sizes", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.next_offset = topic.next_offset
        self.messages: list[tuple[int, Record]] = []
        """(partition, record), in the order of their offsets."""
        self.partitions: dict[Partition, list[Record]] = {}
        """The same by partition."""
        self.sizes: dict[Partition, int] = {}
        """And their key and value bytes, once it is known that there is room for them."""
        self.deadlines: list[tuple[int, Partition, int, int]] = []
        """(deadline, partition, which of its records, offset)"""
        self.keys: list[tuple[Identity, int, int]] = []
        """(idempotency key, partition, offset)"""
