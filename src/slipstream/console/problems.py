"""The problems of the overview, worst first.

A pure function from what is known to problems in words: no clock, no network. `watch` and the `look` of each source
collect what is known; `attention` remembers the problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import msgspec

from slipstream.api.events import RetryingMessage
from slipstream.api.overview import Level, Part, Problem, ProblemMessage
from slipstream.api.server import ServerCondition
from slipstream.console.settings import Thresholds
from slipstream.durations import about_text

SHOWN_MAX = 100
"""Number of problems that the overview shows."""
PARTS = "which parts run"
"""The name of the source of the parts."""
BROKER = "broker"
"""The name of the source of numbers."""
MARK_UNKNOWN = -1
"""The mark of a problem while it is not known how bad it is: the mark before holds."""
POISON_ERROR_ATTEMPTS = 10
"""From so many attempts on, a poison message needs a person: by then it has been retried for minutes."""
LEASE_RAN_OUT = "ack_timeout"
"""The error of an attempt whose lease ran out; a test compares it with that of the broker."""
TREND_KNOWN_MS = 60_000
"""How long a lag must be known before its trend is reported."""

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
    parked: int = 0
    """Consumers that get no messages until they settle one."""
    parked_owner: str = ""
    """The owner of one of them."""
    retrying: int = 0
    """Messages that wait for another attempt."""
    worst: RetryingMessage | None = None
    """The message that has failed most often."""
    grown: int = 0
    """By how much the lag has grown; negative where it has shrunk."""
    grown_over_ms: int = 0
    """In what time."""

    @property
    def waiting(self) -> int:
        """Messages that are due and that no consumer has taken."""
        return max(0, self.lag - self.in_flight - self.delayed - self.retrying)

    @property
    def named(self) -> str:
        return f"group {self.group} of {self.topic}"


class DeadLettersSeen(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    total: int
    kept_in: str = ""
    """The topic they are in, where it is one of the bus; the broker's own have a page."""


class SlipSeen(msgspec.Struct, frozen=True, kw_only=True):
    correlation_id: str
    step: str
    going: str
    for_ms: int
    at_ms: int = 0
    """When it came into this state."""


class SlipsSeen(msgspec.Struct, frozen=True, kw_only=True):
    stuck: tuple[SlipSeen, ...] = ()
    """The longest first; not more than can be looked at in a moment."""
    more_stuck: bool = False
    waiting: tuple[SlipSeen, ...] = ()
    more_waiting: bool = False
    failed: tuple[SlipSeen, ...] = ()
    """Not run again since, the newest first."""
    more_failed: bool = False
    dead_letters: int = 0
    """All slips that failed and were not run again."""


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
    dead_letters: int = 0
    """Downloads that failed for good, and were neither replayed nor discarded."""
    newest_id: str = ""
    """The job of the last of them."""
    newest_reason: str = ""
    newest_ms: int = 0


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
    has_bus_dead_letters: bool = False
    """The console has a page for the dead letters of the bus."""
    parts: tuple[Part, ...] = ()
    slips: SlipsSeen = SlipsSeen()
    paused_steps: tuple[PausedStep, ...] = ()
    unserved_topics: tuple[UnservedTopic, ...] = ()
    jobs: JobsSeen = JobsSeen()
    tables: tuple[TableSeen, ...] = ()
    unseen: tuple[Unseen, ...] = ()


def problems(seen: Seen, limits: Thresholds) -> list[Problem]:
    """Return all problems, the worst first; of two as bad, the one that concerns more.

    Example:
        for problem in problems(seen, Thresholds()): print(problem.text)
    """
    found = [
        *_of_the_broker(seen),
        *_of_parts(seen, limits),
        *(problem for group in seen.groups for problem in _of_a_group(seen, group, limits)),
        *_of_dead_letters(seen),
        *_of_slips(seen),
        *_of_jobs(seen),
        *_of_tables(seen, limits),
        *_of_the_unseen(seen),
    ]
    found.sort(key=lambda each: (_RANK[each[1].level], -each[0]))
    return [problem for _, problem in found]


def first(found: Sequence[Problem], now_ms: int) -> list[Problem]:
    """Return as many problems as the overview shows, and a last one that says how many are left out."""
    shown = list(found[:SHOWN_MAX])
    if len(found) > SHOWN_MAX:
        text = f"and {_count(len(found) - SHOWN_MAX, 'problem')} more"
        shown.append(Problem(level="notice", text=text, since_ms=now_ms))
    return shown


