"""What the tables of slips must contain."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from tests.pipeline.rows import Malformed, Row, minute_of, place_of, quarantined
from tests.pipeline.slip_story import PROGRESS
from tests.pipeline.stored import Stored

PLANS = {"planned", "rerun"}
ENDS = {"completed", "dead-lettered", "dropped"}
STATES = {
    "finished": "done",
    "compensated": "done",
    "retried": "retried",
    "failed": "failed",
    "compensation-failed": "failed",
    "skipped": "skipped",
    "waiting": "waiting",
    "forked": "waiting",
    "started": "working",
}
"""What each kind says of an attempt; the others are of the slip as a whole."""
OUTCOMES = {"done", "retried", "failed"}
KINDS = {*ENDS, *STATES, "planned", "rerun"}

LATEST = dt.datetime(2500, 1, 1, tzinfo=dt.UTC)


# Silver: events


def silver_slips(log: Iterable[Stored]) -> dict[str, list[Row]]:
    """slip_events and, of their topic, quarantine."""
    tables: dict[str, list[Row]] = {"slip_events": [], "quarantine": []}
    for one in log:
        if one.topic != PROGRESS:
            continue
        try:
            events = _events(one.value)
        except (Malformed, ValueError, RecursionError) as reason:
            tables["quarantine"].append(quarantined(one, "Progress", reason or "it makes no sense"))
            continue
        for index, event in enumerate(events):
            tables["slip_events"].append(place_of(one) | {"index": index} | event)
    return tables


def _events(value: bytes) -> list[Row]:
    """All of them, or none: a message with one that is bad is bad."""
    told = json.loads(value.decode("utf-8"), parse_constant=_refuse)
    if not isinstance(told, list):
        raise Malformed("it is no list")
    return [_event(one) for one in told]


def _refuse(constant: str) -> NoReturn:
    raise Malformed(f"{constant} is no JSON")


def _event(told: Any) -> Row:
    """Fields that are not known are passed over; not so in an error."""
    if not isinstance(told, dict):
        raise Malformed(f"{told!r} is no event")
    error = told.get("error")
    if error is not None and (not isinstance(error, dict) or not error.keys() <= {"code", "message", "retryable"}):
        raise Malformed(f"{error!r} is no error")
    kind = _text(told, "kind", needed=True)
    if kind not in KINDS:
        raise Malformed(f"{kind!r} is no kind of event")
    steps = told.get("steps", [])
    if not isinstance(steps, list):
        raise Malformed(f"{steps!r} are no steps")
    return {
        "kind": kind,
        "correlation_id": _text(told, "correlationId", needed=True),
        "run": _whole(told, "run"),
        "type": _text(told, "type"),
        "step": _text(told, "step"),
        "attempt": _whole(told, "attempt"),
        "at": _time(_text(told, "at", needed=True)),
        "duration_ms": _number(told, "durationMs"),
        "error_code": None if error is None else _text(error, "code", needed=True),
        "error_message": None if error is None or error.get("message") is None else _text(error, "message"),
        "error_retryable": None if error is None else _bool(error, "retryable"),
        "detail": _text(told, "detail"),
        "steps": [_text({"step": step}, "step") for step in steps],
        "parent": _text(told, "parent"),
        "trace_id": _text(told, "traceId"),
        "by": _text(told, "by"),
    }


def _text(told: Row, name: str, *, needed: bool = False) -> str:
    value = told.get(name) if needed else told.get(name, "")
    if not isinstance(value, str):
        raise Malformed(f"{name} {value!r} is no text")
    value.encode()  # half a surrogate raises
    return value


def _whole(told: Row, name: str) -> int:
    value = told.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{name} {value!r} is no whole number")
    if value > 1_000_000_000:
        raise Malformed(f"{name} {value} is too many")
    return value


def _number(told: Row, name: str) -> float | None:
    value = told.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Malformed(f"{name} {value!r} is no number")
    if abs(value) > 100 * 366 * 86_400_000:
        raise Malformed(f"{name} {value} is more than a hundred years")
    return float(value)


def _bool(told: Row, name: str) -> bool | None:
    value = told.get(name)
    if value is not None and not isinstance(value, bool):
        raise Malformed(f"{name} {value!r} is neither true nor false")
    return value


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


def _time(text: str) -> dt.datetime:
    if not _TIME.fullmatch(text):
        raise Malformed(f"{text!r} is no time with a zone")
    time = dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    if time >= LATEST:
        raise Malformed(f"{text} is too late")
    return time


# Silver: attempts and runs


def place(event: Row) -> tuple[int, int, int]:
    return event["offset"], event["index"], event["partition"]


def first(events: Iterable[Row]) -> Row | None:
    """In the log."""
    return min(events, key=place, default=None)


def last_told(events: Iterable[Row]) -> Row | None:
    """In the log."""
    return max(events, key=place, default=None)


def latest(events: Iterable[Row]) -> Row | None:
    return max(events, key=lambda event: (event["at"], place(event)), default=None)


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def attempts(events: Iterable[Row]) -> list[Row]:
    return [event for event in events if event["step"] and event["kind"] in STATES]


def slip_steps(events: Iterable[Row]) -> list[Row]:
    groups = grouped(attempts(events), "correlation_id", "run", "step", "attempt")
    return [_step(key, told) for key, told in groups.items()]


def _step(key: tuple[Any, ...], told: list[Row]) -> Row:
    correlation_id, run, step, attempt = key
    winner = _winner(told)
    state = STATES[winner["kind"]]
    return {
        "correlation_id": correlation_id,
        "run": run,
        "step": step,
        "attempt": attempt,
        "type": max(event["type"] for event in told),
        "state": state,
        "undoes": undoes(step),
        "began_at": _began(told),
        "ended_at": winner["at"] if state in OUTCOMES | {"skipped"} else None,
        "duration_ms": winner["duration_ms"],
        "error_code": winner["error_code"],
        "error_message": winner["error_message"],
        "error_retryable": winner["error_retryable"],
        "detail": winner["detail"],
        "optional": any(
            event["kind"] == "skipped" and event["error_code"] not in {None, "message_timeout", "cancelled"}
            for event in told
        ),
        "taken": sum(event["kind"] == "started" for event in told),
        "by": winner["by"],
        "trace_id": max(event["trace_id"] for event in told),
        "last_at": max(event["at"] for event in told),
    }


def _winner(told: list[Row]) -> Row:
    """Of an outcome, the first who writes it down is right; of what goes on, the last is."""
    strengths: list[tuple[set[str], Callable[[Iterable[Row]], Row | None]]] = [
        (OUTCOMES, first),
        ({"skipped"}, first),
        ({"waiting"}, latest),
        ({"working"}, latest),
    ]
    for states, choose in strengths:
        winner = choose(event for event in told if STATES[event["kind"]] in states)
        if winner is not None:
            return winner
    raise AssertionError("every kind has a state")


def _began(told: list[Row]) -> dt.datetime | None:
    begun: list[dt.datetime] = []
    for event in told:
        if event["kind"] in {"started", "waiting", "forked"}:
            begun.append(event["at"])
        elif STATES[event["kind"]] in OUTCOMES and event["duration_ms"] is not None:
            begun.append(event["at"] - dt.timedelta(microseconds=round(event["duration_ms"] * 1000)))
    return min(begun, default=None)


def undoes(step: str) -> str:
    """`undo:charge#1` undoes `charge`, in the second run."""
    return step.removeprefix("undo:").partition("#")[0] if step.startswith("undo:") else ""


def slip_runs(events: Iterable[Row]) -> list[Row]:
    return [_run(key, told) for key, told in grouped(events, "correlation_id", "run").items()]


def _run(key: tuple[Any, ...], told: list[Row]) -> Row:
    correlation_id, run = key
    end = last_told(event for event in told if event["kind"] in ENDS)
    plan = first(event for event in told if event["kind"] in PLANS)
    last = latest(event for event in told if event["step"])
    branches = [event["detail"] for event in told if event["kind"] == "planned" and event["parent"]]
    return {
        "correlation_id": correlation_id,
        "run": run,
        "type": max(event["type"] for event in told),
        "parent": max(event["parent"] for event in told),
        "branch": max(branches, default=""),
        "state": end["kind"] if end else "under way",
        "steps": plan["steps"] if plan else [],
        "begun_at": min(event["at"] for event in told),
        "ended_at": end["at"] if end else None,
        "duration_ms": end["duration_ms"] if end else None,
        "failed_step": end["step"] if end else "",
        "error_code": end["error_code"] if end else None,
        "error_message": end["error_message"] if end else None,
        "last_step": last["step"] if last else "",
        "last_kind": last["kind"] if last else "",
        "last_at": max(event["at"] for event in told),
        "events": len(told),
        "trace_id": max(event["trace_id"] for event in told),
    }


# Gold


def step_metrics(steps: Iterable[Row]) -> list[Row]:
    ended = [step | {"minute": minute_of(step["ended_at"])} for step in steps if step["state"] in OUTCOMES]
    rows: list[Row] = []
    for (step, minute), found in grouped(ended, "step", "minute").items():
        durations = sorted(one["duration_ms"] for one in found if one["duration_ms"] is not None)
        rows.append(
            {
                "step": step,
                "minute": minute,
                "runs": len({(one["correlation_id"], one["run"]) for one in found}),
                "attempts": len(found),
                "errors": sum(one["state"] in {"retried", "failed"} for one in found),
                "p50_ms": percentile(durations, 0.50),
                "p95_ms": percentile(durations, 0.95),
                "p99_ms": percentile(durations, 0.99),
            }
        )
    return rows


def percentile(ordered: Sequence[float], part: float) -> float | None:
    """Between two neighbours, in proportion."""
    if not ordered:
        return None
    position = part * (len(ordered) - 1)
    below, above = math.floor(position), math.ceil(position)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def run_lineage(events: Iterable[Row], steps: Iterable[Row]) -> list[Row]:
    """Of slips: what was planned, and what was done."""
    rows: dict[tuple[str, str], Row] = {}

    def row_of(event: Row, step_id: str) -> Row:
        run_id = event["correlation_id"] + (f"#{event['run']}" if event["run"] else "")
        empty: Row = {"origin": "slip", "run_id": run_id, "step_id": step_id, "parent_step_id": "", "parent_run_id": ""}
        empty |= dict.fromkeys(("position", "first_at", "last_at", "attempts", "state", "topic", "messages"))
        return rows.setdefault((run_id, step_id), empty)

    events = list(events)
    for event in events:
        if event["kind"] in PLANS:
            planned = [step for step in event["steps"] if step != "router"]
            for position, (before, step) in enumerate(zip(["", *planned], planned, strict=False)):
                row = row_of(event, step)
                row["position"] = position if row["position"] is None else max(row["position"], position)
                row["parent_step_id"] = max(row["parent_step_id"], before)
                row["parent_run_id"] = max(row["parent_run_id"], event["parent"])
                row["last_at"] = max(row["last_at"] or event["at"], event["at"])
    for event in attempts(events):
        row = row_of(event, event["step"])
        row["first_at"] = min(row["first_at"] or event["at"], event["at"])
        row["last_at"] = max(row["last_at"] or event["at"], event["at"])
        row["attempts"] = max(row["attempts"] or 0, event["attempt"] + 1)
    for step in steps:
        row = row_of(step, step["step"])
        if step["attempt"] + 1 == row["attempts"]:
            row["state"] = step["state"]
    return list(rows.values())


def stuck_slips(runs: Iterable[Row], since: dt.datetime) -> list[Row]:
    """Return those of which nothing was told after that time, but for those that wait as they should."""
    runs = list(runs)
    parents = {run["parent"] for run in runs if run["state"] == "under way"}
    return [
        {
            "correlation_id": run["correlation_id"],
            "run": run["run"],
            "type": run["type"],
            "step": run["last_step"],
            "kind": run["last_kind"],
            "since": run["last_at"],
            "trace_id": run["trace_id"],
        }
        for run in runs
        if run["state"] == "under way" and run["last_at"] < since
        if run["last_kind"] != "waiting"
        if run["last_kind"] != "forked" or run["correlation_id"] not in parents
    ]
