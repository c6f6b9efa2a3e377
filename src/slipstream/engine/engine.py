"""Runs one broker on an event loop, with a real clock and a real disk, or with what takes their place."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from slipstream.broker import (
    Broker,
    BrokerConfig,
    BrokerError,
    Consumed,
    Consumer,
    Delivery,
    DiskLow,
    Envelope,
    NewMessage,
    NotFound,
    Overloaded,
    Part,
    Partition,
    Placement,
    Publications,
    RetryPolicy,
    RoutingDecision,
    Topic,
    TopicOverrides,
    Unavailable,
)
from slipstream.broker.changes import batched_in, decode_changes
from slipstream.engine.clock import Clock, Timekeeper, Timer
from slipstream.engine.condition import Condition, ConditionSource
from slipstream.engine.disk_room import DiskRoom
from slipstream.engine.expiry import expire
from slipstream.engine.storage import Storage
from slipstream.engine.waiter import Answer, Batch, Sink, Waiter
from slipstream.engine.watchers import Watch, Watchers
from slipstream.record import LogUnreadable
from slipstream.store import Damaged, Durability, LogSlice, TornTail

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

LAZY_S = 0.02
LAZY_CHANGES = 16_384
"""With durability off, changes go to the journal after this time or in this number."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    tick_ms: int = 10
    """The clock of leases and retries goes no finer than this."""
    retention_check_ms: int = 30_000