_SOURCES = {
    "part": PARTS,
    "slips": "slips",
    "unserved": "slips",
    "step": "slips",
    "downloads": "jobs",
    "tables": "tables",
    "unseen": "",
}
"""First word of the key of a problem → the source that reports it; all others are the broker's."""


def source_of(key: str) -> str:
    """Return the name of the source that reports a problem; "" if it is the console itself."""
    return _SOURCES.get(key.partition(" ")[0], BROKER)


Weighed = tuple[float, Problem]
"""A problem, and how much it weighs among those that are as bad."""

_FIRST = float("inf")

BROKER_PART = "broker"
"""Name of the broker among the parts of `slipstream up`."""


def _of_the_broker(seen: Seen) -> Iterator[Weighed]:
    # Only `slipstream up` keeps the log of the broker where the console can show it.
    has_log = any(part.name == BROKER_PART for part in seen.parts)
    log = (f"#/?part={BROKER_PART}", "Show log") if has_log else ("#/", "")
    if seen.away:
        text = f"the broker has not answered for {about_text(seen.away_ms)}: what is shown is from before"
        link, action = log
        yield _FIRST, Problem(level="error", text=text, detail=seen.away, link=link, action=action, key="broker away")
    if seen.trouble:
        text = "the broker takes no messages"
        yield (
            _FIRST,
            Problem(
                level="error", text=text, detail=seen.trouble, link="#/topics", action="Show topics", key="refusing"
            ),
        )
    for condition in seen.conditions:
        # For want of room: delete topics, or shorten their retention.
        link, action = ("#/topics", "Show topics") if condition.kind == "disk" else log
        yield (
            _FIRST,
            Problem(
                level=condition.level,
                text=condition.text,
                detail=condition.detail,
                link=link,
                action=action,
                key=f"condition {condition.kind}",
            ),
        )


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
        yield (
            part.restarts,
            Problem(
                level=level,
                text=text,
                detail=part.reason,
                link=f"#/?part={_path(part.name)}",
                action="Show log",
                key=f"part {part.name} {part.state}",
                mark=part.restarts,
            ),
        )


def _of_a_group(seen: Seen, group: GroupSeen, limits: Thresholds) -> Iterator[Weighed]:
    yield from _of_parked_consumers(group)
    if group.worst is not None and _is_poison(group.worst, limits) and not _is_held(group, group.worst):
        yield _poison(seen, group)
    level: Level = "error" if group.still_ms >= limits.standing_error_ms else "warning"
    oldest, still = f"the oldest for {about_text(group.oldest_ms)}", about_text(group.still_ms)
    if group.paused:
        level = "warning" if group.lag else "notice"
        text = f"{group.named} is paused: {_waiting(group.lag)}" if group.lag else f"{group.named} is paused"
        yield group.lag, _problem(group, "paused", level, text, "resume it when the cause is fixed", "Resume…")
    elif group.parked >= group.consumers > 0:
        return  # nothing else can be done about its lag
    elif group.waiting and not group.consumers and group.still_ms >= limits.standing_ms:
        text = f"{group.named} has no consumer for {still}: {_waiting(group.waiting)}, {oldest}"
        detail = "start a worker of this group, or delete the group if it is no longer used"
        yield group.waiting, _problem(group, "still", level, text, detail, "Show group")
    elif group.waiting and group.still_ms >= limits.standing_ms:
        text = f"{group.named} stands still for {still}: {_waiting(group.waiting)}"
        yield group.waiting, _problem(group, "still", level, text, _why_still(group), "Show consumers")
    elif group.waiting and group.oldest_ms >= limits.oldest_ms:
        # Where every message is in hand or waits for another attempt, more consumers would have nothing to do.
        yield group.lag, _behind(group, oldest)


def _problem(group: GroupSeen, kind: str, level: Level, text: str, detail: str, action: str, mark: int = 0) -> Problem:
    return Problem(
        level=level,
        text=text,
        detail=detail,
        link=f"#/groups/{_path(group.topic)}/{_path(group.group)}",
        action=action,
        key=f"group {group.topic} {group.group} {kind}",
        mark=mark,
    )


def _of_parked_consumers(group: GroupSeen) -> Iterator[Weighed]:
    if not group.parked:
        return
    of = "its only consumer" if group.consumers == 1 else f"{group.parked} of {_count(group.consumers, 'consumer')}"
    waiting = f", {_waiting(group.waiting)}" if group.waiting and group.parked >= group.consumers else ""
    text = f"{group.named}: {of} {'is' if group.parked == 1 else 'are'} parked{waiting}"
    if group.parked == 1:
        detail = (
            f"the leases of {group.parked_owner or 'the consumer'} ran out without one ack; it gets no messages until "
            "it acks, extends or reconnects: restart it"
        )
    else:
        named = f", {group.parked_owner} for one" if group.parked_owner else ""
        detail = (
            f"their leases ran out without one ack{named}; they get no messages until they ack, extend or reconnect: "
            "restart them"
        )
    level: Level = "error" if group.parked >= group.consumers else "warning"
    yield group.parked, _problem(group, "parked", level, text, detail, "Show consumers", group.parked)


