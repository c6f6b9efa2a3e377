"""What is wrong, worst first, in words for somebody who was woken by it.

A pure function from what is known to what to say: no clock, no network. Who collects what is known: `watch`, and each
noun's `look`.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import msgspec

from slipstream.api.overview import Level, Part, Problem
from slipstream.api.server import ServerCondition
from slipstream.console.settings import Thresholds
from slipstream.durations import about_text

SHOWN_MAX = 100

_RANK: dict[Level, int] = {"error": 0, "warning": 1, "notice": 2}


class GroupSeen(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    group: str
    lag: int
    """All that is not finished."""
    in_flight: int = 0
    delayed: int = 0
    consumers: int = 0
    paused: bool = False
    oldest_ms: int = 0
    still_ms: int = 0
    """For how long it has had work, and finished nothing."""

    @property
    def waiting(self) -> int:
        """What nobody has taken, and is due."""
        return max(0, self.lag - self.in_flight - self.delayed)

    @property
    def named(self) -> str:
        return f"group {self.group} of {self.topic}"


class DeadLettersSeen(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    arrived: int
    """Lately."""
    since_ms: int
    """Since the first of those."""
    total: int
    kept_in: str = ""
    """The topic they are in, where it is one of the bus; the broker's own have a page."""


class SlipSeen(msgspec.Struct, frozen=True, kw_only=True):
    correlation_id: str
    step: str
    going: str
    for_ms: int


class SlipsSeen(msgspec.Struct, frozen=True, kw_only=True):
    stuck: tuple[SlipSeen, ...] = ()
    """The longest first; not more than can be looked at in a moment."""
    more_stuck: bool = False
    waiting: tuple[SlipSeen, ...] = ()
    more_waiting: bool = False
    failed: tuple[SlipSeen, ...] = ()
    """Lately, the newest first."""
    more_failed: bool = False


class PausedStep(msgspec.Struct, frozen=True, kw_only=True):
    step: str
    reason: str = ""
    left_ms: int | None = None


class UnservedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that messages of a step are sent to and that no worker has ever subscribed to."""

    topic: str
    step: str
    for_ms: int


class JobsSeen(msgspec.Struct, frozen=True, kw_only=True):
    failed: int = 0
    """Lately."""
    partial: int = 0
    """Of which some resources could not be had."""
    newest_id: str = ""
    newest_reason: str = ""


class TableSeen(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    lag: int
    written_ms_ago: int
    unread_ms: int
    """For so long something was there to read and nothing was written."""


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """Something that should be there and cannot be asked."""

    what: str
    reason: str
    link: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known."""

    now_ms: int
    away: str = ""
    """Why the broker does not answer."""
    away_ms: int = 0
    trouble: str = ""
    """Why the broker refuses messages."""
    conditions: tuple[ServerCondition, ...] = ()
    """What should be mended at the broker while it takes messages."""
    groups: tuple[GroupSeen, ...] = ()
    dead_letters: tuple[DeadLettersSeen, ...] = ()
    parts: tuple[Part, ...] = ()
    slips: SlipsSeen = SlipsSeen()
    paused_steps: tuple[PausedStep, ...] = ()
    unserved_topics: tuple[UnservedTopic, ...] = ()
    jobs: JobsSeen = JobsSeen()
    tables: tuple[TableSeen, ...] = ()
    unseen: tuple[Unseen, ...] = ()


