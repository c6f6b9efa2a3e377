"""Dead letters: finding them by what happened to them, and sending them back at a bearable rate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

import msgspec

from slipstream.broker import (
    DEAD_LETTER_PREFIX,
    Broker,
    BrokerError,
    NotFound,
    Overloaded,
    Partition,
    Topic,
    decode_meta,
    group_addressed,
)
from slipstream.engine.engine import Engine
from slipstream.engine.reading import read_slice
from slipstream.record import LogUnreadable, Record
from slipstream.store import LogSlice

log = logging.getLogger(__name__)

SCAN_RECORDS = 1_000
SCAN_BYTES = 4 << 20
CHUNK = 100
"""Dead letters sent back by one command: they share a commit, and others get their turn in between."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters; all conditions must hold."""

    group: str | None = None
    error: str | None = None
    """Part of the last error or of the reason, in any case."""
    since_ms: int | None = None
    until_ms: int | None = None
    places: frozenset[tuple[int, int]] | None = None
    """(partition, offset) in the dead-letter topic."""

    def matches(self, partition: int, record: Record) -> bool:
        if self.places is not None and (partition, record.offset) not in self.places:
            return False
        envelope = decode_meta(record.meta).envelope
        letter = envelope.dlq if envelope is not None else None
        if letter is None:
            return False
        if self.group is not None and letter.group != self.group:
            return False
        if self.since_ms is not None and letter.routed_at_ms < self.since_ms:
            return False
        if self.until_ms is not None and letter.routed_at_ms >= self.until_ms:
            return False
        wanted = self.error.lower() if self.error is not None else ""
        return wanted in letter.last_error.lower() or wanted in letter.reason.lower()


def dead_letter_topic(engine: Engine, name: str) -> Topic | None:
    """The dead letters of a topic, by its name or theirs; None if it has none yet."""
    topics = engine.broker.state.topics
    dead = topics.get(name if name.startswith(DEAD_LETTER_PREFIX) else DEAD_LETTER_PREFIX + name)
    if dead is None and name not in topics:
        raise NotFound(f"there is no topic {name}, and no dead letters of it")
    return dead


def is_redriven(partition: Partition, index: int) -> bool:
    return partition.redriven is not None and index in partition.redriven


async def scan(engine: Engine, partition: Partition, first: int = 0) -> AsyncIterator[tuple[int, Record]]:
    """Every record from index `first` to where the log ends now, with its index."""
    end = partition.committed
    position = max(first, partition.first_index)
    while position < end:
        stop = min(end, position + SCAN_RECORDS)

        def take(position: int = position, stop: int = stop) -> LogSlice:
            start = max(position, partition.first_index)  # retention may have passed by
            return engine.slice(partition, start, max(start, stop), SCAN_BYTES)

        taken = await read_slice(take, lambda found: (found.first_index, found.records()))
        position, records = taken
        for record in records:
            yield position, record
            position += 1
        if not records:
            position = stop