def _is_poison(worst: RetryingMessage, limits: Thresholds) -> bool:
    return worst.attempts >= (limits.poison_attempts if worst.is_same_error else 2 * limits.poison_attempts)


def _is_held(group: GroupSeen, worst: RetryingMessage) -> bool:
    """Return whether only parked consumers get the message: it is offered to them again and again."""
    return group.parked >= group.consumers > 0 and worst.error == LEASE_RAN_OUT


def _poison(seen: Seen, group: GroupSeen) -> Weighed:
    worst = group.worst
    assert worst is not None
    place = f"{group.topic}/{worst.partition}/{worst.offset}"
    times = f"failed {worst.attempts} times" + (" with the same error" if worst.is_same_error else "")
    others = (
        f"; {_count(group.retrying - 1, 'other message')} of the group are retried too" if group.retrying > 1 else ""
    )
    text = f"poison message {place} has {times} in group {group.group}"
    detail = f"{worst.error}{others}. More consumers do not help: fix the handler, or reject the message"
    level: Level = "error" if worst.attempts >= POISON_ERROR_ATTEMPTS else "warning"
    problem = _problem(group, f"poison {worst.partition}/{worst.offset}", level, text, detail, "Show message")
    place_of = ProblemMessage(topic=group.topic, group=group.group, partition=worst.partition, offset=worst.offset)
    return worst.attempts, msgspec.structs.replace(problem, message=place_of)


