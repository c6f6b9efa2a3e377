"""A consumer group: who reads, how far it is in each partition, and what it holds on lease."""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from slipstream.broker.indexes import IndexSet
from slipstream.broker.lease import Lease
from slipstream.broker.window import LEASE_SHARE, Window

if TYPE_CHECKING:
    from slipstream.broker.envelope import RetryPolicy
    from slipstream.broker.topic import Partition, Topic

PROBE_PAUSE_MS_MAX = 60_000
"""Longest pause between two offers of the same message to a parked stream, in milliseconds."""

PULL_LIMIT_MAX = 1 << 14
PULL_LIMITS_MAX = 1_000


class Consumer:
    """A reader of a group: a stream, or a pull of so many messages.

    The broker delivers to it while it is `open` and has credit and room left.
    """

    __slots__ = (
        "acked",
        "attached",
        "credit",
        "delivered",
        "group",
        "held",
        "last_sign_ms",
        "lease_ms",
        "open",
        "owner",
        "parked_ms",
        "probe_at_ms",
        "retry",
        "settled_to",
        "silent_rounds",
        "silent_to",
        "sink",
        "suspect",
        "unsent_bytes",
        "window",
        "window_bytes",
    )

    def __init__(
        self,
        group: Group,
        owner: str,
        lease_ms: int,
        credit: int | None,
        sink: object,
        window_bytes: int,
        window: Window | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.group = group
        self.owner = owner
        self.lease_ms = lease_ms
        self.credit = credit
        """How many more messages a pull takes; None for a stream."""
        self.open = True
        """False while the reader does not keep up."""
        self.attached = True
        self.sink = sink
        """Where its messages go; the broker only carries it back to the caller that attached the consumer."""
        self.window_bytes = window_bytes
        self.unsent_bytes = 0
        """Handed out since the last time something was sent. Whether the reader keeps up shows only then, so past the
        window the broker waits for it: all that the group's limit allows may be hundreds of megabytes."""
        self.window = window
        """How many messages a stream may hold. None for a pull, which named its number, and where pacing is off."""
        self.retry = retry
        """The retry policy of its handler."""
        self.held = 0
        """Messages it has on lease."""
        self.delivered = 0
        """Messages it ever got."""
        self.settled_to = 0
        """The highest `Lease.sequence` it has acked or nacked."""
        self.acked = 0
        self.last_sign_ms = 0
        """When it last acked, nacked or extended."""
        self.parked_ms: int | None = None
        """Since when it gets no new messages, because it let a lease run out without a sign of life."""
        self.probe_at_ms = 0
        """When a parked stream is next offered what it let run out."""
        self.silent_rounds = 0
        """How often in a row it let leases run out in silence."""
        self.silent_to = 0
        """The highest `Lease.sequence` when that happened last."""
        self.suspect = 0
        """The `Lease.sequence` of the message that it got first of those."""

    @property
    def ready(self) -> bool:
        window = self.window
        return (
            self.open
            and self.credit != 0
            and self.unsent_bytes < self.window_bytes
            and (window is None or (self.held < window.limit and self.parked_ms is None))
        )

    def has_room(self, size: int) -> bool:
        """Return whether a message of this size is within what was asked for; the first one always is.

        A stream is asked for no size: its window only says when to wait.
        """
        return self.credit is None or self.unsent_bytes == 0 or self.unsent_bytes + size <= self.window_bytes

    def fall_silent(self) -> None:
        """Begin a round of leases that run out in silence: the message it got first is the one it may hang on."""
        self.silent_to = self.delivered
        self.silent_rounds += 1
        held = (lease for progress in self.group.progress for lease in progress.leases.values())
        self.suspect = min((lease.sequence for lease in held if lease.consumer is self), default=0)

    def park(self, now_ms: int) -> bool:
        """Give it nothing new, because it let leases run out in silence; return whether it was not parked before.

        What ran out is offered to it again: at once the first time, as DriftQ does, and then after pauses that double.
        """
        pause_ms = 0 if self.silent_rounds <= 1 else self.lease_ms << min(self.silent_rounds - 2, 20)
        self.probe_at_ms = now_ms + min(pause_ms, PROBE_PAUSE_MS_MAX)
        if self.parked_ms is not None:
            return False
        self.parked_ms = now_ms
        return True

    def wake(self) -> None:
        """Serve it again: it has shown a sign of life."""
        self.parked_ms = None
        self.silent_rounds = 0

    def may_be_probed(self, now_ms: int) -> bool:
        """Return whether a parked stream may be offered a message again: as many as it may hold, then one at a time."""
        held_max = self.window.limit if self.window is not None and self.silent_rounds == 1 else 1
        return self.open and self.probe_at_ms <= now_ms and self.held < held_max

    def reaches(self, lease: Lease) -> bool:
        """Return whether a stream at work comes to this message within two leases, at the rate at which it settles.

        It will handle what it was sent, also what another consumer gets instead: so not too much is taken from it.
        """
        window = self.window
        if window is None or window.fixed:
            return True
        reach = 2 * LEASE_SHARE * window.limit if window.settled else 1
        return lease.sequence - self.settled_to <= reach


class Progress:
    """How far a group is in one partition.

    Everything before `position` was delivered at least once, or is not due yet. Of that, exactly the messages in
    `leases` and `postponed` are not finished; so each ack is remembered on its own (ruling 2) at a cost bounded by what
    is in flight or waits for another attempt, not by how long the oldest unfinished message has been stuck.
    """

    __slots__ = (
        "cursor",
        "dead",
        "done_bytes",
        "due",
        "finished_ahead",
        "group",
        "leases",
        "oldest_seen",
        "partition",
        "position",
        "postponed",
        "retrying",
        "timer_ms",
        "unreadable",
    )

    def __init__(self, group: Group, partition: Partition) -> None:
        self.group = group
        self.partition = partition
        self.position = partition.first_index
        self.cursor = -1
        """The highest offset delivered."""
        self.leases: dict[int, Lease] = {}
        """By offset: what consumers have."""
        self.postponed: dict[int, Lease] = {}
        """By offset: what waits for its time, a first delivery or another attempt. None of it is in flight."""
        self.retrying = 0
        """How many of `postponed` wait for another attempt."""
        self.dead: IndexSet | None = None
        """Log indexes of the messages that were dead-lettered for this group, as far back as retention goes."""
        self.due: list[tuple[int, int]] = []
        """Heap of (when, offset) of what is postponed; may hold stale ones."""
        self.finished_ahead: dict[int, tuple[int, int]] = {}
        """offset → (index, size) of what was finished without ever being delivered: its deadline passed."""
        self.done_bytes = partition.first_bytes
        self.timer_ms: int | None = None
        """When the broker will next look at the leases here."""
        self.unreadable = ""
        """Why the log could not be read on; the group stands still here."""
        self.oldest_seen = (-1, 0)
        """(index, when it was stored) of the record that was the oldest unfinished one when somebody last asked: who
        watches asks every second, and it may lie on a page of its own on the disk."""

    @property
    def done(self) -> int:
        """How many records are finished, or gone through retention."""
        return self.position - len(self.leases) - len(self.postponed) + len(self.finished_ahead)

    @property
    def lag(self) -> int:
        partition = self.partition
        waiting = partition.committed - self.done
        if partition.addressed is None:
            return waiting
        return waiting - partition.for_others(self.group.name, self.position, partition.committed)

    @property
    def watermark(self) -> int:
        """Everything at or below this offset is finished; the "last acked offset" we report."""
        if not self.leases and not self.postponed:
            return self.cursor
        return min(*self.leases, *self.postponed, self.cursor + 1) - 1

    @property
    def oldest_unfinished(self) -> int:
        """The index of the first record that is not finished, or the end."""
        indexes = [lease.index for lease in (*self.leases.values(), *self.postponed.values())]
        return min(indexes, default=self.position)

    def find(self, offset: int) -> Lease | None:
        """Return the lease on a message that was delivered and is not finished, expired ones included."""
        lease = self.leases.get(offset)
        if lease is None:
            lease = self.postponed.get(offset)
            if lease is not None and not lease.attempts:
                return None
        return lease

    def is_dead(self, offset: int) -> bool:
        """Return whether a message of the partition was dead-lettered. Raises LogUnreadable."""
        index = self.partition.log.index_of(offset) if self.dead else None
        return self.dead is not None and index is not None and index in self.dead

    def take_out(self, offset: int) -> Lease | None:
        """Remove what is held of a message, and free its place with its consumer."""
        lease = self.leases.pop(offset, None)
        if lease is not None:
            lease.let_go()
            return lease
        lease = self.postponed.pop(offset, None)
        if lease is not None and lease.attempts:
            self.retrying -= 1
        return lease

    def deliver(self, lease: Lease) -> None:
        """Take note of a delivery, first or repeated."""
        self.leases[lease.offset] = lease
        if lease.index >= self.position:
            self._pass(lease)

    def extend(self, lease: Lease, until_ms: int) -> None:
        """Move the end of a lease. One that has run out and was not given to another consumer begins again."""
        lease.until_ms = until_ms
        if self.postponed.get(lease.offset) is lease:
            del self.postponed[lease.offset]
            self.retrying -= 1
            self.leases[lease.offset] = lease
            if lease.consumer is not None:
                lease.consumer.held += 1

    def _pass(self, lease: Lease) -> None:
        jumped = lease.index > self.position  # only a restart does: live, `step_over` goes one by one
        self.position = lease.index + 1
        self.cursor = lease.offset
        if jumped:
            self.skip_finished()

    def skip_finished(self) -> None:
        """Forgets what was finished ahead and has been passed since."""
        passed = [offset for offset, (index, _) in self.finished_ahead.items() if index < self.position]
        for offset in passed:
            del self.finished_ahead[offset]

    def step_over(self, offset: int) -> None:
        """Moves past the record at `position`, which was finished ahead."""
        del self.finished_ahead[offset]
        self.position += 1
        self.cursor = offset

    def pass_over(self, offset: int, index: int, size: int) -> None:
        """Count a message that is for another group only as finished, without a delivery."""
        if index < self.position:
            return
        jumped = index > self.position  # in a restart, past what was finished ahead and stepped over since
        self.position = index + 1
        self.cursor = offset
        self.done_bytes += size
        if jumped:
            self.skip_finished()

    def finish(self, offset: int, index: int, size: int) -> None:
        lease = self.take_out(offset)
        if lease is not None:
            self.done_bytes += lease.size
        elif index >= self.position:
            self.finished_ahead[offset] = (index, size)
            self.done_bytes += size

    def postpone(self, lease: Lease, due_ms: int) -> None:
        """Keep a message back until it is due."""
        lease.until_ms = due_ms
        if self.postponed.get(lease.offset) is not lease:
            if self.leases.pop(lease.offset, None) is not None:
                lease.let_go()
            self.postponed[lease.offset] = lease
            if lease.attempts:
                self.retrying += 1
        heappush(self.due, (due_ms, lease.offset))
        if lease.index >= self.position:
            self._pass(lease)

    def next_due(self, now_ms: int) -> Lease | None:
        """Return the postponed message that is due first, if it is due now."""
        due_ms = self.next_due_ms()
        return self.postponed[self.due[0][1]] if due_ms is not None and due_ms <= now_ms else None

    def next_due_ms(self) -> int | None:
        """Return when the next postponed message is due."""
        due = self.due
        while due:
            lease = self.postponed.get(due[0][1])
            if lease is not None and lease.until_ms == due[0][0]:
                return due[0][0]
            heappop(due)
        return None

    def move(self, index: int, cursor: int, done_bytes: int) -> None:
        """Goes on from `index`, whatever was held or finished around it."""
        self.position = index
        self.cursor = cursor
        self.done_bytes = done_bytes
        for lease in self.leases.values():
            lease.let_go()
        for held in (self.leases, self.postponed, self.due, self.finished_ahead):
            held.clear()
        self.retrying = 0
        if self.dead is not None:
            self.dead.drop_from(index)  # what comes again may be acked
        self.timer_ms = None
        self.unreadable = ""

    def trim(self, first_index: int, first_bytes: int, first_offset: int) -> int:
        """Retention removed the records below `first_index`; returns how many of them were not finished here."""
        # What was finished ahead and stepped over since is in no journal: a restart comes to the same end here.
        self.cursor = max(self.cursor, first_offset - 1)
        lost = 0
        for held in (self.leases, self.postponed):
            gone = [lease for lease in held.values() if lease.index < first_index]
            for lease in gone:
                self.take_out(lease.offset)
                self.done_bytes += lease.size
            lost += len(gone)
        if self.position < first_index:
            lost += first_index - self.position - self.partition.for_others(self.group.name, self.position, first_index)
            self.position = first_index
            before = len(self.finished_ahead)
            self.skip_finished()
            lost -= before - len(self.finished_ahead)
            self.done_bytes = first_bytes + sum(size for _, size in self.finished_ahead.values())
        if self.dead is not None:
            self.dead.drop_below(first_index)
        return lost


class Group:
    """Readers that share the messages of one topic: each message goes to one of them at a time."""

    __slots__ = (
        "consumers",
        "has_progress",
        "id",
        "last_seen_ms",
        "lost",
        "name",
        "parked",
        "paused",
        "progress",
        "pull_limits",
        "restored",
        "resumed_ms",
        "retry",
        "topic",
        "turn",
        "used_before_ms",
        "waiting",
    )

    def __init__(self, group_id: int, topic: Topic, name: str) -> None:
        self.id = group_id
        self.topic = topic
        self.name = name
        self.progress = [Progress(self, partition) for partition in topic.partitions]
        self.consumers: list[Consumer] = []
        self.turn = 0
        self.waiting: OrderedDict[Progress, None] = OrderedDict.fromkeys(self.progress)
        """Partitions that may have something to deliver, in the order in which they are served."""
        self.parked = 0
        """How many of `consumers` are parked."""
        self.pull_limits: dict[str, int] = {}
        """By owner: how many messages one pull gets, after leases of a pull ran out."""
        self.restored: dict[str, Lease] | None = None
        """By owner: the message it got first of those on lease when the broker started. None until one runs out."""
        self.last_seen_ms = 0
        self.resumed_ms = 0
        """When the broker was last started."""
        self.used_before_ms = 0
        """When the group was last used before that."""
        self.has_progress = False
        """It has acked a message, or was sent to a place; such a group does not expire."""
        self.lost = 0
        """Messages that retention removed before this group finished them (ruling 17)."""
        self.paused = False
        """Nothing is delivered until it is resumed; what is on lease may be finished."""
        self.retry: RetryPolicy | None = None
        """The retry policy set for this group; without one the topic's holds."""

    @property
    def used_ms(self) -> int:
        """When it was last used, over restarts."""
        return self.last_seen_ms if self.last_seen_ms > self.resumed_ms else self.used_before_ms

    def resume(self, now_ms: int) -> None:
        """Start to count its absence again. Its last use before stays known."""
        self.used_before_ms = self.last_seen_ms or now_ms
        self.last_seen_ms = self.resumed_ms = now_ms

    def next_consumer(self) -> Consumer | None:
        """Return the next consumer in turn that can take a message."""
        consumers = self.consumers
        count = len(consumers)
        if count == 1:
            return consumers[0] if consumers[0].ready else None
        for step in range(count):
            turn = (self.turn + step) % count
            if consumers[turn].ready:
                self.turn = turn + 1
                return consumers[turn]
        return None

    def next_probe(self, now_ms: int) -> Consumer | None:
        """Return a parked stream that may be offered again what ran out; only where all are parked."""
        if self.parked < len(self.consumers):
            return None
        return next((consumer for consumer in self.consumers if consumer.may_be_probed(now_ms)), None)

    def next_probe_ms(self) -> int | None:
        """Return when a parked stream may be offered a message again."""
        if not self.parked or self.parked < len(self.consumers):
            return None
        return min((consumer.probe_at_ms for consumer in self.consumers if not consumer.held), default=None)

    def has_other_ready(self, than: Consumer) -> bool:
        """Return whether another consumer could take a message now."""
        return any(consumer.ready for consumer in self.consumers if consumer is not than)

    def is_behind_restored(self, lease: Lease) -> bool:
        """Return whether its owner got another message first, of those that were on lease when the broker started.

        Which stream had them is not known any more. So of all that an owner held, only that one counts as attempted.
        """
        if self.restored is None:
            self.restored = {}
            for progress in self.progress:
                for held in progress.leases.values():
                    first = self.restored.get(held.owner)
                    if held.consumer is None and (first is None or held.order < first.order):
                        self.restored[held.owner] = held
        return self.restored.get(lease.owner) is not lease

    def can_take(self) -> bool:
        """Return whether some consumer is ready, and may be served."""
        return not self.paused and any(consumer.ready for consumer in self.consumers)

    def heard_from(self, owner: str, stream: Consumer | None = None) -> bool:
        """Unpark the stream that settled or extended something; return whether it was parked.

        Where it is not known which it was, or it has ended, those of its owner are meant.
        """
        is_known = stream is not None and stream.attached
        woken = [
            consumer
            for consumer in self.consumers
            if consumer.parked_ms is not None and (consumer is stream if is_known else consumer.owner == owner)
        ]
        for consumer in woken:
            consumer.wake()
        self.parked -= len(woken)
        return bool(woken)

    def pull_ran_out(self, consumer: Consumer) -> None:
        """A lease of a pull ran out: the owner's next pull gets half of what it finished of this one."""
        limits = self.pull_limits
        limits.pop(consumer.owner, None)
        if len(limits) >= PULL_LIMITS_MAX:
            del limits[next(iter(limits))]
        limits[consumer.owner] = max(1, consumer.acked // 2)

    def pull_finished(self, consumer: Consumer) -> None:
        """A pull was finished in time: the owner's next one may be twice as large."""
        limit = self.pull_limits.get(consumer.owner)
        if limit is None:
            return
        if limit >= PULL_LIMIT_MAX:
            del self.pull_limits[consumer.owner]
        else:
            self.pull_limits[consumer.owner] = 2 * limit
