"""What is going on with a slip, in a word: what it waits for, since when, and until when at most."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from slipstream.durations import duration_text
from slipstream.slip import hints
from slipstream.slip.event import RoutingStep, StepError, Time
from slipstream.slip.ledger import Held
from slipstream.slip.presence import Presence, Workers
from slipstream.slip.slip import topic_of
from slipstream.slip.unserved import Unserved

if TYPE_CHECKING:
    from slipstream.slip.timeline import Row, Run

Going: TypeAlias = Literal[
    "completed",
    "dead-lettered",
    "dropped",
    "paused",
    "retry pause",
    "approval",
    "signal",
    "chunks",
    "branches",
    "at work",
    "worker lost",
    "not taken up",
    "no worker",
    "ending",
]
"""`at work`: a worker has taken the message. `worker lost`: that worker has died or stopped, and the engine delivers
the message again. `not taken up`: no worker has taken it yet. `no worker`: nothing subscribes to its topic."""


WAITS: dict[str, Going] = {"approval": "approval", "signal": "signal", "chunks": "chunks"}
"""What the history says that a step waits for."""


class Standing(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    going: Going
    step: str = ""
    since: Time | None = None
    until: Time | None = None
    """When it goes on by itself, or is given up."""
    reason: str = ""
    by: str = ""
    """The worker that has taken it: host and process."""
    topic: str = ""
    """The topic where the message waits to be taken."""
    workers: tuple[str, ...] = ()
    """The workers of the step that take from this topic, as far as they are known to run."""
    branches: tuple[tuple[str, Standing], ...] = ()
    """Those that it waits for, by correlationId, and what goes on there."""
    error: StepError | None = None
    again_from: str = ""
    """Of a dead letter: the first step that was not done, or was undone."""


class Surroundings(msgspec.Struct, frozen=True):
    """The workers that the store knows, and the topics that have none."""

    workers: Workers = {}
    unserved: Mapping[str, Unserved] = {}


ALONE = Surroundings()


class Around(NamedTuple):
    """Everything beside the slip itself that says where it stands."""

    held: Mapping[str, Held]
    surroundings: Surroundings
    now: dt.datetime


def standing_of(run: Run, slip: Iterable[RoutingStep], around: Around) -> Standing:
    """Return where a message stands in its last run, whose newest slip this is."""
    if run.state != "under way":
        return Standing(
            going=run.state,
            step=run.failed_step,
            since=run.ended_at,
            error=run.error,
            again_from=_again_from(run) if run.state == "dead-lettered" else "",
        )
    row = next((row for row in run.all_rows if row.state in ("working", "waiting", "queued")), None)
    if row is None:
        moved_at = max((one.ended_at for one in run.all_rows if one.ended_at), default=run.begun_at)
        return Standing(going="ending", since=moved_at)
    hold = around.held.get(row.undoes or row.step)
    step = next((step for step in slip if step.id == row.step), None)
    if row.kind == "work" and hold is not None:
        return Standing(
            going="paused",
            step=row.undoes or row.step,
            since=row.queued_at,
            until=_time(hold.until_ms),
            reason=hold.reason,
        )
    return _open(row, step, around)


def _again_from(run: Run) -> str:
    """To run on after a step that was undone would be to run on without it."""
    undone = {row.undoes for row in run.undoing}
    for row in run.rows:
        inside = {one.step for branch in row.branches for inner in branch.runs for one in inner.rows}
        if row.step in undone or inside & undone:
            return row.step
    return run.failed_step


def _open(row: Row, step: RoutingStep | None, around: Around) -> Standing:
    attributes = step.attributes if step is not None else {}
    if row.state == "working":
        return _taken(row, around)
    if row.state == "waiting":
        until = _deadline(row, attributes)
        if row.kind == "fork":
            open_branches = tuple(
                (one.correlation_id, one.standing) for one in row.branches if one.state == "under way"
            )
            return Standing(going="branches", step=row.step, since=row.began_at, until=until, branches=open_branches)
        going = WAITS.get(row.detail, "signal")
        return Standing(going=going, step=row.step, since=row.began_at, until=until)
    not_before = attributes.get(hints.NOT_BEFORE)
    until = _time(int(not_before)) if not_before is not None else None
    if until is not None and until > around.now:
        return Standing(going="retry pause", step=row.step, since=row.queued_at, until=until)
    return _not_taken(row, topic_of(step) if step is not None else "", until or row.queued_at, around)


def _taken(row: Row, around: Around) -> Standing:
    worker = around.surroundings.workers.get(row.by)
    now_ms = _ms(around.now)
    before = worker is not None and row.began_at is not None and _ms(row.began_at) < worker.began_ms
    if worker is None or (worker.is_running(now_ms) and not before):
        # One that writes no heartbeats, such as a service in another language, may well be alive.
        return Standing(going="at work", step=row.step, since=row.began_at, by=row.by)
    reason = "it was restarted since" if before else _lost(worker, now_ms)
    return Standing(going="worker lost", step=row.step, since=row.began_at, by=row.by, reason=reason)


def _lost(worker: Presence, now_ms: int) -> str:
    silent = duration_text(max(0, now_ms - worker.at_ms))
    return f"it stopped {silent} ago" if worker.stopped else f"it has died, or hangs: silent for {silent}"


def _not_taken(row: Row, topic: str, since: dt.datetime | None, around: Around) -> Standing:
    now_ms = _ms(around.now)
    known = around.surroundings.workers.items()
    running = {
        name: worker.steps[row.step] for name, worker in known if worker.is_running(now_ms) and row.step in worker.steps
    }
    if topic in around.surroundings.unserved:
        reason = f"no worker has ever subscribed to {topic}"
        if running:
            name, other = next(iter(running.items()))
            reason += f"; the worker {name} does {row.step} from {other}"
        return Standing(going="no worker", step=row.step, since=since, topic=topic, reason=reason)
    there = tuple(sorted(name for name, taken_from in running.items() if taken_from == topic))
    reason = "" if there else _last_lost(row.step, topic, around)
    return Standing(going="not taken up", step=row.step, since=since, topic=topic, workers=there, reason=reason)


def _last_lost(step: str, topic: str, around: Around) -> str:
    """A worker that dies as soon as it has taken a message has not reported that it took it."""
    known = around.surroundings.workers.items()
    lost = [(worker.at_ms, name, worker) for name, worker in known if worker.steps.get(step) == topic]
    if not lost:
        return ""
    _, name, worker = max(lost, key=lambda each: each[0])
    return f"the last was {name}: {_lost(worker, _ms(around.now))}"


def _deadline(row: Row, attributes: Mapping[str, str]) -> dt.datetime | None:
    text = attributes.get(hints.DEADLINE_MS)
    if text is None or row.began_at is None:
        return None
    return row.began_at + dt.timedelta(milliseconds=int(text))


def _ms(time: dt.datetime) -> int:
    return round(time.timestamp() * 1000)


def _time(ms: int | None) -> dt.datetime | None:
    return None if ms is None else dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
