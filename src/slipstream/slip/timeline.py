"""A slip as a timeline: what was told of it and where it stands, as rows for people to look at.

Pure functions from what is kept (`lookup` reads it) to what is shown; the command line and a console draw the same.
What was told may be incomplete: a worker of somebody else tells nothing, and the newest may still be on its way. So the
slip itself, as the ledger has it, says the rest.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from slipstream.slip import hints
from slipstream.slip.advance import MESSAGE_TIMEOUT, with_undoing
from slipstream.slip.event import Event, RoutingStep, Status, StepError, Time
from slipstream.slip.ledger import Held
from slipstream.slip.progress import ENDS, Progress
from slipstream.slip.slip import DONE, ROUTER, UNDO_ID
from slipstream.slip.standing import ALONE, Around, Standing, Surroundings, standing_of

RowState: TypeAlias = Literal["done", "retried", "failed", "skipped", "working", "waiting", "queued", "pending"]
"""`retried` has failed and was tried again; `queued` is next, and nobody has taken it up; `pending` lies ahead."""
RowKind: TypeAlias = Literal["work", "wait", "fork"]
State: TypeAlias = Literal["completed", "dead-lettered", "dropped", "under way"]

OPEN: frozenset[RowState] = frozenset({"working", "waiting", "queued"})


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept of a slip."""

    correlation_id: str
    told: tuple[Progress, ...] = ()
    newest: dict[int, Event] = {}
    """By run: the message as it was after its newest outcome."""
    branches: dict[tuple[str, int], tuple[Known, ...]] = {}
    """By parallel step and run."""
    branch: str = ""
    """What it is called, if it is a branch itself."""


