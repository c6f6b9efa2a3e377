"""What is going on with a slip, in a word: what it waits for, since when, and until when at most."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from slipstream.slip import hints
from slipstream.slip.event import RoutingStep, StepError, Time
from slipstream.slip.ledger import Held

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
    "not taken up",
    "ending",
]


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
    """Who works at it: host and process."""
    branches: tuple[tuple[str, Standing], ...] = ()
    """Those that it waits for, by correlationId, and what goes on there."""
    error: StepError | None = None
    again_from: str = ""
    """Of a dead letter: the first step that was not done, or was undone."""


def standing_of(run: Run, slip: Iterable[RoutingStep], held: Mapping[str, Held], now: dt.datetime) -> Standing:
    """Of the last run of a message, whose newest slip this is."""
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
    hold = held.get(row.undoes or row.step)
    step = next((step for step in slip if step.id == row.step), None)
    if row.kind == "work" and hold is not None:
        return Standing(
            going="paused",
            step=row.undoes or row.step,
            since=row.queued_at,
            until=_time(hold.until_ms),
            reason=hold.reason,
        )
    return _open(row, step, now)


def _again_from(run: Run) -> str:
    """To run on after a step that was undone would be to run on without it."""
    undone = {row.undoes for row in run.undoing}
    for row in run.rows:
        inside = {one.step for branch in row.branches for inner in branch.runs for one in inner.rows}
        if row.step in undone or inside & undone:
            return row.step
    return run.failed_step


def _open(row: Row, step: RoutingStep | None, now: dt.datetime) -> Standing:
    attributes = step.attributes if step is not None else {}
    if row.state == "working":
        return Standing(going="at work", step=row.step, since=row.began_at, by=row.by)
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
    if until is not None and until > now:
        return Standing(going="retry pause", step=row.step, since=row.queued_at, until=until)
    return Standing(going="not taken up", step=row.step, since=until or row.queued_at)


def _deadline(row: Row, attributes: Mapping[str, str]) -> dt.datetime | None:
    text = attributes.get(hints.DEADLINE_MS)
    if text is None or row.began_at is None:
        return None
    return row.began_at + dt.timedelta(milliseconds=int(text))


def _time(ms: int | None) -> dt.datetime | None:
    return None if ms is None else dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
