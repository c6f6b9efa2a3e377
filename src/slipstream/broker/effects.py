"""What a command asks the outside to do. Whoever runs the broker takes these after each command."""

from __future__ import annotations

import msgspec

from slipstream.broker.envelope import Meta
from slipstream.broker.group import Consumer
from slipstream.broker.idempotency import Operation
from slipstream.broker.topic import Partition
from slipstream.record import Record


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Hand this message to that consumer."""

    consumer: Consumer
    partition: int
    record: Record
    meta: Meta
    attempts: int
    last_error: str


class Publications:
    """Messages that become visible once their changes are in the journal."""

    __slots__ = ("ends", "operations")

    def __init__(self) -> None:
        self.ends: dict[Partition, int] = {}
        """Partition → how many of its records may then be shown."""
        self.operations: list[Operation] = []
        """The produces among them that have an idempotency key, and are then done."""

    def __bool__(self) -> bool:
        return bool(self.ends or self.operations)  # a batch may have found all its messages stored before


class Effects:
    """Collected by the broker, emptied by whoever runs it."""

    __slots__ = ("batched", "changes", "deliveries", "ended", "publications")

    def __init__(self) -> None:
        self.changes: list[bytes] = []
        """To be written to the journal, in this order, before the command is answered."""
        self.batched = 0
        """How many messages share a change with one before them: to apply it again takes as long for each."""
        self.publications = Publications()
        """To be handed back to `Broker.committed` when those changes are safe."""
        self.deliveries: list[Delivery] = []
        """To be sent now: what they announce is already in the journal."""
        self.ended: list[Consumer] = []
        """To be told that their group or topic is no more."""