def problems(seen: Seen, limits: Thresholds) -> list[Problem]:
    """The worst first; of two as bad, the one that concerns more.

    Example:
        for problem in problems(seen, Thresholds()): print(problem.text)
    """
    found = [
        *_of_the_broker(seen),
        *_of_parts(seen, limits),
        *(problem for group in seen.groups for problem in _of_a_group(group, limits)),
        *_of_dead_letters(seen),
        *_of_slips(seen),
        *_of_jobs(seen),
        *_of_tables(seen, limits),
        *_of_the_unseen(seen),
    ]
    found.sort(key=lambda each: (_RANK[each[1].level], -each[0]))
    told = [problem for _, problem in found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        told.append(Problem(level="notice", text=f"and {_count(len(found) - SHOWN_MAX, 'problem')} more"))
    return told


Weighed = tuple[float, Problem]
"""A problem, and how much it weighs among those that are as bad."""

_FIRST = float("inf")


def _of_the_broker(seen: Seen) -> Iterator[Weighed]:
    if seen.away:
        text = f"the broker has not answered for {about_text(seen.away_ms)}: what is shown is from before"
        yield _FIRST, Problem(level="error", text=text, detail=seen.away, link="#/")
    if seen.trouble:
        yield (
            _FIRST,
            Problem(level="error", text="the broker takes no messages", detail=seen.trouble, link="#/"),
        )
    for condition in seen.conditions:
        yield _FIRST, Problem(level=condition.level, text=condition.text, detail=condition.detail, link="#/")


def _of_parts(seen: Seen, limits: Thresholds) -> Iterator[Weighed]:
    for part in seen.parts:
        for_ms = max(0, seen.now_ms - part.since_ms)
        lately = part.restarts and for_ms < limits.restarted_ms
        times = _times(part.restarts)
        match part.state:
            case "crashed":
                level: Level = "error"
                text = f"part {part.name} has crashed" + (
                    f", and was restarted {times} before" if part.restarts else ""
                )
            case "stopped":
                level, text = "warning", f"part {part.name} is stopped"
            case "starting" if for_ms >= limits.standing_ms:
                level, text = "warning", f"part {part.name} has been starting for {about_text(for_ms)}"
            case "waiting" if for_ms >= limits.standing_ms:
                level, text = "warning", f"part {part.name} has been waiting for {about_text(for_ms)}"
            case "starting" | "running" if lately:
                level = "warning"
                text = f"part {part.name} was restarted {times}, last {about_text(for_ms)} ago"
            case _:
                continue
        yield part.restarts, Problem(level=level, text=text, detail=part.reason, link="#/")


def _of_a_group(group: GroupSeen, limits: Thresholds) -> Iterator[Weighed]:
    link = f"#/groups/{_path(group.topic)}/{_path(group.group)}"
    oldest = f"the oldest for {about_text(group.oldest_ms)}"
    still = about_text(group.still_ms)
    level: Level = "error" if group.still_ms >= limits.standing_error_ms else "warning"
    if group.paused:
        level = "warning" if group.lag else "notice"
        text = f"{group.named} is paused: {_waiting(group.lag)}" if group.lag else f"{group.named} is paused"
        yield group.lag, Problem(level=level, text=text, detail="resume it when what was mended is mended", link=link)
    elif group.waiting and not group.consumers and group.still_ms >= limits.standing_ms:
        text = f"{group.named} has no consumer for {still}: {_waiting(group.waiting)}, {oldest}"
        yield group.waiting, Problem(level=level, text=text, detail="start a worker of this group", link=link)
    elif group.waiting and group.still_ms >= limits.standing_ms:
        text = f"{group.named} stands still for {still}: {_waiting(group.waiting)}"
        yield group.waiting, Problem(level=level, text=text, detail=_why_still(group), link=link)
    elif group.lag > group.delayed and group.oldest_ms >= limits.oldest_ms:
        text = f"{group.named} is behind: {_waiting(group.lag)}, {oldest}"
        detail = "it works, and more comes than it finishes: give it more consumers, or look at the slowest step"
        yield group.lag, Problem(level="warning", text=text, detail=detail, link=link)


def _why_still(group: GroupSeen) -> str:
    consumers = _count(group.consumers, "consumer")
    if group.in_flight:
        return f"{consumers}, with {group.in_flight:,} in hand and none finished: is what they depend on away?"
    return f"{consumers}, and nothing in hand: are they stuck?"


def _of_dead_letters(seen: Seen) -> Iterator[Weighed]:
    for dead in seen.dead_letters:
        if dead.arrived:
            text = (
                f"{_count(dead.arrived, 'message')} of {dead.topic} became "
                f"{'a dead letter' if dead.arrived == 1 else 'dead letters'} in the last {about_text(dead.since_ms)}"
            )
            todo = "look at them, and mend the cause" if dead.kept_in else "look at their causes, mend, and redrive"
            detail = f"{dead.total:,} there altogether: {todo}"
            link = f"#/topics/{_path(dead.kept_in)}" if dead.kept_in else f"#/dead-letters?topic={_path(dead.topic)}"
            yield dead.arrived, Problem(level="warning", text=text, detail=detail, link=link)


def _of_slips(seen: Seen) -> Iterator[Weighed]:
    for slips, more, level, told, state in (
        (seen.slips.stuck, seen.slips.more_stuck, "warning", ("is stuck", "are stuck"), "stuck"),
        (seen.slips.waiting, seen.slips.more_waiting, "notice", ("waits for a word", "wait for a word"), "waiting"),
    ):
        if not slips:
            continue
        longest = slips[0]
        one = len(slips) == 1 and not more
        count = ("more than " if more else "") + _count(len(slips), "slip")
        where = f" at {longest.step}" if longest.step else ""
        text = f"{count} {told[0] if one else told[1]}, {'' if one else 'the longest '}for {about_text(longest.for_ms)}"
        link = f"#/slips/{_path(longest.correlation_id)}" if one else f"#/slips?state={state}"
        detail = f"{longest.correlation_id}{where}: {longest.going}"
        yield len(slips), Problem(level=level, text=text, detail=detail, link=link)  # type: ignore[arg-type]
    if failed := seen.slips.failed:
        count = ("more than " if seen.slips.more_failed else "") + _count(len(failed), "slip")
        one = len(failed) == 1 and not seen.slips.more_failed
        text = f"{count} failed, {'' if one else 'the last '}{about_text(failed[0].for_ms)} ago"
        link = f"#/slips/{_path(failed[0].correlation_id)}" if one else "#/slips?state=dead-lettered"
        where = f" at {failed[0].step}" if failed[0].step else ""
        detail = f"{failed[0].correlation_id}{where}: {failed[0].going}"
        yield len(failed), Problem(level="warning", text=text, detail=detail, link=link)
    for unserved in seen.unserved_topics:
        text = f"no worker for step {unserved.step}: nothing subscribes to {unserved.topic}"
        detail = "start a worker whose step names this topic, or change the topic in the route table"
        yield unserved.for_ms, Problem(level="error", text=text, detail=detail, link="#/slips?state=under-way")
    for step in seen.paused_steps:
        until = f" for another {about_text(step.left_ms)}" if step.left_ms is not None else ""
        text = f"step {step.step} is paused{until}" + (f": {step.reason}" if step.reason else "")
        yield 0, Problem(level="warning", text=text, detail="its messages wait there", link="#/slips")


def _of_jobs(seen: Seen) -> Iterator[Weighed]:
    jobs = seen.jobs
    count = jobs.failed + jobs.partial
    if count:
        text = f"{_count(count, 'job')} failed lately"
        if jobs.partial:
            text += " in part" if not jobs.failed else f", {jobs.partial:,} of them in part"
        link = f"#/jobs?state={'failed' if jobs.failed else 'partial'}"
        if count == 1:
            link = f"#/jobs/{_path(jobs.newest_id)}"
        detail = f"{jobs.newest_id}: {jobs.newest_reason}" if jobs.newest_reason else jobs.newest_id
        yield count, Problem(level="warning", text=text, detail=detail, link=link)


def _of_tables(seen: Seen, limits: Thresholds) -> Iterator[Weighed]:
    late = [each for each in seen.tables if each.lag and each.unread_ms >= limits.table_behind_ms]
    if not late:
        return
    worst = max(late, key=lambda each: each.lag)
    names = f"table {worst.table} is" if len(late) == 1 else f"{len(late)} tables are"
    unread, written = _count(worst.lag, "message"), about_text(worst.written_ms_ago)
    text = f"{names} behind: {unread} not read, last written {written} ago"
    link = f"#/pipeline/{_path(worst.table)}" if len(late) == 1 else "#/pipeline"
    yield worst.lag, Problem(level="warning", text=text, detail="is the pipeline running?", link=link)


def _of_the_unseen(seen: Seen) -> Iterator[Weighed]:
    for each in seen.unseen:
        yield 0, Problem(level="warning", text=f"{each.what} cannot be seen", detail=each.reason, link=each.link)


def _waiting(count: int) -> str:
    return f"{count:,} waiting"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _path(name: str) -> str:
    return quote(name, safe="")