def _behind(group: GroupSeen, oldest: str) -> Problem:
    """A group that works: whether it catches up is what decides about more consumers."""
    slack = max(10, group.lag // 20)
    text = f"{group.named} is behind: {_waiting(group.lag)}, {oldest}"
    over = about_text(group.grown_over_ms)
    if group.grown_over_ms < TREND_KNOWN_MS:
        detail = "it finishes messages; in a minute it will be known whether it catches up"
        return _problem(group, "behind", "warning", text, detail, "Show group", mark=MARK_UNKNOWN)
    if group.grown > slack:
        text = f"{group.named} falls further behind: {_waiting(group.lag)}, {group.grown:,} more in {over}, {oldest}"
        detail = "more messages come in than it finishes: start more consumers, or make its slowest step faster"
        return _problem(group, "behind", "warning", text, detail, "Show group", mark=1)
    if group.grown < -slack:
        left_ms = group.lag * group.grown_over_ms // -group.grown
        text = f"{group.named} catches up: {_waiting(group.lag)}, {-group.grown:,} fewer in {over}"
        return _problem(group, "behind", "notice", text, f"about {about_text(left_ms)} left at this rate", "Show group")
    detail = "as many messages come in as it finishes: it needs more consumers to catch up"
    return _problem(group, "behind", "warning", text, detail, "Show group")


def _why_still(group: GroupSeen) -> str:
    consumers = _count(group.consumers, "consumer")
    if group.in_flight:
        return f"{consumers}, with {group.in_flight:,} in hand and none finished: is a service away that they need?"
    return f"{consumers}, and nothing in hand: do they hang?"


def _of_dead_letters(seen: Seen) -> Iterator[Weighed]:
    for dead in seen.dead_letters:
        text = f"{_count(dead.total, 'message')} of {dead.topic} {'is' if dead.total == 1 else 'are'} dead-lettered"
        detail = "fix the cause, then redrive them"
        link, action = f"#/dead-letters?topic={_path(dead.topic)}", "Redrive…"
        if dead.kept_in:
            detail = f"fix the cause, then redrive them: slipstream bus dlq redrive {dead.topic}"
            link = f"#/bus-dead-letters?topic={_path(dead.topic)}"
            if not seen.has_bus_dead_letters:
                link, action = f"#/topics/{_path(dead.kept_in)}", "Show messages"
        yield (
            dead.total,
            Problem(
                level="warning",
                text=text,
                detail=detail,
                link=link,
                action=action,
                key=f"dead letters {dead.kept_in or dead.topic}",
                mark=dead.total,
            ),
        )


def _of_slips(seen: Seen) -> Iterator[Weighed]:
    if stuck := seen.slips.stuck:
        what = _of_these("is stuck", "are stuck", stuck, more=seen.slips.more_stuck)
        yield len(stuck), _slip_problem(stuck, seen.slips.more_stuck, "warning", what, "stuck", "Show slip")
    if waiting := seen.slips.waiting:
        what = _of_these("waits for a decision", "wait for a decision", waiting, more=seen.slips.more_waiting)
        yield len(waiting), _slip_problem(waiting, seen.slips.more_waiting, "notice", what, "waiting", "Decide…")
    if failed := seen.slips.failed:
        one, many = len(failed) == 1 and not seen.slips.more_failed, max(len(failed), seen.slips.dead_letters)
        when = f"{'' if one else 'the last '}{about_text(failed[0].for_ms)} ago"
        what = f"{_count(many, 'slip')} failed and {'was' if one else 'were'} not run again, {when}"
        problem = _slip_problem(failed, seen.slips.more_failed, "warning", what, "dead-lettered", "Run again…")
        yield many, msgspec.structs.replace(problem, mark=max(each.at_ms for each in failed))
    for unserved in seen.unserved_topics:
        text = f"no worker for step {unserved.step}: nothing subscribes to {unserved.topic}"
        detail = "start a worker whose step names this topic, or change the topic in the route table"
        link, key = "#/slips?state=under-way", f"unserved {unserved.topic}"
        yield unserved.for_ms, Problem(level="error", text=text, detail=detail, link=link, action="Show slips", key=key)
    for step in seen.paused_steps:
        until = f" for another {about_text(step.left_ms)}" if step.left_ms is not None else ""
        text = f"step {step.step} is paused{until}" + (f": {step.reason}" if step.reason else "")
        detail = "its slips wait until it is resumed"
        yield (
            0,
            Problem(
                level="warning", text=text, detail=detail, link="#/slips", action="Resume…", key=f"step {step.step}"
            ),
        )


def _of_these(one: str, many: str, slips: tuple[SlipSeen, ...], *, more: bool) -> str:
    count = ("more than " if more else "") + _count(len(slips), "slip")
    is_one = len(slips) == 1 and not more
    return f"{count} {one if is_one else many}, {'' if is_one else 'the longest '}for {about_text(slips[0].for_ms)}"


def _slip_problem(slips: tuple[SlipSeen, ...], more: bool, level: Level, text: str, state: str, action: str) -> Problem:
    first = slips[0]
    where = f" at {first.step}" if first.step else ""
    is_one = len(slips) == 1 and not more
    link = f"#/slips/{_path(first.correlation_id)}" if is_one else f"#/slips?state={state}"
    detail = f"{first.correlation_id}{where}: {first.going}"
    mark = max(each.at_ms for each in slips)
    return Problem(level=level, text=text, detail=detail, link=link, action=action, key=f"slips {state}", mark=mark)


def _of_jobs(seen: Seen) -> Iterator[Weighed]:
    jobs = seen.jobs
    if not jobs.dead_letters:
        return
    text = (
        f"{_count(jobs.dead_letters, 'download')} failed and {'was' if jobs.dead_letters == 1 else 'were'} not replayed"
    )
    detail = f"the last of job {jobs.newest_id}: {jobs.newest_reason}"
    problem = Problem(
        level="warning",
        text=text,
        detail=detail,
        link="#/jobs/dead-letters",
        action="Replay…",
        key="downloads",
        mark=jobs.newest_ms,
    )
    yield jobs.dead_letters, problem


def _of_tables(seen: Seen, limits: Thresholds) -> Iterator[Weighed]:
    late = [each for each in seen.tables if each.lag and each.unread_ms >= limits.table_behind_ms]
    if not late:
        return
    worst = max(late, key=lambda each: each.lag)
    names = f"table {worst.table} is" if len(late) == 1 else f"{len(late)} tables are"
    unread, written = _count(worst.lag, "message"), about_text(worst.written_ms_ago)
    text = f"{names} behind: {unread} not read, last written {written} ago"
    link = f"#/pipeline/{_path(worst.table)}" if len(late) == 1 else "#/pipeline"
    detail = "is the pipeline running?"
    yield worst.lag, Problem(level="warning", text=text, detail=detail, link=link, action="Show tables", key="tables")


def _of_the_unseen(seen: Seen) -> Iterator[Weighed]:
    for each in seen.unseen:
        text, key = f"{each.what} cannot be seen", f"unseen {each.what}"
        yield 0, Problem(level="warning", text=text, detail=each.reason, link=each.link, key=key)


def _waiting(count: int) -> str:
    return f"{count:,} waiting"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _path(name: str) -> str:
    return quote(name, safe="")
