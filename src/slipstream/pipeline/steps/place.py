"""Where a step is: its topic on a server, and how far its group has come there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.client import Client, Conflict, InvalidArgument, NotFound
from slipstream.pipeline.source.standing import TopicStanding
from slipstream.pipeline.steps.window import Window
from slipstream.slip.identity import identity

if TYPE_CHECKING:
    from slipstream.api import GroupInfo
    from slipstream.pipeline.source.log import Log
    from slipstream.pipeline.steps.step import SparkStep

log = logging.getLogger(__name__)

WAIT_MS = 1_000
"""For new messages, at a time."""


class Position(msgspec.Struct, frozen=True):
    """How far a group has come in each partition of a topic."""

    incarnation: str
    starts: dict[int, int]


class Busy(Exception):
    """Nobody may go on with the step for now; the text says why."""


class MovedOn(Exception):
    """The group is elsewhere than we left it, or what was staged is gone: nothing was committed."""


class TooMuch(Exception):
    """So many answers can never be stored at once."""


class Place:
    """A step's topic, as one runner sees it."""

    def __init__(self, client: Client, log: Log, step: SparkStep[Any, Any], prefix: str) -> None:
        self.client = client
        self.topic = prefix + step.topic
        self.group = step.group
        # One for all who ever run the step: the server keeps each for a month.
        self.writer = f"step:{identity(self.topic, self.group)[:32]}"
        self._log = log

    def standing(self, known: TopicStanding | None = None) -> TopicStanding | None:
        """How far the topic reaches; with `known`, as soon as that is further, or after a while. None for no topic."""
        seen = None if known is None else {known.name: known}
        return self._log.standing([self.topic], known=seen, wait_ms=0 if known is None else WAIT_MS).get(self.topic)

    def position(self, standing: TopicStanding) -> Position:
        """Where the group is. Raises Busy while others read for it, or it is paused."""
        starts = {each.number: each.first for each in standing.partitions}
        try:
            group = self.client.group(self.topic, self.group)
        except NotFound:
            return Position(standing.incarnation, starts)  # the first commit makes it
        if group.paused:
            raise Busy(
                f"group {self.group} of {self.topic} is paused: slipstream group resume {self.topic} {self.group}"
            )
        if group.in_flight or group.retrying or group.delayed:
            group = self._taken_over(group)
        starts |= {each.partition: each.watermark + 1 for each in group.partitions}
        return Position(standing.incarnation, starts)

    def _taken_over(self, group: GroupInfo) -> GroupInfo:
        """A worker that is gone may have left messages that nobody holds any more: they are done again, as they would
        be by another worker. Raises Busy where somebody holds them."""
        if group.consumers or any(each.state == "leased" for each in group.messages):
            raise Busy(
                f"{group.in_flight} messages of {self.topic} are in the hands of a worker: a step is done by workers "
                "or on Spark; stop one of them"
            )
        left = group.in_flight + group.retrying
        log.warning("%d messages of %s that a worker has left are done again", left, self.topic)
        for each in group.partitions:
            if each.in_flight or each.retrying or each.delayed:
                group = self.client.seek(self.topic, self.group, offset=each.watermark + 1, partition=each.partition)
        return group

    def last_sequence(self) -> int:
        """Of the step's last commit, whoever made it."""
        return self.client.writer_sequence(self.writer) or 0

    def commit(self, sequence: int, staged: list[str], window: Window, incarnation: str) -> None:
        """Stores the answers, and that the group has this behind it. Raises MovedOn and TooMuch."""
        consumed = window.consumed(self.topic, incarnation, self.group)
        try:
            committed = self.client.commit(self.writer, sequence, staged, consumed=consumed)
        except Conflict as error:
            raise MovedOn(str(error)) from error
        except InvalidArgument as error:
            raise TooMuch(str(error)) from error
        if not committed:
            # By us, and the answer was lost; or by another. Where the group is says which.
            raise MovedOn("a commit of this number, or a higher one, was made before")

    def take_back(self, sequence: int) -> None:
        self.client.unstage(self.writer, sequence)
