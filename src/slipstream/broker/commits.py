"""Commits: messages of several requests and topics that are stored together, once (ADR 25).

Many processes stage parts, one of them commits them. The messages and the writer's sequence are in one frame of the
journal, so that a crash leaves both or neither, and a repeat finds that it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from slipstream.broker.changes import GroupMoved, WriterCommitted, encode_change
from slipstream.broker.config import BrokerConfig
from slipstream.broker.consumption import Consumed, Moves, plan_moves
from slipstream.broker.effects import Effects
from slipstream.broker.errors import BrokerFull
from slipstream.broker.group import Group
from slipstream.broker.intake import Intake
from slipstream.broker.message import NewMessage
from slipstream.broker.name import check_name
from slipstream.broker.parts import Part, Parts
from slipstream.broker.state import State
from slipstream.broker.topic import Partition, Topic


class Commits:
    """Parts that wait, and the sequences of those who commit them. A command that raises has changed nothing."""

    def __init__(
        self,
        config: BrokerConfig,
        state: State,
        intake: Intake,
        effects: Effects,
        find_move: Callable[[Partition, int], GroupMoved],
        group_for: Callable[[Topic, str], Group],
        moved: Callable[[Group, int], None],
    ) -> None:
        """`find_move` says how a group gets to an index of a partition, `group_for` makes one that is new, and `moved`
        is told of those that were."""
        self.config = config
        self.find_move = find_move
        self.group_for = group_for
        self.moved = moved
        self.state = state
        self.intake = intake
        self.effects = effects
        self.parts = Parts(config.staged_ttl_ms, config.staged_bytes_max)

    def stage(
        self,
        now_ms: int,
        part_id: str,
        writer: str,
        sequence: int,
        topic: str,
        messages: Sequence[NewMessage],
        size: int,
        attempt: str = "",
    ) -> Part:
        """Keeps the messages until they are committed, under an id that nobody else has. Whether they can be stored is
        found out then; only a topic that is not there is refused now. With the first of another attempt, what was
        staged for the same commit before is forgotten."""
        check_name("writer", writer)
        if attempt:
            check_name("attempt", attempt)
        self.intake.check_writable(topic)
        part = Part(
            id=part_id,
            writer=writer,
            sequence=sequence,
            topic=topic,
            messages=messages,
            size=size,
            expires_ms=now_ms + self.config.staged_ttl_ms,
            attempt=attempt,
        )
        self.parts.add(part, now_ms)
        return part

    def commit(
        self, now_ms: int, writer: str, sequence: int, ids: Sequence[str], consumed: Sequence[Consumed] = ()
    ) -> bool:
        """Stores all messages of these parts, that the writer has come this far and that groups have consumed these
        windows; False if the writer had before.

        What is refused leaves the parts where they are: the writer may try again.
        """
        check_name("writer", writer)
        last = self.state.writers.last(writer, now_ms)
        if last is not None and sequence <= last:
            self.parts.forget(writer, last)
            return False
        parts = self.parts.find(writer, sequence, ids, now_ms)
        if last is None and self._is_full(now_ms):
            raise BrokerFull("max_writers", self.config.writers_max, "writers")
        moves = plan_moves(self.state, consumed, self.find_move)
        self._check_groups(moves)
        self.intake.produce_parts(now_ms, parts)
        groups = [self._move(each) for each in moves]
        change = WriterCommitted(writer, sequence, now_ms)
        self.effects.changes.append(encode_change(change))
        self.state.writer_committed(change)
        self.parts.forget(writer, sequence)
        for group in groups:
            self.moved(group, now_ms)
        return True

    def _check_groups(self, moves: Sequence[Moves]) -> None:
        """Before anything is stored: those that are new can be made."""
        new = [each for each in moves if each.group not in each.topic.groups]
        for each in new:
            check_name("group", each.group)
        if new and len(self.state.groups_by_id) + len(new) > self.config.groups_max:
            raise BrokerFull("max_groups", len(self.state.groups_by_id), "groups")

    def _move(self, moves: Moves) -> Group:
        group = self.group_for(moves.topic, moves.group)
        for move in moves.moves:
            change = replace(move, group_id=group.id)
            self.effects.changes.append(encode_change(change))
            self.state.group_moved(change)
        return group

    def unstage(self, now_ms: int, writer: str, sequence: int, ids: Sequence[str] | None = None) -> list[Part]:
        """Forgets these parts of a commit that will not be made, or all of them."""
        check_name("writer", writer)
        return self.parts.take_back(writer, sequence, ids, now_ms)

    def last(self, now_ms: int, writer: str) -> int | None:
        """How far the writer has come; None if nothing is known of it."""
        check_name("writer", writer)
        return self.state.writers.last(writer, now_ms)

    def _is_full(self, now_ms: int) -> bool:
        # Those that are past their time are looked for only if they could matter.
        writers, most = self.state.writers, self.config.writers_max
        return len(writers) >= most and writers.count(now_ms) >= most