class Row(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One attempt at a step, or a step that has not come to one."""

    step: str
    state: RowState
    kind: RowKind = "work"
    attempt: int = 0
    undoes: str = ""
    queued_at: Time | None = None
    """Since when the message was on its way here, or in the pause before a retry."""
    began_at: Time | None = None
    ended_at: Time | None = None
    error: StepError | None = None
    detail: str = ""
    optional: bool = False
    """It has failed, and the message went on without it."""
    taken: int = 0
    """How often somebody has begun: more than once if the one before died, was stopped, or paused the step."""
    by: str = ""
    branches: tuple[Timeline, ...] = ()


class Run(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """From the plan to an end, or from where it was run again."""

    number: int
    state: State
    begun_at: Time
    ended_at: Time | None = None
    error: StepError | None = None
    failed_step: str = ""
    rows: tuple[Row, ...] = ()
    undoing: tuple[Row, ...] = ()
    """What was done in this run and had to be undone, the last first."""
    detail: str = ""

    @property
    def all_rows(self) -> tuple[Row, ...]:
        return self.rows + self.undoing


class Timeline(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    correlation_id: str
    type: str
    state: State
    begun_at: Time
    moved_at: Time
    standing: Standing
    ended_at: Time | None = None
    timeout_at: Time | None = None
    trace_id: str = ""
    branch: str = ""
    parent: str = ""
    """The slip that this one is a branch of."""
    runs: tuple[Run, ...] = ()


def timeline(known: Known, held: Mapping[str, Held], now: dt.datetime, surroundings: Surroundings = ALONE) -> Timeline:
    """Return the history and state of a slip. `held` are the steps that are paused."""
    told = sorted(known.told, key=lambda one: one.at)
    numbers = sorted({one.run for one in told} | known.newest.keys())
    around = Around(held, surroundings, now)
    runs = tuple(_run(number, [one for one in told if one.run == number], known, around) for number in numbers)
    assert runs, "nothing is kept of it, and nobody should ask"
    last = runs[-1]
    event = known.newest.get(last.number)
    return Timeline(
        correlation_id=known.correlation_id,
        branch=known.branch,
        parent=next((one.parent for one in told if one.parent), ""),
        type=next((one.type for one in told if one.type), event.type if event else ""),
        state=last.state,
        begun_at=runs[0].begun_at,
        moved_at=max((one.at for one in told), default=last.begun_at),
        ended_at=last.ended_at,
        timeout_at=event.envelope.timeout_at if event else None,
        trace_id=next((one.trace_id for one in told if one.trace_id), ""),
        standing=standing_of(last, _steps(event), around),
        runs=runs,
    )


def _run(number: int, told: list[Progress], known: Known, around: Around) -> Run:
    event = known.newest.get(number)
    rows = _Rows(known, around)
    for one in told:
        rows.hear(one)
    begun_at = told[0].at if told else _begun(event) or around.now
    ended = next((one for one in reversed(told) if one.kind in ENDS), None)
    began_anew = bool(told) and told[0].kind == "rerun"
    if event is not None:
        if ended is None and rows.given_up:
            event = with_undoing(event)
        rows.follow(event.envelope.routing_slip, begun_at if began_anew else None, over=ended is not None)
    elif ended is None:
        rows.expect(step for one in told for step in one.steps)
    found = list(rows.rows.values())
    return Run(
        number=number,
        state=_state(ended),
        begun_at=begun_at,
        ended_at=ended.at if ended else None,
        error=ended.error if ended else None,
        failed_step=ended.step if ended else "",
        rows=tuple(row for row in found if not row.undoes),
        undoing=tuple(row for row in found if row.undoes),
        detail=next((one.detail for one in told if one.kind == "rerun"), ""),
    )


class _Rows:
    """The rows of one run, as they come to be."""

    def __init__(self, known: Known, around: Around) -> None:
        self.rows: dict[tuple[str, int], Row] = {}
        self.given_up = ""
        """The step that the message has failed at."""
        self._known = known
        self._around = around
        self._free_at: dt.datetime | None = None
        """Since when the message is on its way to its next step."""

    # What was told

    def hear(self, one: Progress) -> None:
        key = (one.step, one.attempt)
        row = self.rows.get(key) or Row(
            step=one.step, attempt=one.attempt, state="queued", undoes=_undoes(one.step), queued_at=self._free_at
        )
        match one.kind:
            case "started":
                self.rows[key] = replace(row, state="working", began_at=one.at, taken=row.taken + 1, by=one.by)
                return
            case "waiting":
                self.rows[key] = replace(row, state="waiting", kind="wait", began_at=one.at, detail=one.detail)
                return
            case "forked":
                branches = tuple(
                    timeline(branch, self._around.held, self._around.now, self._around.surroundings)
                    for branch in self._known.branches.get((one.step, one.run), ())
                )
                self.rows[key] = replace(
                    row, state="waiting", kind="fork", began_at=one.at, detail=one.detail, branches=branches
                )
                return
            case "finished" | "compensated":
                self.rows[key] = self._ended(row, "done", one)
            case "retried":
                self.rows[key] = self._ended(row, "retried", one)
            case "failed" | "compensation-failed":
                self.rows[key] = self._ended(row, "failed", one)
                if one.kind == "failed":
                    self.given_up = one.step
            case "skipped":
                self._skip(key, row, one)
            case "planned" | "rerun" | "completed" | "dead-lettered" | "dropped":
                pass
        self._free_at = one.at

    def _ended(self, row: Row, state: RowState, one: Progress) -> Row:
        began_at = row.began_at
        if began_at is None and one.duration_ms is not None:
            began_at = one.at - dt.timedelta(milliseconds=one.duration_ms)
        detail = one.detail if row.kind == "wait" or one.detail else row.detail
        return replace(row, state=state, began_at=began_at, ended_at=one.at, error=one.error, detail=detail)

    def _skip(self, key: tuple[str, int], row: Row, one: Progress) -> None:
        if row.state == "failed":
            # Told a second time, by the router: the step may fail.
            self.given_up = ""
            self.rows[key] = replace(row, optional=True)
            return
        detail = one.detail
        if one.error is not None and one.error.code == MESSAGE_TIMEOUT:
            self.given_up = one.step
        elif not detail and one.error is None:
            detail = f"as {self.given_up} failed" if self.given_up else "as its unless holds"
        open_row = row if row.began_at is not None else replace(row, queued_at=None)
        self.rows[key] = replace(open_row, state="skipped", ended_at=one.at, error=one.error, detail=detail)

    # What the slip says besides

    def follow(self, slip: Iterable[RoutingStep], after: dt.datetime | None, *, over: bool) -> None:
        """In the order of the slip, with what nobody has told. What lies before `after` is of an earlier run."""
        told, self.rows = self.rows, {}
        is_next = not over
        for step in slip:
            mine = {key: row for key, row in told.items() if key[0] == step.id}
            self.rows |= mine
            key = (step.id, step.attempt or 0)
            row = mine.get(key)
            if row is not None and row.state not in OPEN:
                continue
            if step.status is Status.PENDING:
                if row is None and not over:
                    state: RowState = "queued" if is_next else "pending"
                    self.rows[key] = _ahead(step, state, self._free_at if is_next else None)
                is_next = False
            elif row is not None:
                self.rows[key] = _settled(row, step)
            elif step.id != ROUTER and not mine and not _is_earlier(step, after):
                self.rows[key] = _untold(step)
        self.rows |= {key: row for key, row in told.items() if key not in self.rows and key[0] and key[0] != ROUTER}

    def expect(self, step_ids: Iterable[str]) -> None:
        """Of a message whose slip is not kept: the plan, as it was told."""
        is_next = all(row.state not in OPEN for row in self.rows.values())
        for step_id in step_ids:
            if step_id == ROUTER or any(key[0] == step_id for key in self.rows):
                continue
            state: RowState = "queued" if is_next else "pending"
            self.rows[step_id, 0] = Row(step=step_id, state=state, queued_at=self._free_at if is_next else None)
            is_next = False


def _ahead(step: RoutingStep, state: RowState, free_at: dt.datetime | None) -> Row:
    return Row(
        step=step.id,
        state=state,
        attempt=step.attempt or 0,
        kind="fork" if hints.BRANCHES in step.attributes else "wait" if hints.WAIT in step.attributes else "work",
        undoes=_undoes(step.id),
        queued_at=free_at,
    )


def _settled(row: Row, step: RoutingStep) -> Row:
    """It has ended, which is not told yet."""
    states: dict[Status, RowState] = {Status.OK: "done", Status.SKIP: "skipped", Status.ERROR: "failed"}
    return replace(row, state=states[step.status], ended_at=step.ended_at, error=step.error)


def _untold(step: RoutingStep) -> Row:
    """Skipped by a planner, or done by a worker that tells nothing."""
    row = Row(step=step.id, state="done", attempt=step.attempt or 0, began_at=step.started_at, undoes=_undoes(step.id))
    detail = step.notes or "" if step.status is Status.SKIP else ""
    return replace(_settled(row, step), detail=detail)


def _is_earlier(step: RoutingStep, after: dt.datetime | None) -> bool:
    return after is not None and step.status in DONE and (step.ended_at is None or step.ended_at <= after)


def _undoes(step_id: str) -> str:
    """`undo:charge#1` undoes `charge`, in the second run."""
    return step_id.removeprefix(UNDO_ID).partition("#")[0] if step_id.startswith(UNDO_ID) else ""


def _state(ended: Progress | None) -> State:
    match ended.kind if ended is not None else "":
        case "completed":
            return "completed"
        case "dropped":
            return "dropped"
        case "dead-lettered":
            return "dead-lettered"
    return "under way"


def _begun(event: Event | None) -> dt.datetime | None:
    return next((step.started_at for step in _steps(event) if step.started_at), None)


def _steps(event: Event | None) -> tuple[RoutingStep, ...]:
    return event.envelope.routing_slip if event is not None else ()
