"""The part of the scripted stream that slips say: what `slip.reporter` tells, in lists, and ends alone."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from slipstream.slip.advance import CANCELLED, MESSAGE_TIMEOUT
from slipstream.slip.event import StepError
from slipstream.slip.progress import ENDS, Kind, Progress, encode_progress
from tests.pipeline.said import DAY, Said

PROGRESS = "slip.events"

TYPES = ("order.placed.v1", "chat.message.v1", "invoice.due.v1")
ITINERARIES = (
    ("router", "check", "charge", "ship"),
    ("router", "retrieval", "llm", "safety", "deliver"),
    ("router", "check", "charge", "pack", "ship", "mail"),
)
WORKERS = ("north:101", "north:102", "south:7", "east:31")
EAST = dt.timezone(dt.timedelta(hours=2))


def slips(rng: random.Random, minutes: int) -> Iterator[Said]:
    """Message after message. What is told at about the same time is one list, of whatever slips; now and then one who
    tells is faster than another, and what happened later stands before."""
    waiting: list[bytes] = []
    for number in itertools.count():
        shape = SHAPES[number % len(SHAPES)]
        begins = DAY + dt.timedelta(seconds=round(rng.random() * minutes * 60, 6))
        slip = _Slip(rng, f"c-{number}", begins)
        shape(slip)
        if rng.random() < 0.2:
            rng.shuffle(slip.told)
        for one in slip.told:
            data = encode_progress(one)
            if one.kind in ENDS:
                if waiting:
                    yield _list(waiting)
                    waiting = []
                yield _list([data], one.correlation_id)
                continue
            waiting.append(data)
            if rng.random() < 0.1:
                yield _list(waiting)
                waiting = []


def _list(told: Sequence[bytes], correlation_id: str = "") -> Said:
    attributes = {"correlationId": correlation_id} if correlation_id else None
    return Said(PROGRESS, correlation_id.encode(), b"[" + b",".join(told) + b"]", attributes)


class _Slip:
    """What is told of a slip, run by run."""

    def __init__(
        self, rng: random.Random, correlation_id: str, now: dt.datetime, itinerary: Sequence[str] = (), parent: str = ""
    ) -> None:
        self.rng = rng
        self.correlation_id = correlation_id
        self.type = rng.choice(TYPES)
        self.itinerary = tuple(itinerary) or rng.choice(ITINERARIES)
        self.trace_id = f"{rng.getrandbits(64):016x}" if rng.random() < 0.5 else ""
        self.parent = parent
        self.run = 0
        self.now = self.begun = now
        self.told: list[Progress] = []

    @property
    def steps(self) -> tuple[str, ...]:
        return self.itinerary[1:]

    def later(self, seconds: float = 2.0) -> dt.datetime:
        self.now += dt.timedelta(microseconds=self.rng.randint(1, round(seconds * 1_000_000)))
        return self.now

    def tell(
        self, kind: Kind, step: str = "", attempt: int = 0, at: dt.datetime | None = None, **more: Any
    ) -> Progress:
        at = at or self.now
        told = Progress(
            kind=kind,
            correlation_id=self.correlation_id,
            at=at if self.rng.random() < 0.9 else at.astimezone(EAST),
            type=self.type,
            step=step,
            attempt=attempt,
            run=self.run,
            trace_id=self.trace_id,
            by=self.rng.choice(WORKERS),
            **more,
        )
        self.told.append(told)
        return told

    def plan(self, detail: str = "") -> None:
        self.tell("planned", steps=self.itinerary, parent=self.parent, detail=detail)

    def attempt(
        self, step: str, attempt: int = 0, kind: Kind = "finished", error: StepError | None = None, **more: Any
    ) -> Progress:
        """Begun and ended."""
        began = self.later(0.2)
        self.tell("started", step, attempt)
        return self.outcome(step, attempt, kind, began, error, **more)

    def outcome(
        self, step: str, attempt: int, kind: Kind, began: dt.datetime, error: StepError | None = None, **more: Any
    ) -> Progress:
        took = round((self.later() - began) / dt.timedelta(milliseconds=1), 3)
        return self.tell(kind, step, attempt, duration_ms=took, error=error, **more)

    def again(self, told: Progress, at: dt.datetime | None = None) -> None:
        """As whoever takes over from somebody who died tells it."""
        more: dict[str, Any] = {"duration_ms": told.duration_ms, "error": told.error, "detail": told.detail}
        self.tell(told.kind, told.step, told.attempt, at or told.at, **more, steps=told.steps, parent=told.parent)

    def end(self, kind: Kind = "completed", step: str = "", error: StepError | None = None, **more: Any) -> None:
        took = round((self.later(0.1) - self.begun) / dt.timedelta(milliseconds=1), 3)
        self.tell(kind, step, duration_ms=took, error=error, **more)

    def through(self, steps: Sequence[str]) -> None:
        for step in steps:
            self.attempt(step)

    def skip(self, steps: Sequence[str], detail: str) -> None:
        for step in steps:
            self.tell("skipped", step, detail=detail)

    def anew(self, detail: str = "") -> None:
        self.run += 1
        self.begun = self.later()
        self.tell("rerun", steps=self.itinerary, detail=detail)


# What may become of a slip


def _straight(slip: _Slip) -> None:
    slip.plan()
    slip.through(slip.steps)
    slip.end()


def _retried(slip: _Slip) -> None:
    slip.plan()
    first, *rest = slip.steps
    for attempt in range(slip.rng.randint(1, 3)):
        slip.attempt(first, attempt, "retried", StepError("retry", "the shop is closed", retryable=True))
        slip.later(10)
    slip.attempt(first, attempt + 1)
    slip.through(rest)
    slip.end()


def _undone(slip: _Slip) -> None:
    """Failed, and what was done is undone: not all of it can be."""
    slip.plan()
    *done, failing = slip.steps[:3]
    slip.through(done)
    error = StepError("rejected", f"{failing} cannot be done", retryable=False)
    slip.attempt(failing, 0, "failed", error)
    slip.skip(slip.steps[3:], f"{failing} failed")
    number = f"#{slip.run}" if slip.run else ""
    slip.attempt(f"undo:{done[-1]}{number}", 0, "compensated")
    for step in reversed(done[:-1]):
        late = StepError("too_late", None, retryable=False)
        slip.attempt(f"undo:{step}{number}", 0, "compensation-failed", late)
    slip.end("dead-lettered", failing, error)


def _optional(slip: _Slip) -> None:
    """A step that may fail has failed, and is skipped in the same breath."""
    slip.plan()
    first, *rest = slip.steps
    failed = slip.attempt(first, 0, "failed", StepError("step_timeout", "not done after 5 s", retryable=False))
    slip.tell("skipped", first, 0, failed.at, duration_ms=failed.duration_ms, error=failed.error)
    slip.through(rest)
    slip.end()


def _forked(slip: _Slip) -> None:
    """Into branches, of which one may come too late."""
    slip.plan()
    first, *rest = slip.steps
    began = slip.later()
    names = ("near", "far", "farther")[: slip.rng.randint(2, 3)]
    slip.tell("forked", first, detail=f"{len(names)} branches, any wanted")
    ends: list[dt.datetime] = []
    for name in names:
        correlation_id = f"{slip.correlation_id}/{first}/{name}" + (f"#{slip.run}" if slip.run else "")
        branch = _Slip(slip.rng, correlation_id, slip.now, ("router", f"ask-{name}", "parse"), slip.correlation_id)
        branch.type, branch.trace_id = slip.type, slip.trace_id
        branch.plan(name)
        if name == "farther":
            branch.tell("started", f"ask-{name}")
            branch.end("dropped", f"ask-{name}")
        else:
            branch.through(branch.steps)
            branch.end()
        ends.append(branch.now)
        slip.told += branch.told
    slip.now = max(ends)
    slip.outcome(first, 0, "finished", began)
    slip.through(rest)
    slip.end()


def _waits(slip: _Slip) -> None:
    """For somebody: he comes, or not in time, or it waits to this day. That it waits may be told twice."""
    slip.plan()
    first, *rest = slip.steps
    began = slip.later()
    waiting = slip.tell("waiting", first, detail="approval")
    if slip.rng.random() < 0.5:
        slip.again(waiting)
    if slip.rng.random() < 0.3:
        slip.later()
        slip.tell("waiting", first, detail="approval, asked again")
    match slip.rng.randrange(3):
        case 0:
            slip.outcome(first, 0, "finished", began, detail="approved by Ann")
        case 1:
            slip.outcome(first, 0, "skipped", began, detail="nobody answered in time")
        case 2:
            return
    slip.through(rest)
    slip.end()


def _taken_over(slip: _Slip) -> None:
    """One dies at it, another does it, and a third says so once more."""
    slip.plan()
    first, *rest = slip.steps
    began = slip.later()
    for _ in range(slip.rng.randint(2, 3)):
        slip.tell("started", first)
        slip.later()
    told = slip.outcome(first, 0, "finished", began)
    slip.again(told)
    slip.through(rest)
    slip.end()
    if slip.rng.random() < 0.5:
        slip.again(slip.told[-1], slip.later())


def _contradicted(slip: _Slip) -> None:
    """Two were at it, and do not agree: who came to an end first is right, whoever is heard first."""
    slip.plan()
    first = slip.steps[0]
    began = slip.later()
    slip.tell("started", first)
    early, late = slip.later(), slip.later()
    error = StepError("retry", "no connection", retryable=True)
    slip.now = late
    slip.tell("finished", first, 0, late, duration_ms=round((late - began) / dt.timedelta(milliseconds=1), 3))
    slip.tell("retried", first, 0, early, duration_ms=None, error=error, detail="too early")
    slip.tell("skipped", first, 0, began, detail="which does not count")
    slip.attempt(first, 1)
    slip.through(slip.steps[1:])
    slip.end()


def _run_again(slip: _Slip) -> None:
    """After it failed, or while it was under way still."""
    if slip.rng.random() < 0.5:
        _undone(slip)
    else:
        slip.plan()
        slip.attempt(slip.steps[0])
        slip.tell("started", slip.steps[1])
        slip.end("dropped", detail="it was run again")
    slip.anew()
    if slip.rng.random() < 0.5:
        _undone(slip)
    else:
        slip.through(slip.steps)
        slip.end()


def _timed_out(slip: _Slip) -> None:
    slip.plan()
    first, second, *rest = slip.steps
    slip.attempt(first)
    slip.tell("started", second)
    slip.later(60)
    error = StepError(MESSAGE_TIMEOUT, f"timeoutAt has passed before {second} was done", retryable=False)
    slip.tell("skipped", second, error=error)
    slip.skip(rest, f"{second} failed")
    slip.end("dead-lettered", second, error)


def _cancelled(slip: _Slip) -> None:
    slip.plan()
    error = StepError(CANCELLED, "somebody has ended it", retryable=False)
    slip.later()
    slip.tell("skipped", slip.steps[0], error=error)
    slip.skip(slip.steps[1:], f"{slip.steps[0]} failed")
    slip.end("dead-lettered", slip.steps[0], error)


def _stuck(slip: _Slip) -> None:
    """At a step, between two, before the first, or without a beginning that anybody remembers."""
    match slip.rng.randrange(4):
        case 0:
            slip.plan()
            slip.attempt(slip.steps[0])
            slip.later()
            slip.tell("started", slip.steps[1])
        case 1:
            slip.plan()
            slip.through(slip.steps[:2])
        case 2:
            slip.plan()
        case 3:
            slip.outcome("llm", 2, "finished", slip.now)


def _refused(slip: _Slip) -> None:
    """There was no route for it; sent again, there may be."""
    slip.tell("dead-lettered", error=StepError("no_route", f"no route for {slip.type}", retryable=False))
    if slip.rng.random() < 0.5:
        slip.later()
        _straight(slip)


def _left_out(slip: _Slip) -> None:
    """By a planner, and because of an `unless`."""
    slip.plan()
    first, second, *rest = slip.steps
    slip.tell("skipped", first, detail="the planner has left it out")
    slip.later()
    slip.tell("skipped", second, detail="its unless holds")
    slip.later()
    slip.tell("skipped", second, detail="its unless still holds")
    slip.through(rest)
    slip.end()


def _planned_twice(slip: _Slip) -> None:
    """The plan that was made later is told first, and has fewer steps."""
    late = slip.now + dt.timedelta(seconds=3)
    slip.tell("planned", "", 0, late, steps=(*slip.itinerary[:2], slip.itinerary[-1]))
    slip.plan()
    slip.now = late
    slip.through(slip.steps)
    slip.end()


SHAPES: tuple[Callable[[_Slip], None], ...] = (
    _straight,
    _retried,
    _undone,
    _optional,
    _forked,
    _waits,
    _taken_over,
    _contradicted,
    _run_again,
    _timed_out,
    _cancelled,
    _stuck,
    _refused,
    _left_out,
    _planned_twice,
)


# What is odd, and what is corrupt


def slip_oddities(rng: random.Random) -> Iterator[Said]:
    at = "2026-03-14T05:06:07.000008Z"
    good: dict[str, Any] = {"kind": "started", "correlationId": "c-odd", "at": at, "step": "check", "by": "odd:1"}
    for value in _corrupt(good):
        yield Said(PROGRESS, b"", value)
    yield Said(PROGRESS, b"", b"[]")
    yield Said(PROGRESS, b"c-odd", b" [ ] \n")
    yield Said(PROGRESS, b"", json.dumps([good, {"by": "odd:2", **good, "at": "2026-03-14T07:06:07+02:00"}]).encode())
    error = {"code": "größe", "message": None}
    odd = good | {"kind": "failed", "error": error, "durationMs": 3, "unheard": [{"of": 1}], "traceId": "a\u0000b"}
    yield Said(PROGRESS, b"", json.dumps([odd], indent=1).encode())
    nothing = good | {"kind": "waiting", "step": "llm", "error": None, "durationMs": None, "detail": "\U0001f4e6 “so”"}
    yield Said(PROGRESS, b"", json.dumps([nothing], ensure_ascii=False).encode())


def _corrupt(good: dict[str, Any]) -> Iterator[bytes]:
    """Each in the middle of a list of others, which go with it, or alone. None of them tells of a slip that another
    message tells of: whoever takes a part of it shows it by one more slip."""
    mine = good | {"correlationId": "c-lost"}
    whole = json.dumps([mine]).encode()
    yield from (b"", b"\x00", b"{}", b"null", b'"planned"', whole[1:-1], whole[:-1], whole + b"]", whole + whole)
    yield whole.replace(b"c-lost", b"c-\xff\xfelost")
    yield whole.decode().encode("utf-16")
    bad: Any
    for bad in (
        7,
        [],
        None,
        {},
        {name: value for name, value in mine.items() if name != "correlationId"},
        {name: value for name, value in mine.items() if name != "at"},
        mine | {"kind": "vanished"},
        mine | {"kind": None},
        mine | {"at": "2026-03-14T05:06:07"},
        mine | {"at": "2026-02-30T05:06:07Z"},
        mine | {"at": 1_770_000_000},
        mine | {"at": "2600-01-01T00:00:00Z"},
        mine | {"at": "9999-12-31T23:59:59Z"},
        mine | {"step": 5},
        mine | {"type": None},
        mine | {"attempt": "1"},
        mine | {"attempt": True},
        mine | {"attempt": 1.5},
        mine | {"attempt": 2_147_483_647},
        mine | {"run": 1_000_000_001},
        mine | {"durationMs": "12"},
        mine | {"durationMs": 1e17},
        mine | {"durationMs": -1e14},
        mine | {"steps": ["check", 5]},
        mine | {"steps": "check"},
        mine | {"error": "rejected"},
        mine | {"error": {"message": "without a code"}},
        mine | {"error": {"code": "x", "surely": "not"}},
        mine | {"error": {"code": "x", "retryable": "no"}},
        mine | {"detail": "\ud800"},
    ):
        yield json.dumps([mine, bad, mine | {"step": "charge"}]).encode()
    yield json.dumps([mine | {"durationMs": float("nan")}]).encode()
