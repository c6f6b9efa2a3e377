"""Who gets which message when: dispatch, time-outs, retries and the way to the dead letters."""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush

from msgspec.structs import replace

from slipstream.broker.changes import (
    Delivered,
    DeliveredRun,
    Extended,
    Failed,
    Finished,
    Outcome,
    Postponed,
    TopicCreated,
    encode_change,
)
from slipstream.broker.effects import Delivery, Effects
from slipstream.broker.envelope import LATEST_MS, DeadLetter, Envelope, Meta, RetryPolicy, decode_meta, encode_meta
from slipstream.broker.errors import Unavailable
from slipstream.broker.evidence import NO_EVIDENCE, EvidenceBudget, attempt_of, with_attempt
from slipstream.broker.group import Consumer, Group, Progress
from slipstream.broker.idempotency import Operation
from slipstream.broker.lease import Lease
from slipstream.broker.staged import StagedBatch
from slipstream.broker.state import State
from slipstream.broker.topic import DEAD_LETTER_PREFIX, Partition, Topic
from slipstream.record import LogUnreadable, Published, PublishedBatch, Record

log = logging.getLogger(__name__)

ACK_TIMEOUT = "ack_timeout"

TIMERS_KEPT = 256
"""Replaced timers that may lie about before they are cleared away."""

BLAMED_MAX = 16
"""Streams that a message remembers to have been blamed for."""

_DELIVERED, _NOTHING, _NO_CONSUMER = range(3)
"""Results of the search for one message to deliver in a partition. After `_NOTHING` an ack, a timer or a new message
brings the partition back. Plain numbers, because every delivery compares them."""


