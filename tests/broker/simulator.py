"""A broker without a world: a clock the test moves, logs that are lists, a journal that is a list of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


class At(NamedTuple):
    partition: int
    offset: int


class ListLog:
    """The records of a partition, all in memory."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.start = 0

    def append(self, record: Record) -> None:
        self.records.append(record)

    def extend(self, records: Sequence[Record]) -> None:
        self.records += records

    def start_at(self, index: int, payload_bytes: int) -> None:
        assert len(self.records) == index

    def read(self, index: int) -> Record:
        return self.records[index]

    def index_of(self, offset: int) -> int | None:
        return next((i for i, record in enumerate(self.records) if record.offset == offset), None)

    def offset_before(self, index: int) -> int:
        return self.read(index - 1).offset

    def index_from(self, offset: int) -> int:
        return next((i for i, record in enumerate(self.records) if record.offset >= offset), len(self.records))

    def index_at(self, timestamp_ms: int) -> int:
        found = (i for i, record in enumerate(self.records) if record.timestamp_ms >= timestamp_ms)
        return next(found, len(self.records))

    def bytes_before(self, index: int) -> int:
        return sum(record.size for record in self.records[:index])


class Pull:
    """The sink of somebody who takes what there is, once, and goes."""

    def __init__(self) -> None:
        self.taken: list[Delivery] = []


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
        self.broker = self.recovered(self.logs)
        self.broker.resume(self.now_ms)

    def recovered(self, logs: dict[tuple[int, int], ListLog]) -> Broker:
        """What a start now would find."""

        def open_log(topic_id: int, topic: str, partition: int) -> ListLog:
            log = ListLog(list(self.snapshot_logs.get((topic_id, partition), [])))
            logs[topic_id, partition] = log
            return log

        # The live broker opens logs through this as well, when it creates a topic.
        broker = Broker(self.config, open_log)
        if self.snapshot is not None:
            broker.restore(self.snapshot)
        broker.replay([_decode_change(change) for change in self.journal])
        return broker

    def commit(self) -> None:
        """The journal takes everything so far, and what that makes visible is delivered."""
        effects = self.broker.effects
        while effects.changes or effects.deliveries or effects.publications:
            self.collect()
            self.broker.committed(self.write(), self.now_ms)

    def collect(self) -> list[Delivery]:
        """Takes what the broker wants delivered now."""
        effects = self.broker.effects
        new, effects.deliveries = effects.deliveries, []
        self.delivered += new
        for consumer in {delivery.consumer: None for delivery in new}:
            if isinstance(consumer.sink, Pull):
                consumer.sink.taken += [delivery for delivery in new if delivery.consumer is consumer]
                self.broker.detach(self.now_ms, consumer)
            self.broker.sent(self.now_ms, consumer)
        return new

    def written(self, start: int, *kinds: type[object]) -> list[object]:
        """Changes of these kinds in the journal, from `start` on."""
        changes = [_decode_change(change) for change in self.journal[start:]]
        return [change for change in changes if isinstance(change, kinds)]

    def crash(self) -> None:
        """Starts again from the journal; consumers are gone, and so is what was not committed."""
        self._boot()

    def checkpoint(self) -> None:
        """As the store does: a snapshot with everything committed, and an empty journal behind it."""
        self.commit()
        self.rotate()

    def write(self) -> Publications:
        """The journal has everything so far, and the broker has yet to hear of it."""
        effects = self.broker.effects
        publications = effects.publications
        self.journal += effects.changes
        effects.changes, effects.publications = [], Publications()
        return publications

    def rotate(self) -> None:
        assert not self.broker.effects.changes, "everything in the snapshot has been written"
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
        self,
        value: bytes = b"v",
        topic: str = "t",
        key: bytes = b"",
        envelope: Mapping[str, object] | None = None,
        delay_ms: int | None = None,
    ) -> Placement:
        body = msgspec.convert(envelope, Envelope) if envelope else None
        due_ms = None if delay_ms is None else self.now_ms + delay_ms
        placement = self.broker.produce(self.now_ms, topic, key, value, body, deliver_at_ms=due_ms)
        self.commit()
        return placement

    def attach(
        self, owner: str = "o", group: str = "g", topic: str = "t", lease_ms: int = 0, credit: int | None = None
    ) -> Consumer:
        """A stream, or with `credit` somebody who takes so many and stays."""
        consumer = self.broker.attach(self.now_ms, topic, group, owner, lease_ms, credit, sink=owner)
        self.commit()
        return consumer

    def pull(
        self,
        owner: str = "o",
        group: str = "g",
        topic: str = "t",
        lease_ms: int = 0,
        credit: int = 10,
        window_bytes: int = 0,
    ) -> Consumer:
        """Somebody who goes with the first that comes, now or later."""
        consumer = self.broker.attach(self.now_ms, topic, group, owner, lease_ms, credit, Pull(), window_bytes)
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

    def ack_batch(self, places: list[At], owner: str = "o", group: str = "g", topic: str = "t") -> list[At]:
        """Those that were refused."""
        refused = self.broker.ack_batch(self.now_ms, topic, group, places, owner)
        self.commit()
        return [place for place, _ in refused]

    def nack(
        self,
        offset: int,
        owner: str = "o",
        reason: str = "",
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        delay_ms: int | None = None,
        retryable: bool = True,
        counted: bool = True,
    ) -> None:
        self.broker.nack(
            self.now_ms, topic, group, partition, offset, owner, reason, delay_ms, retryable, counted=counted
        )
        self.commit()
