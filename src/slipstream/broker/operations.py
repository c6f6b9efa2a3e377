"""What an operator does with single messages of a group, whichever consumer holds them.

No lease has to be owned for any of it. Each operation is in the journal before it is answered, like any other command.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from slipstream.broker.changes import Extended, Failed, Finished, Outcome, Postponed, encode_change
from slipstream.broker.config import BrokerConfig
from slipstream.broker.delivery import Dispatcher
from slipstream.broker.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from slipstream.broker.evidence import attempt_of, with_attempt
from slipstream.broker.group import Group, Progress
from slipstream.broker.lease import Lease
from slipstream.broker.name import check_name
from slipstream.broker.state import State
from slipstream.broker.topic import DEAD_LETTER_PREFIX
from slipstream.record import LogUnreadable

OPERATIONS = ("retry", "reject", "discard", "extend", "release")


class _Found(msgspec.Struct, frozen=True):
    """A message that the group has not finished."""

    progress: Progress
    offset: int
    index: int
    lease: Lease | None
    """None where the message was never delivered and is not delayed."""

    @property
    def is_leased(self) -> bool:
        return self.offset in self.progress.leases

    @property
    def place(self) -> str:
        partition = self.progress.partition
        return f"{partition.topic.name}/{partition.number}/{self.offset}"


class Operations:
    """Retry, reject, discard, extend and release. A call that raises has changed nothing."""

    def __init__(self, config: BrokerConfig, state: State, dispatcher: Dispatcher) -> None:
        self.config = config
        self.state = state
        self.dispatcher = dispatcher
        self.totals: Counter[str] = Counter()
        """How many messages each operation was done to, by its name."""

    def retry(self, now_ms: int, group: Group, partition: int, offset: int) -> None:
        """Deliver a message that waits for its next attempt, or that is delayed, as soon as a consumer can take it."""
        found = self._find(group, partition, offset)
        progress, lease = found.progress, found.lease
        if lease is None:
            raise FailedPrecondition(f"{found.place} was not delivered to {group.name} yet: its first attempt is next")
        if offset in progress.leases:
            raise FailedPrecondition(
                f"{found.place} is on lease to {lease.owner}: release it, and it is delivered again at once"
            )
        if not lease.attempts:
            due = Postponed(group.id, partition, offset, lease.index, lease.size, now_ms)
            self._emit(due)
            self.state.postponed(due)
        elif lease.until_ms > now_ms:
            self._postpone(progress, lease, now_ms, released=lease.released)
        self._done("retry", progress, now_ms)

    def reject(self, now_ms: int, group: Group, partition: int, offset: int, reason: str = "") -> None:
        """Move the message to the dead letters of its topic, and finish it for the group."""
        topic = group.topic
        if topic.is_dead_letter:
            raise InvalidArgument(f"{topic.name} holds dead letters, which are never dead-lettered again: discard it")
        if not topic.config.dead_letters:
            raise FailedPrecondition(f"{topic.name} keeps no dead letters (dead_letters): discard the message instead")
        found = self._find(group, partition, offset)
        progress, index = found.progress, found.index
        try:
            record = progress.partition.log.read(index)
        except LogUnreadable as error:
            raise Unavailable(f"{found.place} cannot be read: {error}") from error
        lease = found.lease or Lease(offset, index, record.size, 0, "", 0)
        said = f"rejected by an operator: {reason.strip()}" if reason.strip() else "rejected by an operator"
        lease.last_error = self.dispatcher.join_errors(lease.last_error, said)
        if found.is_leased:  # the attempt of its owner ends with it
            attempt = attempt_of(
                lease.attempts, lease.delivered_ms, now_ms, lease.owner, said, "", self.dispatcher.evidence
            )
            lease.evidence = with_attempt(lease.evidence, attempt)
        self.dispatcher.dead_letter(progress, record, index, lease, Outcome.REJECTED_BY_OPERATOR, now_ms)
        self._done("reject", progress, now_ms)

    def discard(self, now_ms: int, group: Group, partition: int, offset: int) -> None:
        """Finish the message for the group, as if it had been acked. The log keeps it until retention removes it."""
        found = self._find(group, partition, offset)
        progress, index = found.progress, found.index
        try:
            size = progress.partition.log.read(index).size
        except LogUnreadable as error:
            raise Unavailable(f"{found.place} cannot be read: {error}") from error
        finished = Finished(group.id, partition, offset, Outcome.DISCARDED, size, index)
        self._emit(finished)
        self.state.finished(finished)
        self._done("discard", progress, now_ms)

    def extend(self, now_ms: int, group: Group, partition: int, offset: int, lease_ms: int = 0) -> int:
        """Give the owner of the lease more time, counted from now; return when the lease ends."""
        if not 0 <= lease_ms <= self.config.lease_ms_max:
            raise InvalidArgument(f"lease_ms must be between 0 and {self.config.lease_ms_max} (lease_ms_max)")
        progress, _ = self._leased(group, partition, offset)
        until_ms = now_ms + (lease_ms or self.config.lease_ms)
        extended = Extended(group.id, partition, offset, until_ms)
        self._emit(extended)
        self.state.extended(extended)
        self.dispatcher.set_timer(progress, until_ms)
        self._done("extend", progress, now_ms)
        return until_ms

    def release(self, now_ms: int, group: Group, partition: int, offset: int) -> None:
        """End the lease: the message is delivered again at once, and the attempt does not count towards the limit."""
        progress, lease = self._leased(group, partition, offset)
        self._postpone(progress, lease, now_ms, released=True, excused=True)
        self._done("release", progress, now_ms)

    def release_owner(self, now_ms: int, owner: str, topic: str = "", group_name: str = "") -> dict[Group, int]:
        """Release every lease of an owner, of one topic or group where that is named; return how many, by group."""
        check_name("owner", owner)
        if group_name and not topic:
            raise InvalidArgument("a group belongs to a topic: name the topic too")
        released: Counter[Group] = Counter()
        for group in self._groups(topic, group_name):
            for progress in group.progress:
                held = [lease for lease in progress.leases.values() if lease.owner == owner]
                for lease in held:
                    self._postpone(progress, lease, now_ms, released=True, excused=True)
                if held:
                    released[group] += len(held)
                    self.totals["release"] += len(held)
        for group in released:  # only now: the owner may be connected, and would get what is released next
            for progress in group.progress:
                self.dispatcher.dispatch(progress, now_ms)
        return dict(released)

    def find(self, group: Group, partition: int, offset: int) -> Lease | None:
        """Return what the group holds of a message it has not finished; None where it was never delivered.

        Raises NotFound where there is no such message, and FailedPrecondition where the group has finished it.
        """
        return self._find(group, partition, offset).lease

    def _groups(self, topic: str, group_name: str) -> list[Group]:
        if not topic:
            return list(self.state.groups_by_id.values())
        groups = self.state.topic(topic).groups
        if not group_name:
            return list(groups.values())
        if group_name not in groups:
            raise NotFound(f"{topic} has no group {group_name!r}")
        return [groups[group_name]]

    def _find(self, group: Group, number: int, offset: int) -> _Found:
        topic = group.topic
        if not 0 <= number < len(topic.partitions):
            raise NotFound(f"partition out of range: {topic.name} has partitions 0 to {len(topic.partitions) - 1}")
        progress = group.progress[number]
        partition = progress.partition
        lease = progress.leases.get(offset) or progress.postponed.get(offset)
        if lease is not None:
            return _Found(progress, offset, lease.index, lease)
        place = f"{topic.name}/{number}/{offset}"
        try:
            index = partition.log.index_of(offset)
        except LogUnreadable as error:
            raise Unavailable(f"whether there is a message {place} cannot be read: {error}") from error
        if index is None or not partition.first_index <= index < partition.committed:
            raise NotFound(f"there is no message {place}, or retention has removed it")
        if progress.dead is not None and index in progress.dead:
            kept = topic.config.dead_letters
            end = f"is a dead letter in {DEAD_LETTER_PREFIX}{topic.name}" if kept else "was given up"
            raise FailedPrecondition(f"group {group.name} has finished {place}: it {end}")
        if index < progress.position or offset in progress.finished_ahead:
            raise FailedPrecondition(f"group {group.name} has finished {place}")
        if partition.first_for(group.name, index) != index:
            raise FailedPrecondition(f"{place} was redriven for another group only: {group.name} does not get it")
        return _Found(progress, offset, index, None)

    def _leased(self, group: Group, partition: int, offset: int) -> tuple[Progress, Lease]:
        found = self._find(group, partition, offset)
        if found.lease is None or not found.is_leased:
            raise FailedPrecondition(f"{found.place} is not on lease in group {group.name}")
        return found.progress, found.lease

    def _postpone(
        self, progress: Progress, lease: Lease, now_ms: int, *, released: bool, excused: bool = False
    ) -> None:
        """Make the next attempt due now, with the errors and the number of attempts as they are."""
        change = Failed(
            progress.group.id,
            progress.partition.number,
            lease.offset,
            lease.last_error,
            now_ms,
            released,
            excused,
            is_attempted=lease.is_attempted,
        )
        self._emit(change)
        self.state.failed(change)

    def _emit(self, change: Failed | Postponed | Finished | Extended) -> None:
        self.dispatcher.effects.changes.append(encode_change(change))

    def _done(self, operation: str, progress: Progress, now_ms: int) -> None:
        self.totals[operation] += 1
        self.dispatcher.dispatch(progress, now_ms)