class Engine:
    """Commands come in on the loop's thread; a waiter is settled when its command is durable, never before.

    All that happens within one turn of the loop is one batch. While the journal syncs a batch, the next one fills.
    """

    def __init__(
        self,
        broker_config: BrokerConfig,
        store: Storage,
        config: EngineConfig | None = None,
        clock: Timekeeper | None = None,
    ) -> None:
        self.config = config or EngineConfig()
        self.store = store
        self.broker = Broker(broker_config, store.open_log)
        self.failure: Unavailable | None = None
        """Why nothing is written any more, until a restart."""
        self._disk_room = DiskRoom(store)
        self._refusal: BrokerError | None = None
        """Why producers are turned away in this turn of the loop."""
        self.torn: list[TornTail] = []
        self.condition_sources: list[ConditionSource] = [lambda: self._disk_room.condition]
        """Each is asked for what it cannot do now."""
        self._waits = store.config.durability is not Durability.OFF
        self._syncs = store.config.durability is Durability.ALWAYS
        self._waiters: list[Waiter] = []
        self._after: list[Callable[[], None]] = []
        self._in_journal: deque[Batch] = deque()
        self._unsubmitted: list[bytes] = []
        self._unsubmitted_batched = 0
        self._submit_timer: asyncio.TimerHandle | None = None
        self._flush_scheduled = False
        self._watchers = Watchers()
        self._topics_told = 0
        """The version of the topics that watchers were told of last."""
        self._closed = False
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._retention_timer: Timer | None = None
        self._rotated_at_ms = 0
        self._idle_timer: Timer | None = None
        self._changes_seen = 0
        self._clock: Timekeeper = clock or Clock()
        self._now_ms = 0
        self._loop: asyncio.AbstractEventLoop

    # Life

    def recover(self) -> None:
        """Brings back what the directory holds. Takes no event loop."""
        broker, store = self.broker, self.store
        try:
            if store.snapshot is not None:
                broker.restore(store.snapshot)
            for frame in store.frames():
                changes = decode_changes(frame)
                broker.replay(changes)
                store.count_batched(batched_in(changes))
        except (msgspec.DecodeError, LookupError, ValueError, LogUnreadable) as error:
            # The checksum is right and the content is not: written by a newer slipstream, or by a bug.
            reason = f"it cannot be applied ({type(error).__name__}: {error})"
            raise Damaged(*store.recovered_to, reason) from error
        store.keep_topics(set(broker.state.topics_by_id))
        for topic in broker.state.topics.values():
            for partition in topic.partitions:
                if partition.first_index:
                    store.drop_below(topic.id, partition.number, partition.first_index)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.torn = self.store.open(self, loop.call_soon_threadsafe)
        self.broker.resume(self.now_ms())
        self._rotated_at_ms = self.now_ms()
        self._schedule_flush()
        self._check_retention()
        self._check_idle()

    async def close(self) -> None:
        """Writes what is left and lets go of the data directory; waiters are settled first."""
        self._flush(everything=True)
        self._submit_now()
        self._closed = True
        # A pipelined request that starts when the one before it is answered would wait for ever.
        stopping = Unavailable("the broker is stopping")
        self.failure = self.failure or stopping
        for timer in (self._timer, self._retention_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        await self._loop.run_in_executor(None, self.store.close)
        # What the journal said last was scheduled from its thread before this is, so it has had its turn by then.
        said = asyncio.Event()
        self._loop.call_soon(said.set)
        await said.wait()
        if self.failure is stopping:
            self.failure = None  # nobody asks any more, and to have been stopped is no trouble

    def now_ms(self) -> int:
        """Wall-clock time that never goes back while the process runs."""
        self._now_ms = self._clock.now_ms()
        return self._now_ms

    # Commands: each raises BrokerError and changes nothing, or settles `waiter` later.

    def produce(
        self,
        waiter: Waiter,
        topic: str,
        key: bytes,
        value: bytes,
        envelope: Envelope | None = None,
        decision: RoutingDecision | None = None,
    ) -> Placement:
        if not self._flush_scheduled:
            self._schedule_flush()
        if self._refusal is not None:
            raise self._refused()
        placement = self.broker.produce(self._now_ms, topic, key, value, envelope, decision)
        self._waiters.append(waiter)
        return placement

    def ack(self, waiter: Waiter, topic: str, group: str, partition: int, offset: int, owner: str) -> None:
        if not self._flush_scheduled:
            self._schedule_flush()
        if (reason := self.failure or self._disk_room.stall) is not None:
            raise reason
        self.broker.ack(self._now_ms, topic, group, partition, offset, owner)
        self._waiters.append(waiter)

    def nack(
        self, waiter: Waiter, topic: str, group: str, partition: int, offset: int, owner: str, reason: str
    ) -> None:
        self._check_writable()
        self.broker.nack(self.now_ms(), topic, group, partition, offset, owner, reason)
        self._wait(waiter)

    def produce_batch(
        self, waiter: Waiter, topic: str, messages: Sequence[NewMessage], idempotency_key: str = ""
    ) -> list[Placement]:
        if not self._flush_scheduled:
            self._schedule_flush()
        if self._refusal is not None:
            raise self._refused()
        placements = self.broker.produce_batch(self._now_ms, topic, messages, idempotency_key)
        self._waiters.append(waiter)
        return placements

    def stage(
        self, writer: str, sequence: int, topic: str, messages: Sequence[NewMessage], size: int, attempt: str = ""
    ) -> Part:
        """Keeps messages for a commit. Nothing is written, so there is nothing to wait for."""
        self._check_writable()
        if (low := self._disk_room.low) is not None:
            raise self._count(low)
        part_id = secrets.token_hex(8)  # no other has it, not even one that a former process gave
        return self.broker.commits.stage(self.now_ms(), part_id, writer, sequence, topic, messages, size, attempt)

    def unstage(self, writer: str, sequence: int, staged: Sequence[str] | None) -> list[Part]:
        """Likewise. What is only in memory can be forgotten whatever became of the disk."""
        return self.broker.commits.unstage(self.now_ms(), writer, sequence, staged)

    def commit(
        self, waiter: Waiter, writer: str, sequence: int, staged: Sequence[str], consumed: Sequence[Consumed] = ()
    ) -> bool:
        """Also what was committed before is said only when it is safe: the first may still be on its way."""
        if not self._flush_scheduled:
            self._schedule_flush()
        if self._refusal is not None:
            raise self._refused()
        committed = self.broker.commits.commit(self._now_ms, writer, sequence, staged, consumed)
        self._waiters.append(waiter)
        return committed

    def run(self, waiter: Waiter, command: Callable[[Broker, int], ResultT]) -> ResultT:
        """Any other command: it gets the broker and the time, and what it returns holds once `waiter` is settled."""
        self._check_writable()
        result = command(self.broker, self.now_ms())
        self._wait(waiter)
        return result

    async def perform(self, command: Callable[[Broker, int], ResultT]) -> ResultT:
        """Run a command and wait until it holds."""
        answer = Answer()
        result = self.run(answer, command)
        await answer
        return result

    async def delete_topic(self, name: str) -> None:
        answer = Answer()
        self._remove(self.run(answer, lambda broker, _: broker.delete_topic(name)))
        await answer

    def _remove(self, topic: Topic) -> None:
        """Remove the files of a deleted topic once the journal has its deletion, and wake its readers."""
        self._after.append(lambda: self.store.delete_topic(topic.id))
        for partition in topic.partitions:
            self._watchers.call(partition)  # nothing will come

    def create_topic(
        self, waiter: Waiter, name: str, partitions: int = 1, overrides: TopicOverrides | None = None
    ) -> Topic:
        self._check_writable()
        topic = self.broker.create_topic(self.now_ms(), name, partitions, overrides)
        self._wait(waiter)
        return topic

    def attach(
        self,
        topic: str,
        group: str,
        owner: str,
        lease_ms: int,
        sink: Sink,
        credit: int | None = None,
        window_bytes: int = 0,
        prefetch: int = 0,
        retry: RetryPolicy | None = None,
    ) -> Consumer:
        """Attach a stream, or with `credit` a pull of so many messages and no more than `window_bytes`."""
        self._check_writable()
        consumer = self.broker.attach(
            self.now_ms(), topic, group, owner, lease_ms, credit, sink, window_bytes, prefetch, retry
        )
        self._schedule_flush()
        return consumer

    def check_there(self, topic: Topic) -> None:
        """For who has waited since it was found: a deleted one has no log any more. Raises NotFound."""
        if self.broker.state.topics_by_id.get(topic.id) is not topic:
            raise NotFound(f"{topic.name} was deleted meanwhile")

    def slice(self, partition: Partition, first: int, end: int, max_bytes: int) -> LogSlice:
        """Records of a partition, to be read in another thread."""
        self.check_there(partition.topic)
        return self.store.log(partition.topic.id, partition.number).slice(first, end, max_bytes)

    def watch(self, watched: Partition | Watch, callback: Callable[[], None]) -> None:
        """Call back, once, when the partition has something new to read, or what else is watched has happened."""
        self._watchers.add(watched, callback)

    def unwatch(self, watched: Partition | Watch, callback: Callable[[], None]) -> None:
        self._watchers.remove(watched, callback)

    def when_written(self, action: Callable[[], None]) -> None:
        """Calls it when all that has happened so far is in the journal, synced or not: the death of this process then
        undoes nothing of it."""
        self._after.append(action)
        self._schedule_flush()

    def detach(self, consumer: Consumer) -> None:
        self.broker.detach(self.now_ms(), consumer)
        consumer.sink = (
            None  # messages that wait for another attempt keep the consumer, and must not keep its connection
        )

    def reopen(self, consumer: Consumer) -> None:
        """The consumer keeps up again."""
        consumer.open = True
        self.broker.dispatch(consumer.group, self.now_ms())
        self._schedule_flush()

    def _wait(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)
        if not self._flush_scheduled:
            self._schedule_flush()

    @property
    def trouble(self) -> Unavailable | None:
        """Why messages are refused until somebody mends it; None while all is well."""
        if self.failure is None and self.store.compactor.error is not None:
            cause = self.store.compactor.error
            return Unavailable(f"compaction failed: {cause}; restart after mending the cause")
        return self.failure or self._disk_room.stall

    @property
    def conditions(self) -> list[Condition]:
        """What an operator should mend while messages are served."""
        return [condition for source in self.condition_sources if (condition := source()) is not None]

    def _check_writable(self) -> None:
        if (reason := self.failure or self._disk_room.stall) is not None:
            raise reason

    def check_takes_messages(self) -> None:
        """Raises DiskLow where the room on the disk is kept for what is stored already."""
        if (low := self._disk_room.low) is not None:
            raise low

    def _refused(self) -> BrokerError:
        assert self._refusal is not None, "asked only where there is one"
        return self._count(self._refusal)

    def _count(self, refusal: BrokerError) -> BrokerError:
        if isinstance(refusal, DiskLow):
            self.broker.intake.rejected[refusal.reason] += 1
        return refusal

    def _behind(self) -> BrokerError:
        return self.trouble or Overloaded("the disk does not keep up; retry later", 1_000)

    # The cycle: flush → journal → durable → deliver

    def _schedule_flush(self) -> None:
        """The first command of a turn of the loop sets the time for all of them."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
            self.now_ms()
            room = self._disk_room
            self._refusal = self.failure or room.stall or room.low or (self._behind() if self.store.behind else None)

    def _flush(self, *, everything: bool = False) -> None:
        """Sends what is to be delivered, and hands what happened since the last time to the journal.

        Unless `everything` is wanted, it waits while the journal has a batch in hand: the fewer and larger they are,
        the less both threads pay for handing them over.
        """
        self._flush_scheduled = False
        if self._closed:
            return
        effects = self.broker.effects
        if self._disk_room.stall is not None:
            self._refuse_waiters(self._disk_room.stall)
        while True:
            while effects.deliveries:
                self._send()
            if effects.ended:
                self._end()
            if not effects.changes and not self._waiters and not self._after:
                break
            if self._in_journal and not everything:
                self._set_timer()
                return
            batch = Batch(effects.publications, self._waiters, self._after)
            changes, batched = effects.changes, effects.batched
            effects.changes, effects.publications, self._waiters, self._after = [], Publications(), [], []
            effects.batched = 0
            if self.failure is not None:
                self._refuse(batch, self.failure)
                continue
            if self._waits:
                self._in_journal.append(batch)
                sync = self._syncs and bool(batch.waiters or batch.publications)
                self.store.submit(changes, batch, sync=sync, batched=batched)
            else:
                self._submit_later(changes, batched)
                if batch.after:
                    self._submit_now()
                self._settle(batch)
        if self.store.wants_rotation and self.failure is None and self._disk_room.stall is None:
            self._rotate()
        self._set_timer()

    def _submit_later(self, changes: list[bytes], batched: int) -> None:
        """Nobody waits for the journal: give it fewer and larger pieces, for each one wakes its thread."""
        self._unsubmitted += changes
        self._unsubmitted_batched += batched
        if len(self._unsubmitted) + self._unsubmitted_batched >= LAZY_CHANGES:
            self._submit_now()
        elif self._submit_timer is None:
            self._submit_timer = self._loop.call_later(LAZY_S, self._submit_now)

    def _submit_now(self) -> None:
        if self._submit_timer is not None:
            self._submit_timer.cancel()
            self._submit_timer = None
        if self._unsubmitted:
            changes, self._unsubmitted = self._unsubmitted, []
            batched, self._unsubmitted_batched = self._unsubmitted_batched, 0
            self.store.submit(changes, None, sync=False, batched=batched)

    def durable(self, tokens: list[object]) -> None:
        """From the store: these batches are as safe as the durability promises."""
        for token in tokens:
            if token is not None:
                batch = self._in_journal.popleft()
                assert batch is token, "the journal answers in the order it was asked"
                self._settle(batch)
        # Not at once: in the turn it takes, clients just answered come back, and the next batch is half as large again.
        self._schedule_flush()

    def journal_failed(self, error: OSError) -> None:
        """From the store: the disk refused. Nobody is told that anything is safe any more (ruling 12)."""
        self.failure = Unavailable(
            f"the journal cannot be written ({error}): writes are refused until the broker is restarted on a good disk"
        )
        while self._in_journal:
            self._refuse(self._in_journal.popleft(), self.failure)
        self._flush()

    def journal_stalled(self, error: OSError) -> None:
        """From the store: there is no room. What is submitted is written when there is; nothing more is taken."""
        self._refuse_waiters(self._disk_room.note_stall(error))

    def journal_resumed(self) -> None:
        """From the store: there was room for what waited."""
        self._disk_room.stall = None
        if self.failure is None:
            self.broker.tick(self.now_ms())  # what became due meanwhile
            self._flush()

    def room_changed(self) -> None:
        """From the store: the free space has become low, or is no longer."""
        self._disk_room.note_change()

    def _refuse_waiters(self, stall: Unavailable) -> None:
        """Answer everybody who waits for the journal. What they asked for may still be written, nobody knows when."""
        for batch in self._in_journal:
            waiting, batch.waiters = batch.waiters, []
            self._answer(waiting, stall)
        waiting, self._waiters = self._waiters, []
        self._answer(waiting, stall)

    def _settle(self, batch: Batch) -> None:
        if batch.publications:
            self.broker.committed(batch.publications, self.now_ms())
            if self._watchers and batch.publications.ends:
                for partition in batch.publications.ends:
                    self._watchers.call(partition)
                self._watchers.call(Watch.MESSAGES)
        if self._topics_told != self.broker.state.topics_version:
            self._topics_told = self.broker.state.topics_version
            self._watchers.call(Watch.TOPICS)
        self._answer(batch.waiters, None)
        for action in batch.after:
            action()

    def _refuse(self, batch: Batch, failure: Unavailable) -> None:
        self._answer(batch.waiters, failure)

    def _answer(self, waiters: list[Waiter], error: BrokerError | None) -> None:
        for waiter in waiters:
            try:
                waiter.settled(error)
            except Exception:
                # One client's trouble: left here it would keep everybody behind it waiting for ever.
                log.exception("an answer could not be given")

    def _send(self) -> None:
        effects = self.broker.effects
        deliveries, effects.deliveries = effects.deliveries, []
        by_consumer: dict[Consumer, list[Delivery]] = {}
        for delivery in deliveries:
            by_consumer.setdefault(delivery.consumer, []).append(delivery)
        for consumer, batch in by_consumer.items():
            sink: Sink | None = consumer.sink  # type: ignore[assignment]
            if sink is None:
                continue  # it has gone meanwhile: the leases run out
            try:
                sink.deliver(batch)
            except Exception:
                log.exception("owner %s could not be served and gets nothing more", consumer.owner)
                consumer.open = False
            self.broker.sent(self.now_ms(), consumer)

    def _end(self) -> None:
        ended, self.broker.effects.ended = self.broker.effects.ended, []
        for consumer in ended:
            sink: Sink = consumer.sink  # type: ignore[assignment]
            try:
                sink.ended()
            except Exception:
                log.exception("owner %s could not be told that its group is gone", consumer.owner)

    # Time

    def _set_timer(self) -> None:
        due_ms = self.broker.next_due_ms()
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._clock.call_at(self._loop, due_ms, self.config.tick_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.failure is None and self._disk_room.stall is None:
            self.broker.tick(self.now_ms())
            self._flush()

    # Rotation and retention

    def _rotate(self) -> None:
        # Or they would be in the snapshot and, written behind it, be applied to it once more.
        assert not self.broker.effects.changes, "everything in the snapshot has been submitted"
        self._rotated_at_ms = self.now_ms()
        self._submit_now()
        self.store.rotate(self.broker.snapshot())

    def _check_retention(self) -> None:
        every_ms = self.config.retention_check_ms
        self._retention_timer = self._clock.call_at(
            self._loop, self.now_ms() + every_ms, every_ms, self._check_retention
        )
        self.broker.forget_expired(self.now_ms())
        if self.failure is not None or self._disk_room.stall is not None:
            return
        for topic in list(self.broker.state.topics.values()):  # what dies meanwhile may need a topic for dead letters
            for number in range(len(topic.partitions)):
                self.trim(topic, number)
        expire(self.broker, self.now_ms(), self._remove)
        self._schedule_flush()
        age_ms = self.now_ms() - self._rotated_at_ms
        if self.store.journal_changes and age_ms >= self.store.config.journal_age_ms and not self.store.behind:
            self._flush(everything=True)
            self._rotate()

    def _check_idle(self) -> None:
        every_ms = self.store.config.journal_idle_ms
        self._idle_timer = self._clock.call_at(self._loop, self.now_ms() + every_ms, every_ms, self._check_idle)
        if self.failure is not None or self._disk_room.stall is not None:
            return
        if self.store.journal_changes == self._changes_seen and self.store.is_worth_rotating:
            self._flush(everything=True)
            self._rotate()
        self._changes_seen = self.store.journal_changes

    def trim(self, topic: Topic, number: int) -> None:
        """Gives up the segments of a partition that are past the topic's time or size (ruling 17)."""
        partition = topic.partitions[number]
        end = self.store.expired(
            topic.id,
            number,
            before_ms=self.now_ms() - topic.config.retention_ms if topic.config.retention_ms else None,
            up_to_bytes=partition.bytes_total - topic.config.retention_bytes if topic.config.retention_bytes else 0,
            below_index=self.broker.unfinished_from(partition) if topic.config.hold_unfinished else partition.committed,
        )
        if end is None:
            return
        first_index, first_bytes, first_offset = end
        if first_index <= partition.first_index:
            return  # already given up, and waiting for the journal to say so
        lost = self.broker.trim(self.now_ms(), partition, first_index, first_bytes, first_offset=first_offset)
        if lost:
            log.warning("retention removed %d unfinished messages of %s/%d", lost, topic.name, number)
        self._after.append(lambda: self.store.trim(topic.id, number, first_index))
