"""A consumer group: who reads, how far it is in each partition, and what it holds on lease."""

from __future__ import annotations

import enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.broker.topic import Partition, Topic


class LeaseState(enum.IntEnum):
    LEASED = 0
    """With its owner; `until_ms` is when the lease runs out."""
    WAITING = 1
    """Failed; `until_ms` is when the next attempt is due."""
    READY = 2
    """Due for the next attempt, as soon as somebody can take it."""


class Lease:
    """A message that was delivered and is not finished yet."""

    __slots__ = ("attempts", "index", "last_error", "offset", "owner", "released", "size", "state", "until_ms")

    def __init__(self, offset: int, index: int, size: int, attempts: int, owner: str, until_ms: int) -> None:
        self.offset = offset
        self.index = index
        self.size = size
        self.attempts = attempts
        self.owner = owner
        self.until_ms = until_ms
        self.state = LeaseState.LEASED
        self.last_error = ""
        self.released = False
        """The owner gave it back (nack); an expired lease is not released and still belongs to its owner (ruling 3)."""


class Consumer:
    """Somebody who reads for a group. The broker hands it messages while it is `open` and has credit and room left."""

    __slots__ = ("credit", "group", "lease_ms", "open", "owner", "sink", "unsent_bytes", "window_bytes")

    def __init__(
        self, group: Group, owner: str, lease_ms: int, credit: int | None, sink: object, window_bytes: int
    ) -> None:
        self.group = group
        self.owner = owner
        self.lease_ms = lease_ms
        self.credit = credit
        """How many more messages it takes; None for a stream, which takes them as they come."""
        self.open = True
        """False while the reader does not keep up."""
        self.sink = sink
        """Where its messages go; the broker only carries it back to whoever attached the consumer."""
        self.window_bytes = window_bytes
        self.unsent_bytes = 0
        """Handed out since the last time something was sent. Whether the reader keeps up shows only then, so past the
        window the broker waits for it: all that the group's limit allows may be hundreds of megabytes."""

    @property
    def ready(self) -> bool:
        return self.open and self.credit != 0 and self.unsent_bytes < self.window_bytes

    def has_room(self, size: int) -> bool:
        """Whether a message of this size is within what was asked for; the first one always is.

        A stream is asked for no size: its window only says when to wait.
        """
        return self.credit is None or self.unsent_bytes == 0 or self.unsent_bytes + size <= self.window_bytes


class Progress:
    """How far a group is in one partition.

    Everything before `position` was delivered at least once, or is not due yet. Of that, exactly the messages in
    `leases` and `postponed` are not finished; so each ack is remembered on its own (ruling 2) at a cost bounded by what
    is in flight, not by how long the oldest unfinished message has been stuck.
    """

    __slots__ = (
        "cursor",
        "done_bytes",
        "due",
        "finished_ahead",
        "group",
        "leases",
        "oldest_seen",
        "partition",
        "position",
        "postponed",
        "ready",
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
        """By offset, in order of first delivery."""
        self.ready: list[int] = []
        """Heap of offsets due for redelivery; may hold stale ones."""
        self.postponed: dict[int, Lease] = {}
        """By offset: passed over, because they were not due yet. They do not count as in flight."""
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
        return self.partition.committed - self.done

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

    def deliver(self, lease: Lease) -> None:
        """Takes note of a delivery, first or repeated."""
        self.leases[lease.offset] = lease
        if lease.index >= self.position:
            self._pass(lease)

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

    def finish(self, offset: int, index: int, size: int) -> None:
        lease = self.leases.pop(offset, None) or self.postponed.pop(offset, None)
        if lease is not None:
            self.done_bytes += lease.size
        elif index >= self.position:
            self.finished_ahead[offset] = (index, size)
            self.done_bytes += size

    def postpone(self, lease: Lease) -> None:
        """Passes over the record at `position` until it is due."""
        self.postponed[lease.offset] = lease
        heappush(self.due, (lease.until_ms, lease.offset))
        if lease.index >= self.position:
            self._pass(lease)

    def next_due(self, now_ms: int) -> Lease | None:
        """Of what was postponed, what is due first, if it is due now."""
        while self.due and self.due[0][0] <= now_ms:
            lease = self.postponed.get(self.due[0][1])
            if lease is not None:
                return lease
            heappop(self.due)
        return None

    def next_due_ms(self) -> int | None:
        """When the next of what was postponed is due."""
        while self.due and self.due[0][1] not in self.postponed:
            heappop(self.due)
        return self.due[0][0] if self.due else None

    def move(self, index: int, cursor: int, done_bytes: int) -> None:
        """Goes on from `index`, whatever was held or finished around it."""
        self.position = index
        self.cursor = cursor
        self.done_bytes = done_bytes
        for held in (self.leases, self.ready, self.postponed, self.due, self.finished_ahead):
            held.clear()
        self.timer_ms = None
        self.unreadable = ""

    def make_ready(self, lease: Lease) -> None:
        lease.state = LeaseState.READY
        heappush(self.ready, lease.offset)

    def next_ready(self) -> Lease | None:
        """The lowest offset that is due again; it stays in `leases`."""
        while self.ready:
            lease = self.leases.get(self.ready[0])
            if lease is not None and lease.state is LeaseState.READY:
                return lease
            heappop(self.ready)
        return None

    def trim(self, first_index: int, first_bytes: int, first_offset: int) -> int:
        """Retention removed the records below `first_index`; returns how many of them were not finished here."""
        # What was finished ahead and stepped over since is in no journal: a restart comes to the same end here.
        self.cursor = max(self.cursor, first_offset - 1)
        lost = 0
        for held in (self.leases, self.postponed):
            gone = [lease for lease in held.values() if lease.index < first_index]
            for lease in gone:
                del held[lease.offset]
                self.done_bytes += lease.size
            lost += len(gone)
        if self.position < first_index:
            lost += first_index - self.position
            self.position = first_index
            before = len(self.finished_ahead)
            self.skip_finished()
            lost -= before - len(self.finished_ahead)
            self.done_bytes = first_bytes + sum(size for _, size in self.finished_ahead.values())
        return lost


class Group:
    """Readers who share the messages of one topic: each message goes to one of them at a time."""

    __slots__ = ("consumers", "first", "id", "last_seen_ms", "lost", "name", "paused", "progress", "topic", "turn")

    def __init__(self, group_id: int, topic: Topic, name: str) -> None:
        self.id = group_id
        self.topic = topic
        self.name = name
        self.progress = [Progress(self, partition) for partition in topic.partitions]
        self.consumers: list[Consumer] = []
        self.turn = 0
        self.first = 0
        """The partition to be served first: those before it had their share when the consumers could take no more."""
        self.last_seen_ms = 0
        self.lost = 0
        """Messages that retention removed before this group finished them (ruling 17)."""
        self.paused = False
        """Nothing is delivered until it is resumed; what is on lease may be finished."""

    def next_consumer(self) -> Consumer | None:
        """The next one in turn that can take a message."""
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

    def can_take(self) -> bool:
        """Whether some consumer is ready, and may be served."""
        return not self.paused and any(consumer.ready for consumer in self.consumers)