class Dispatcher:
    """Moves messages from the log to consumers and keeps the timers that bring the unfinished ones back."""

    def __init__(self, state: State, effects: Effects) -> None:
        self.state = state
        self.effects = effects
        self.evidence = EvidenceBudget(state.evidence)
        self.delivered_total = 0
        self.redelivered_total = 0
        self._runs: dict[Progress, list[Delivered]] = {}
        """First deliveries of this turn that are not among the changes yet; those of a run went to one consumer."""
        self._timers: list[tuple[int, int, Progress]] = []
        self._timer_count = 0
        self._timers_max = TIMERS_KEPT

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do next."""
        due = [heap[0][0] for heap in (self._timers, self.state.deadlines) if heap]
        return min(due) if due else None

    def dispatch_topic(self, topic: Topic, now_ms: int) -> None:
        for group in topic.groups.values():
            for progress in group.progress:
                self._add_waiting(progress)
            self.serve(group, now_ms)

    def show(self, ends: dict[Partition, int], now_ms: int) -> None:
        """Deliver what a commit has made visible, up to these ends. Its partitions take turns from the start."""
        groups: dict[Group, None] = {}
        for partition, end in ends.items():
            partition.committed = end
            for group in partition.topic.groups.values():
                self._add_waiting(group.progress[partition.number])
                groups[group] = None
        for group in groups:
            self.serve(group, now_ms)

    def dispatch(self, progress: Progress, now_ms: int) -> None:
        """Deliver what is due in this partition, as far as there are consumers and the limit of the group allows."""
        self._add_waiting(progress)
        self.serve(progress.group, now_ms)

    def _add_waiting(self, progress: Progress) -> None:
        if progress.partition.addressed is not None:
            self.pass_over(progress)
        progress.group.waiting[progress] = None

    def serve(self, group: Group, now_ms: int) -> None:
        """Deliver what is due to a group. Its partitions take turns, message by message.

        The limit of a partition counts what is on lease. What waits for another attempt does not use it up, so that
        messages which fail do not keep those behind them from their first delivery (ADR 6).
        """
        if not group.consumers or group.paused or not group.waiting:
            return
        try:
            self._serve(group, now_ms)
        finally:
            self._end_runs()

    def _serve(self, group: Group, now_ms: int) -> None:
        waiting = group.waiting
        passed: list[Progress] = []
        while waiting:
            progress = next(iter(waiting))
            turn = self._deliver_next(progress, now_ms)
            if turn == _DELIVERED:
                if len(waiting) > 1:
                    waiting.move_to_end(progress)
            elif turn == _NOTHING:
                del waiting[progress]
            elif group.parked:
                # Nothing new for a parked stream, but another partition may have what it is to be offered again.
                del waiting[progress]
                passed.append(progress)
            else:
                break
        for progress in passed:
            waiting[progress] = None

    def _deliver_next(self, progress: Progress, now_ms: int) -> int:
        group = progress.group
        partition = progress.partition
        limit = group.topic.config.max_in_flight
        if progress.unreadable or (limit and len(progress.leases) >= limit):
            return _NOTHING
        # A limit of 1 promises strict order: what failed keeps its place until it is finished.
        retrying_max = 1 if limit == 1 else self.state.config.delayed_max
        while True:
            again = progress.next_due(now_ms) if progress.due else None
            if again is None:
                if partition.addressed is not None:
                    self.pass_over(progress)
                is_full = progress.retrying >= retrying_max
                if progress.position >= partition.committed or is_full:
                    if progress.due:
                        self._await_due(progress)
                    return _NOTHING
            consumer = group.next_consumer()
            if consumer is None:
                consumer = self._next_probe(progress, now_ms) if again is not None and group.parked else None
                if consumer is None:
                    return _NO_CONSUMER
            index = again.index if again is not None else progress.position
            try:
                record = partition.log.read(index)
            except LogUnreadable as error:
                self._stall(progress, error)
                return _NOTHING
            if again is None and record.offset in progress.finished_ahead:
                progress.step_over(record.offset)
            elif consumer.credit is not None and not consumer.has_room(record.size + len(record.meta)):
                consumer.credit = 0  # it is full; another consumer may take this one
            else:
                return self._deliver(progress, consumer, record, index, again, now_ms)

    def _next_probe(self, progress: Progress, now_ms: int) -> Consumer | None:
        """Return the parked stream that is offered a message again, or look for it when its pause is over."""
        consumer = progress.group.next_probe(now_ms)
        if consumer is None:
            probe_ms = progress.group.next_probe_ms()
            if probe_ms is not None and probe_ms > now_ms:
                self.set_timer(progress, probe_ms)
        return consumer

    def pass_over(self, progress: Progress) -> None:
        """Finish the messages next in line that are for other groups only (ruling 29): no consumer has to be there."""
        partition = progress.partition
        group = progress.group
        end = min(partition.first_for(group.name, progress.position), partition.committed)
        while progress.position < end and not progress.unreadable:
            index = progress.position
            try:
                record = partition.log.read(index)
            except LogUnreadable as error:
                self._stall(progress, error)
                return
            self._end_run(progress)
            change = Finished(group.id, partition.number, record.offset, Outcome.NOT_ADDRESSED, record.size, index)
            self.state.finished(change)
            self.effects.changes.append(encode_change(change))

    def _await_due(self, progress: Progress) -> None:
        """Set the clock for what is postponed: from here on nothing else brings it."""
        due_ms = progress.next_due_ms()
        if due_ms is not None:
            self.set_timer(progress, due_ms)

    def _stall(self, progress: Progress, error: LogUnreadable) -> None:
        """The log cannot be read on: nothing may be skipped, so this group waits here until a restart after repair."""
        progress.unreadable = str(error)
        log.error(
            "group %s stands still in %s/%d: %s; stop the broker and run slipstream doctor on its directory",
            progress.group.name,
            progress.partition.topic.name,
            progress.partition.number,
            error,
        )

    def _deliver(
        self, progress: Progress, consumer: Consumer, record: Record, index: int, before: Lease | None, now_ms: int
    ) -> int:
        """Deliver the record, or do what else is due with it; NOTHING where it has to wait, and all behind it too."""
        meta = decode_meta(record.meta)
        if _deadline_passed(meta, now_ms):
            self._end_run(progress)
            self.dead_letter(progress, record, index, before, Outcome.DEADLINE_EXCEEDED, now_ms)
            return _DELIVERED
        if before is None and meta.deliver_at_ms is not None and meta.deliver_at_ms > now_ms:
            self._end_run(progress)
            return self._postpone(progress, record, index, meta.deliver_at_ms)
        attempts, last_error = (before.next_attempt, before.last_error) if before is not None else (1, "")
        until_ms = now_ms + consumer.lease_ms
        size = len(record.key) + len(record.value)
        number = progress.partition.number
        change = Delivered(
            progress.group.id,
            number,
            record.offset,
            index,
            size,
            attempts,
            consumer.owner,
            until_ms,
            consumer.retry,
            now_ms,
        )
        lease = self.state.delivered(change)
        lease.consumer = consumer
        consumer.held += 1
        consumer.delivered += 1
        lease.sequence = consumer.delivered
        if consumer.window is not None:
            lease.settled_before = consumer.window.settled
        effects = self.effects
        if attempts == 1:
            self._add_to_run(progress, change)
        else:
            self._end_run(progress)
            effects.changes.append(encode_change(change))
        effects.deliveries.append(Delivery(consumer, number, record, meta, attempts, last_error))
        consumer.unsent_bytes += size + len(record.meta)
        if consumer.credit is not None:
            consumer.credit -= 1
        self.delivered_total += 1
        if attempts > 1:
            self.redelivered_total += 1
        if progress.timer_ms is None or until_ms < progress.timer_ms:
            self.set_timer(progress, until_ms)
        return _DELIVERED

    def _add_to_run(self, progress: Progress, change: Delivered) -> None:
        run = self._runs.get(progress)
        if run is None:
            self._runs[progress] = [change]
            return
        first = run[0]
        if (
            first.owner != change.owner
            or first.lease_until_ms != change.lease_until_ms
            or first.retry is not change.retry
        ):
            self._end_run(progress)
            self._runs[progress] = [change]
        else:
            run.append(change)

    def _end_runs(self) -> None:
        for progress in list(self._runs):
            self._end_run(progress)

    def _end_run(self, progress: Progress) -> None:
        run = self._runs.pop(progress, None)
        if run is None:
            return
        first = run[0]
        change: DeliveredRun | Delivered = first
        if len(run) > 1:
            messages = [(each.offset, each.index, each.size) for each in run]
            change = DeliveredRun(
                first.group_id, first.partition, first.owner, first.lease_until_ms, messages, first.retry, first.at_ms
            )
            self.effects.batched += len(run) - 1
        self.effects.changes.append(encode_change(change))

    def _postpone(self, progress: Progress, record: Record, index: int, due_ms: int) -> int:
        """Pass over a message that is not due yet, as far as there is memory for what is passed over."""
        if len(progress.postponed) >= self.state.config.delayed_max:
            # The group waits here until one of them is due, or this one.
            self.set_timer(progress, min(due_ms, progress.next_due_ms() or due_ms))
            return _NOTHING
        change = Postponed(progress.group.id, progress.partition.number, record.offset, index, record.size, due_ms)
        self.state.postponed(change)
        self.effects.changes.append(encode_change(change))
        self.set_timer(progress, due_ms)
        return _DELIVERED

    def fail(
        self,
        progress: Progress,
        lease: Lease,
        error: str,
        now_ms: int,
        *,
        released: bool,
        delay_ms: int | None = None,
        retryable: bool = True,
        excused: bool = False,
        traceback: str = "",
        counted: bool = True,
    ) -> None:
        """Schedule the next attempt of a message that failed, or dead-letter it after its last.

        The consumer may say when the next is due, that there should be none, or that this was none: a delivery that is
        not counted leaves `last_error` as it was, and the next one has the same attempt number. An excused failure does
        not count towards the limit. Raises Unavailable, and the group stands still, where the log cannot be read.
        """
        partition = progress.partition
        try:
            record = partition.log.read(lease.index)
        except LogUnreadable as unreadable:
            self._stall(progress, unreadable)
            raise Unavailable(f"the message cannot be read: {unreadable}") from unreadable
        meta = decode_meta(record.meta)
        policy = self._policy(progress, lease, meta)
        failures = lease.failures - excused
        attempt, evidence = None, lease.evidence
        if counted:
            lease.last_error = self.join_errors(lease.last_error, error)
            attempt = attempt_of(
                lease.attempts, lease.delivered_ms, now_ms, lease.owner, error, traceback, self.evidence
            )
            lease.evidence = with_attempt(evidence, attempt)
        if _deadline_passed(meta, now_ms):
            self.dead_letter(progress, record, lease.index, lease, Outcome.DEADLINE_EXCEEDED, now_ms)
            return
        if counted and 0 < policy.max_attempts <= failures:
            self.dead_letter(progress, record, lease.index, lease, Outcome.MAX_ATTEMPTS, now_ms)
            return
        if counted and not retryable and not partition.topic.is_dead_letter:
            self.dead_letter(progress, record, lease.index, lease, Outcome.REJECTED, now_ms)
            return
        due_ms = min(now_ms + (policy.delay_ms(max(failures, 1)) if delay_ms is None else delay_ms), LATEST_MS)
        change = Failed(
            progress.group.id,
            partition.number,
            lease.offset,
            lease.last_error,
            due_ms,
            released,
            excused,
            attempt,
            counted,
        )
        lease.evidence = evidence  # the change adds the attempt
        self.state.failed(change)
        self.effects.changes.append(encode_change(change))
        self.set_timer(progress, due_ms)

    def dead_letter(
        self, progress: Progress, record: Record, index: int, lease: Lease | None, outcome: Outcome, now_ms: int
    ) -> None:
        """Ruling 6: the dead letter and the group's advance go into the journal together."""
        source = progress.partition.topic
        if source.config.dead_letters:
            self._bury(progress, record, lease, outcome, now_ms)
        finished = Finished(progress.group.id, progress.partition.number, record.offset, outcome, record.size, index)
        self.state.finished(finished)
        self.effects.changes.append(encode_change(finished))

    def _bury(self, progress: Progress, record: Record, lease: Lease | None, outcome: Outcome, now_ms: int) -> None:
        source = progress.partition.topic
        meta = decode_meta(record.meta)
        envelope = meta.envelope or Envelope()
        reason = outcome.name.lower()
        letter = DeadLetter(
            original_topic=source.name,
            original_partition=progress.partition.number,
            original_offset=record.offset,
            group=progress.group.name,
            attempts=lease.attempts if lease is not None else 0,
            last_error=(lease.last_error if lease is not None and lease.last_error else reason),
            reason=reason,
            routed_at_ms=now_ms,
            tenant_id=envelope.tenant_id,
            idempotency_key=envelope.idempotency_key,
        )
        # The routing controls are spent: they must not send the dead letter, or its redrive, somewhere else.
        kept = replace(envelope, target_topic="", partition_override=None, dlq=letter)
        graveyard = self.state.topics.get(DEAD_LETTER_PREFIX + source.name) or self._create_graveyard(source, now_ms)
        partition = graveyard.partitions[progress.partition.number % len(graveyard.partitions)]
        evidence = lease.evidence if lease is not None else NO_EVIDENCE
        buried = Meta(kept, meta.routing, meta.attributes, redriven_from=meta.redriven_from, evidence=evidence)
        copy = Record(graveyard.next_offset, now_ms, record.key, record.value, encode_meta(buried))
        self.append(partition, copy, record.size, None, None)

    def append(
        self, partition: Partition, record: Record, size: int, operation: Operation | None, deadline_ms: int | None
    ) -> None:
        """Writes a record to a partition; it shows once the journal has it."""
        index = partition.append(record, size)
        partition.topic.next_offset = record.offset + 1
        partition.topic.used_ms = record.timestamp_ms
        effects = self.effects
        effects.changes.append(encode_change(Published(partition.topic.id, partition.number, record)))
        effects.publications.ends[partition] = index + 1
        if operation is not None:
            effects.publications.operations.append(operation)
        if deadline_ms is not None:
            # Now, not with `committed`: a snapshot taken in between must have it.
            self.state.watch_deadline(deadline_ms, partition, index, record.offset)

    def append_batch(self, batch: StagedBatch, operations: list[Operation]) -> None:
        """Likewise, for many records of one topic: one change in the journal."""
        effects = self.effects
        for deadline_ms, partition, position, offset in batch.deadlines:
            self.state.watch_deadline(deadline_ms, partition, partition.count + position, offset)
        for partition, records in batch.partitions.items():
            effects.publications.ends[partition] = partition.extend(records, batch.sizes[partition])
        effects.publications.operations += operations
        batch.topic.next_offset = batch.next_offset
        batch.topic.used_ms = batch.messages[-1][1].timestamp_ms
        effects.changes.append(encode_change(PublishedBatch(batch.topic.id, batch.messages)))
        effects.batched += len(batch.messages) - 1

    def tick(self, now_ms: int) -> None:
        """Ends the leases that ran out, and brings back what is due."""
        while self._timers and self._timers[0][0] <= now_ms:
            due_ms, _, progress = heappop(self._timers)
            if progress.timer_ms == due_ms:
                progress.timer_ms = None
                self._review(progress, now_ms)
        deadlines = self.state.deadlines
        while deadlines and deadlines[0].due_ms <= now_ms:
            passed = heappop(deadlines)
            topic = self.state.topics_by_id.get(passed.topic_id)
            if topic is not None:  # it may have been deleted since
                self._expire(topic.partitions[passed.partition], passed.log_index, passed.offset, now_ms)

    def set_timer(self, progress: Progress, due_ms: int) -> None:
        if progress.timer_ms is None or due_ms < progress.timer_ms:
            progress.timer_ms = due_ms
            self._timer_count += 1
            heappush(self._timers, (due_ms, self._timer_count, progress))
            if len(self._timers) > self._timers_max:
                self._forget_timers()

    def _forget_timers(self) -> None:
        """Drops the times that an earlier one has replaced: behind a lease of hours they would pile up for hours."""
        current = {timer[2]: timer for timer in self._timers if timer[2].timer_ms == timer[0]}
        self._timers = list(current.values())
        heapify(self._timers)
        self._timers_max = 2 * len(self._timers) + TIMERS_KEPT

    def _review(self, progress: Progress, now_ms: int) -> None:
        for lease in list(progress.leases.values()):
            if lease.until_ms <= now_ms:
                try:
                    self._run_out(progress, lease, now_ms)
                except Unavailable:
                    return  # it stands still: without its record the lease can neither be failed nor given to another
        self.dispatch(progress, now_ms)
        self.restart_timer(progress, now_ms)

    def _run_out(self, progress: Progress, lease: Lease, now_ms: int) -> None:
        """End a lease whose time is over, or move its end where its stream has not come to it yet.

        A stream that settled something within the last lease and has not settled anything it got later is still busy
        with what came before this message. What it will not come to within two leases goes to a consumer that is
        free.
        """
        consumer = lease.consumer
        excused = False
        if not self.state.config.pace_streams:
            pass
        elif consumer is None:
            excused = progress.group.is_behind_restored(lease)
        elif consumer.window is not None:
            if consumer.attached and lease.sequence > consumer.settled_to:
                until_ms = consumer.last_sign_ms + consumer.lease_ms
                if until_ms > now_ms:
                    if consumer.reaches(lease) or not consumer.group.has_other_ready(consumer):
                        change = Extended(consumer.group.id, progress.partition.number, lease.offset, until_ms)
                        self.effects.changes.append(encode_change(change))
                        self.state.extended(change)
                    else:
                        if not consumer.window.settled:
                            consumer.window.expired()  # nothing has been measured that would have made it smaller
                        self.fail(progress, lease, ACK_TIMEOUT, now_ms, released=False, delay_ms=0, excused=True)
                    return
                excused = self._excuses(consumer, lease)
                self._park(consumer, now_ms)
            elif not consumer.attached:
                excused = self._excuses(consumer, lease)
            consumer.window.expired()
        elif consumer.credit is not None:
            consumer.group.pull_ran_out(consumer)
        self.fail(progress, lease, ACK_TIMEOUT, now_ms, released=False, excused=excused)

    def _excuses(self, consumer: Consumer, lease: Lease) -> bool:
        """Return whether this attempt does not count, because a stream that fell silent or ended had not come to it.

        Of all that such a stream held, only the message it got first counts, and once for each stream: a message that
        kills or hangs its workers dies, and takes none of those behind it with it.
        """
        # The first of those that run out together; after a sign of life a new round begins.
        if lease.sequence > consumer.silent_to or not consumer.silent_rounds:
            consumer.fall_silent()
        if lease.sequence and lease.sequence != consumer.suspect:
            return True
        if consumer in lease.blamed:
            return True
        lease.blamed = (*lease.blamed[1 - BLAMED_MAX :], consumer)
        return False

    def _park(self, consumer: Consumer, now_ms: int) -> None:
        if consumer.park(now_ms):
            group = consumer.group
            group.parked += 1
            log.warning(
                "the stream of owner %s in group %s of topic %s is parked: a lease of %d ms ran out and it settled "
                "nothing meanwhile; it gets no new messages until it acks, nacks or extends one, or reconnects",
                consumer.owner,
                group.name,
                group.topic.name,
                consumer.lease_ms,
            )

    def restart_timer(self, progress: Progress, now_ms: int) -> None:
        due = [lease.until_ms for lease in progress.leases.values()]
        postponed_ms = progress.next_due_ms()
        if postponed_ms is not None and postponed_ms > now_ms:
            due.append(postponed_ms)  # what is due already waits for a consumer, not for the clock
        if due:
            self.set_timer(progress, min(due))

    def _expire(self, partition: Partition, index: int, offset: int, now_ms: int) -> None:
        """Dead-letter a message whose deadline passed, but for the groups where a consumer has it (ruling 7)."""
        if index < partition.first_index:
            return
        if offset < 0:
            try:
                offset = partition.log.read(index).offset
            except LogUnreadable:
                return  # a group that needs the message stands still when it comes to it
        for group in partition.topic.groups.values():
            if partition.first_for(group.name, index) != index:
                continue
            progress = group.progress[partition.number]
            # Most have long been finished: what the group holds is looked at before the disk is.
            lease = progress.postponed.get(offset)
            if offset in progress.leases or (lease is None and index < progress.position):
                continue
            try:
                record = partition.log.read(index)
            except LogUnreadable as error:
                self._stall(progress, error)
                continue
            if offset not in progress.finished_ahead:
                self.dead_letter(progress, record, index, lease, Outcome.DEADLINE_EXCEEDED, now_ms)
                self.dispatch(progress, now_ms)  # it may have been what kept the group at its limit

    def _create_graveyard(self, source: Topic, now_ms: int) -> Topic:
        overrides = replace(source.overrides, retry=None, dead_letters=None)
        change = TopicCreated(
            self.state.next_topic_id(), DEAD_LETTER_PREFIX + source.name, len(source.partitions), overrides, now_ms
        )
        self.effects.changes.append(encode_change(change))
        return self.state.topic_created(change)

    def _policy(self, progress: Progress, lease: Lease, meta: Meta) -> RetryPolicy:
        """Return the retry policy of the message, or else of its handler, its group or its topic."""
        topic = progress.partition.topic
        if topic.is_dead_letter:
            # It still carries the policy that killed it, but a dead letter is never dead-lettered again.
            return replace(topic.config.retry, max_attempts=0)
        own = meta.envelope.retry_policy if meta.envelope is not None else None
        return own or lease.retry or progress.group.retry or topic.config.retry

    def join_errors(self, before: str, error: str) -> str:
        if error == ACK_TIMEOUT:
            return before or error
        joined = f"{before} | {error}" if before else error
        return joined[-self.state.config.last_error_chars_max :]


def _deadline_passed(meta: Meta, now_ms: int) -> bool:
    envelope = meta.envelope
    if envelope is None or envelope.dlq is not None:
        return False
    deadline_ms = envelope.deadline_ms
    return deadline_ms is not None and deadline_ms <= now_ms