class Redrive:
    """Sends the selected dead letters of one topic back; started once, and cancelled or left to finish.

    Each is sent back at most once, ever: that it was is journalled together with the message it became. So a redrive
    that was cancelled, or ended with the process, is simply started again.
    """

    def __init__(
        self,
        engine: Engine,
        topic: Topic | None,
        selection: Selection,
        *,
        to: str = "",
        all_groups: bool = False,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> None:
        self.engine = engine
        self.topic = topic
        self.selection = selection
        self.to = to
        self.all_groups = all_groups
        """Every group of the topic gets the messages, not only the group that each failed for."""
        self.rate = rate
        self.limit = limit
        self.dry_run = dry_run
        self.scanned = 0
        self.matched = 0
        self.redriven = 0
        self.skipped = 0
        self.without_group = 0
        """Matched and not sent, because the group they failed for is gone."""
        self._next_s = 0.0

    async def run(self) -> None:
        """Raises BrokerError or LogUnreadable where it cannot go on; what was sent back stays sent back."""
        self._next_s = asyncio.get_running_loop().time()
        for partition in self.topic.partitions if self.topic is not None else ():
            chosen: list[int] = []
            async for index, record in scan(self.engine, partition):
                self.scanned += 1
                if not self.selection.matches(partition.number, record):
                    continue
                self.matched += 1
                if is_redriven(partition, index):
                    self.skipped += 1
                    continue
                if self._lacks_group(record):
                    self.without_group += 1
                    continue
                chosen.append(index)
                if len(chosen) >= self._chunk():
                    await self._send(partition, chosen)
                    chosen = []
                if self._enough(len(chosen)):
                    break
            await self._send(partition, chosen)
            if self._enough():
                return

    def _lacks_group(self, record: Record) -> bool:
        envelope = decode_meta(record.meta).envelope
        letter = envelope.dlq if envelope is not None else None
        if letter is None:
            return False
        topic = self.engine.broker.state.topics.get(self.to or letter.original_topic)
        if topic is None:
            return False  # the redrive fails on it, and says so
        group = group_addressed(letter, topic, all_groups=self.all_groups)
        return bool(group) and group not in topic.groups

    def _enough(self, more: int = 0) -> bool:
        return self.limit is not None and self.redriven + more >= self.limit

    def _chunk(self) -> int:
        """With a rate, about ten commands a second."""
        return CHUNK if self.rate is None else max(1, min(CHUNK, int(self.rate / 10)))

    async def _send(self, partition: Partition, indexes: list[int]) -> None:
        if self.dry_run:
            self.redriven += len(indexes)
            return
        left = list(indexes)
        while left:
            await self._keep_rate()
            waiting = len(left)
            try:
                self.engine.check_takes_messages()
                await self.engine.perform(lambda broker, now_ms: self._redrive(broker, now_ms, partition, left))
            except Overloaded as error:
                await asyncio.sleep(error.retry_after_ms / 1000)
            if self.rate is not None:
                self._next_s += (waiting - len(left)) / self.rate

    async def _keep_rate(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_s:
            await asyncio.sleep(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s)

    def _redrive(self, broker: Broker, now_ms: int, partition: Partition, left: list[int]) -> None:
        """Takes from `left` what it has done. Raises only if not a single one could be: a command that raises has
        changed nothing, and what the others changed would not be written until somebody else comes by."""
        done = 0
        while left:
            if left[0] < partition.first_index:
                del left[0]  # retention was faster
                continue
            try:
                placement = broker.intake.redrive(now_ms, partition, left[0], self.to, all_groups=self.all_groups)
            except BrokerError:
                if not done:
                    raise
                return  # the next command finds it first
            del left[0]
            done += 1
            if placement is None:
                self.skipped += 1
            else:
                self.redriven += 1


class RedriveTask:
    """A redrive under way, or what became of it."""

    def __init__(self, task_id: str, redrive: Redrive, topic: str, started_ms: int) -> None:
        self.id = task_id
        self.topic = topic
        """As it was asked for."""
        self.redrive = redrive
        self.started_ms = started_ms
        self.ended_ms: int | None = None
        self.error = ""
        self._task = asyncio.create_task(self._run(), name=f"redrive {task_id}")
        self._task.add_done_callback(self._note_end)  # one that is cancelled at once never runs

    @property
    def running(self) -> bool:
        return self.ended_ms is None

    @property
    def cancelled(self) -> bool:
        return self._task.cancelled()

    async def cancel(self) -> None:
        """Returns when nothing more is sent."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def finished(self) -> None:
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await self.redrive.run()
        except (BrokerError, LogUnreadable) as error:
            self.error = str(error)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            log.exception("redrive %s failed", self.id)

    def _note_end(self, _: asyncio.Task[None]) -> None:
        self.ended_ms = self.redrive.engine.now_ms()


class Redrives:
    """Those of this process: a repeat after a restart does what is left."""

    KEPT = 100

    def __init__(self, engine: Engine, running_max: int = 16) -> None:
        self._engine = engine
        self._running_max = running_max
        self._tasks: dict[str, RedriveTask] = {}
        self._count = 0

    def start(self, redrive: Redrive, topic: str = "") -> RedriveTask:
        running = sum(task.running for task in self._tasks.values())
        if running >= self._running_max:
            raise Overloaded(f"{running} redrives are under way (max_redrives): wait for one to end", 1_000)
        now_ms = self._engine.now_ms()
        self._count += 1
        task = RedriveTask(f"{now_ms:x}-{self._count}", redrive, topic, now_ms)
        self._tasks[task.id] = task
        ended = [task_id for task_id, each in self._tasks.items() if not each.running]
        for task_id in ended[: max(0, len(self._tasks) - self.KEPT)]:
            del self._tasks[task_id]
        return task

    def find(self, task_id: str) -> RedriveTask:
        task = self._tasks.get(task_id)
        if task is None:
            raise NotFound(f"there is no redrive {task_id}; one that ended with the process can be started again")
        return task

    def all(self) -> Iterable[RedriveTask]:
        return self._tasks.values()

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            if task.running:
                await task.cancel()
