"""An engine on a loop of its own, driven step by step: what a test of the data directory starts, fills and breaks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from slipstream.broker import Broker, BrokerConfig, BrokerError, Delivery, Envelope, Placement, TopicOverrides
from slipstream.broker.idempotency import Status
from slipstream.broker.window import WINDOW_MAX
from slipstream.engine import Engine, EngineConfig, Storage, Timekeeper
from slipstream.record import Record
from slipstream.store import Disk, Store, StoreConfig
from slipstream.store.journal import journal_numbers, journal_path
from slipstream.store.log import Chunk

LONG_MS = 3_600_000

ResultT = TypeVar("ResultT")


class Answer:
    """A waiter: `error` and `done` say what it was told, and `times` how often."""

    def __init__(self) -> None:
        self.done = False
        self.error: BrokerError | None = None
        self.times = 0

    def settled(self, error: BrokerError | None) -> None:
        self.done, self.error = True, error
        self.times += 1


class Inbox:
    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

        self.has_ended = False

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries

    def ended(self) -> None:
        self.has_ended = True


class Running:
    """Recovers and starts at once; `with` closes it."""

    def __init__(self, store: Storage, broker: BrokerConfig | None = None, clock: Timekeeper | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        try:
            engine_config = EngineConfig(retention_check_ms=LONG_MS)
            self.engine = Engine(broker or BrokerConfig(lease_ms=LONG_MS), store, engine_config, clock)
            self.engine.recover()
            self.engine.start(self.loop)
        except BaseException:
            store.close()
            self.loop.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.run_until_complete(self.engine.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def until(self, ready: Callable[[], bool]) -> None:
        """Turns the loop until `ready`; the test's own time-out is the limit."""

        async def turn() -> None:
            while not ready():
                await asyncio.sleep(0.0005)

        self.loop.run_until_complete(asyncio.wait_for(turn(), 30))

    def settle(self, answer: Answer) -> None:
        self.until(lambda: answer.done)
        if answer.error is not None:
            raise answer.error

    def create(self, name: str, partitions: int = 1, **overrides: Any) -> None:
        answer = Answer()
        self.engine.create_topic(answer, name, partitions, TopicOverrides(**overrides))
        self.settle(answer)

    def send(self, topic: str, value: bytes, key: bytes = b"", envelope: Envelope | None = None) -> Answer:
        answer = Answer()
        self.engine.produce(answer, topic, key, value, envelope)
        return answer

    def produce(self, topic: str, value: bytes, key: bytes = b"", envelope: Envelope | None = None) -> Placement:
        answer = Answer()
        placement = self.engine.produce(answer, topic, key, value, envelope)
        self.settle(answer)
        return placement

    def take(self, topic: str, count: int, group: str = "g", owner: str = "o") -> list[Delivery]:
        """Reads until `count` messages have come."""
        inbox = Inbox()
        consumer = self.engine.attach(topic, group, owner, LONG_MS, inbox, prefetch=WINDOW_MAX)
        self.until(lambda: len(inbox.deliveries) >= count)
        self.engine.detach(consumer)
        return inbox.deliveries

    def ack(self, topic: str, delivery: Delivery, group: str = "g", owner: str = "o") -> None:
        answer = Answer()
        self.engine.ack(answer, topic, group, delivery.partition, delivery.record.offset, owner)
        self.settle(answer)

    def perform(self, command: Callable[[Broker, int], ResultT]) -> ResultT:
        return self.loop.run_until_complete(self.engine.perform(command))

    def delete(self, topic: str) -> None:
        self.loop.run_until_complete(self.engine.delete_topic(topic))

    def values(self, topic: str) -> list[list[bytes]]:
        """Everything that can be read, by partition."""
        return [
            [partition.log.read(index).value for index in range(partition.first_index, partition.count)]
            for partition in self.engine.broker.topic(topic).partitions
        ]


class Node(Running):
    """On a data directory."""

    def __init__(
        self,
        directory: Path,
        disk: Disk | None = None,
        broker: BrokerConfig | None = None,
        clock: Timekeeper | None = None,
        **config: Any,
    ) -> None:
        self.directory = directory
        self.store = Store(directory, StoreConfig(**config), disk)
        super().__init__(self.store, broker, clock)

    def compact(self) -> None:
        """Closes the journal file, and waits until it is in segments and read from there."""
        self.engine._flush()
        self.engine._rotate()
        self.until(lambda: self.store.compactor.backlog == 0 or self.store.compactor.error is not None)
        if self.store.compactor.error is not None:
            raise self.store.compactor.error
        self.until(lambda: not any(stored.sealed for stored in self.store._logs.values()))

    def trim(self, topic: str) -> None:
        """Retention, now; returns when the files are gone."""
        found = self.engine.broker.topic(topic)
        for number in range(len(found.partitions)):
            self.engine.trim(found, number)
        self.engine._flush()
        self.until(lambda: not self.engine._in_journal)
        self.await_files()

    def await_files(self) -> None:
        """Returns when what was given up so far is gone from the disk."""
        passed: list[bool] = []
        self.store.journal.barrier(lambda: passed.append(True))
        self.until(lambda: bool(passed))
        last = Chunk(0)
        last.records.append(Record(0, 0, b"", b""))
        self.store.compactor.discard(last)
        self.until(lambda: not last.records)  # it does one thing after the other

    def state(self) -> Any:
        """The snapshot as plain data, without what a restart may forget: when a group was last seen."""
        decoded = msgspec.msgpack.decode(self.engine.broker.snapshot(), strict=False)
        for topic in decoded[0]:
            for group in topic[6]:
                group[2] = 0
        for registry in (1, 2, 5):  # pages of producers', workers' and batches' keys: the last word on each counts
            operations = [op for page in decoded[registry] for op in msgspec.msgpack.decode(page)]
            decoded[registry] = sorted({tuple(op[0]): op for op in operations}.values())
        for operation in decoded[1] + decoded[5]:
            operation[1] = Status.COMMITTED  # what is on its way to the journal is there after a restart
        for unordered in (3, 4):  # deadlines, counts
            decoded[unordered] = sorted(decoded[unordered])
        return decoded


def image(node: Node, to: Path) -> Path:
    """The directory as a crash at this moment would leave it. Files do not come and go while it is copied."""
    node.await_files()
    shutil.copytree(node.directory, to)
    return to


def journals(directory: Path) -> list[Path]:
    return [journal_path(directory, number) for number in journal_numbers(directory)]


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)


def content(directory: Path) -> dict[str, bytes]:
    """Every file there is, but for the lock, which says who looked last."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "LOCK"
    }
