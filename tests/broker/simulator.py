"""A broker without a world: a clock the test moves, logs that are lists, a journal that is a list of changes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipstream.broker import (
    Broker,
    BrokerConfig,
    Consumer,
    Delivery,
    Envelope,
    Placement,
    Publications,
    TopicOverrides,
)
from slipstream.broker.changes import Change
from slipstream.record import Record

_decode_change = msgspec.msgpack.Decoder(Change).decode


class ListLog:
    """The records of a partition, all in memory."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.start = 0

    def append(self, record: Record) -> None:
        self.records.append(record)

    def start_at(self, index: int, payload_bytes: int) -> None:
        assert len(self.records) == index

    def read(self, index: int) -> Record:
        return self.records[index]

    def index_of(self, offset: int) -> int | None:
        return next((i for i, record in enumerate(self.records) if record.offset == offset), None)

    def index_from(self, offset: int) -> int:
        return next((i for i, record in enumerate(self.records) if record.offset >= offset), len(self.records))

    def index_at(self, timestamp_ms: int) -> int:
        found = (i for i, record in enumerate(self.records) if record.timestamp_ms >= timestamp_ms)
        return next(found, len(self.records))

    def bytes_before(self, index: int) -> int:
        return sum(record.size for record in self.records[:index])


class Simulator:
    """Runs a broker and keeps its journal. Changes are written by `commit`; a crash loses what was not."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.config = config or BrokerConfig()
        self.now_ms = 1_000_000
        self.journal: list[bytes] = []
        self.snapshot: bytes | None = None
        self.snapshot_logs: dict[tuple[int, int], list[Record]] = {}
        self.delivered: list[Delivery] = []
        self._boot()

    def _boot(self) -> None:
        self.logs: dict[tuple[int, int], ListLog] = {}
        self.broker = Broker(self.config, self._open_log)
        if self.snapshot is not None:
            self.broker.restore(self.snapshot)
        self.broker.replay([_decode_change(change) for change in self.journal])
        self.broker.resume(self.now_ms)

    def _open_log(self, topic_id: int, topic: str, partition: int) -> ListLog:
        log = ListLog(list(self.snapshot_logs.get((topic_id, partition), [])))
        self.logs[topic_id, partition] = log
        return log

    def commit(self) -> None:
        """The journal takes everything so far, and what that makes visible is delivered."""
        effects = self.broker.effects
        while effects.changes or effects.deliveries or effects.publications:
            self.collect()
            self.journal += effects.changes
            publications = effects.publications
            effects.changes, effects.publications = [], Publications()
            self.broker.committed(publications, self.now_ms)

    def collect(self) -> list[Delivery]:
        """Takes what the broker wants delivered now."""
        effects = self.broker.effects
        new, effects.deliveries = effects.deliveries, []
        self.delivered += new
        for consumer in {delivery.consumer: None for delivery in new}:
            self.broker.sent(self.now_ms, consumer)
        return new

    def crash(self) -> None:
        """Starts again from the journal; consumers are gone, and so is what was not committed."""
        self._boot()

    def checkpoint(self) -> None:
        """As the store does: a snapshot with everything committed, and an empty journal behind it."""
        self.commit()
        self.snapshot = self.broker.snapshot()
        self.snapshot_logs = {key: list(log.records) for key, log in self.logs.items()}
        self.journal = []

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.broker.tick(self.now_ms)
        self.commit()

    # Commands, each committed at once: what a test of a rule wants.

    def create(self, name: str = "t", partitions: int = 1, **config: object) -> None:
        self.broker.create_topic(self.now_ms, name, partitions, msgspec.convert(config, TopicOverrides))
        self.commit()

    def produce(
        self, value: bytes = b"v", topic: str = "t", key: bytes = b"", envelope: Mapping[str, object] | None = None
    ) -> Placement:
        body = msgspec.convert(envelope, Envelope) if envelope else None
        placement = self.broker.produce(self.now_ms, topic, key, value, body)
        self.commit()
        return placement

    def attach(
        self, owner: str = "o", group: str = "g", topic: str = "t", lease_ms: int = 0, credit: int | None = None
    ) -> Consumer:
        consumer = self.broker.attach(self.now_ms, topic, group, owner, lease_ms, credit, sink=owner)
        self.commit()
        return consumer

    def take(self) -> list[tuple[int, int, str]]:
        """What was delivered since the last time: (offset, attempts, owner)."""
        taken = [(d.record.offset, d.attempts, d.consumer.owner) for d in self.delivered]
        self.delivered = []
        return taken

    def ack(self, offset: int, owner: str = "o", group: str = "g", topic: str = "t", partition: int = 0) -> None:
        self.broker.ack(self.now_ms, topic, group, partition, offset, owner)
        self.commit()

    def nack(
        self,
        offset: int,
        owner: str = "o",
        reason: str = "",
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
    ) -> None:
        self.broker.nack(self.now_ms, topic, group, partition, offset, owner, reason)
        self.commit()
