"""One run from its beginning to its end: which step came from which, and when."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.report.gantt import Row, gantt, span_of
from slipstream.pipeline.report.html import Html, behind, join, table, tag
from slipstream.pipeline.report.seen import Section, Seen, literal, moment
from slipstream.pipeline.report.words import ago_text, ms_text, some, time_text

ROWS_MAX = 200

TONES = {
    "done": "good",
    "retried": "warn",
    "failed": "bad",
    "skipped": "t6",
    "working": "calm",
    "waiting": "t3",
    "completed": "good",
    "dead-lettered": "bad",
    "under way": "calm",
    "dropped": "t6",
}


class NoSuchRun(PipelineError):
    """The tables know of no run of this name."""


def lineage(seen: Seen, wanted: str | None) -> Section:
    """Of the run that is wanted, or of the most interesting of late. Raises NoSuchRun."""
    return Section("lineage", "One run, step by step", _body(seen, wanted))


def _body(seen: Seen, wanted: str | None) -> Html:
    slip = wanted if wanted is not None else _most_interesting(seen)
    if slip is not None and (runs := _family(seen, slip)):
        return _slip(seen, slip, runs, is_chosen=wanted is None)
    run_id = wanted if wanted is not None else _latest_of_envelopes(seen)
    if run_id is not None and (steps := _of_envelopes(seen, run_id)):
        return _envelopes(seen, run_id, steps)
    if wanted is not None:
        raise NoSuchRun(
            f"nothing is known of the run {wanted}: neither slip_runs has it as a correlation id nor run_lineage as a "
            "run id. It may be too new for the tables, or too old"
        )
    return tag("p", "No run was told of yet: the tables slip_runs and run_lineage are empty.")


# Slips


def _most_interesting(seen: Seen) -> str | None:
    """One that failed, else one that had to try again, else the one with the most in it; of late."""
    rows = seen.rows(
        f"""SELECT r.correlation_id
            FROM slip_runs r
            LEFT JOIN (SELECT correlation_id, max(attempt) AS attempt FROM slip_steps GROUP BY 1) s
              USING (correlation_id)
            WHERE r.parent = '' OR r.parent IS NULL
            ORDER BY r.last_at >= {moment(seen.now - dt.timedelta(days=1))} DESC, r.state = 'dead-lettered' DESC,
                     coalesce(s.attempt, 0) > 0 DESC, r.events DESC, r.last_at DESC
            LIMIT 1"""
    )
    return rows[0]["correlation_id"] if rows else None


def _family(seen: Seen, slip: str) -> list[dict[str, Any]]:
    """All its runs, with those of its branches."""
    return seen.rows(
        f"""WITH RECURSIVE family AS (
              SELECT {literal(slip)} AS correlation_id
              UNION
              SELECT r.correlation_id FROM slip_runs r JOIN family f ON r.parent = f.correlation_id)
            SELECT r.* FROM slip_runs r JOIN family USING (correlation_id)
            ORDER BY r.begun_at, r.correlation_id, r.run LIMIT {ROWS_MAX}"""
    )


def _slip(seen: Seen, slip: str, runs: list[dict[str, Any]], *, is_chosen: bool) -> Html:
    names = ", ".join(literal(name) for name in {run["correlation_id"] for run in runs})
    steps = seen.rows(
        f"""SELECT * FROM slip_steps WHERE correlation_id IN ({names})
            ORDER BY coalesce(began_at, ended_at, last_at), correlation_id, step, attempt LIMIT {ROWS_MAX}"""
    )
    rows = list(_tree(slip, runs, steps, 0, set()))[:ROWS_MAX]
    if not (mine := [run for run in runs if run["correlation_id"] == slip]):
        return _left(slip, rows, steps)
    last = mine[-1]
    why = " It is shown because nothing else of late has more to tell." if is_chosen else ""
    failed = (
        f" It failed at {last['failed_step']}: {_error(last)}." if last["error_code"] and last["failed_step"] else ""
    )
    took = f", took {ms_text(last['duration_ms'])}" if last["duration_ms"] is not None else ""
    return join(
        tag(
            "p",
            tag("code", slip),
            f" ({last['type'] or 'of no type'}), ",
            tag("span", last["state"], class_=f"pill {TONES.get(last['state'], 't6')}"),
            f"{took}, {ago_text(last['last_at'], seen.now)}.{failed}{why}",
        ),
        _legend(rows),
        gantt(f"The steps of {slip} over time", rows),
        behind("As a table", _table(steps)),
    )


def _left(slip: str, rows: list[Row], steps: list[dict[str, Any]]) -> Html:
    return join(
        tag("p", "Of ", tag("code", slip), " itself the tables have nothing any more, only of its branches."),
        _legend(rows),
        gantt(f"The branches of {slip} over time", rows),
        behind("As a table", _table(steps)),
    )


def _tree(
    slip: str, runs: list[dict[str, Any]], steps: list[dict[str, Any]], depth: int, above: set[str]
) -> Iterator[Row]:
    if slip in above:
        return  # whoever calls itself its own branch
    above = above | {slip}
    mine = [run for run in runs if run["correlation_id"] == slip]
    branches = _branches(slip, runs)
    if not mine:  # it is gone from the tables, and they are not
        for branch in branches:
            yield from _tree(branch["correlation_id"], runs, steps, depth, above)
    for number, run in enumerate(mine):
        yield Row(
            label=(run["branch"] or slip) + (f", run {run['run'] + 1}" if len(mine) > 1 else ""),
            depth=depth,
            began=run["begun_at"],
            ended=run["ended_at"] or run["last_at"],
            tone=TONES.get(run["state"], "t6"),
            said=run["state"],
            is_run=True,
            is_open=run["ended_at"] is None,
        )
        tried = [step for step in steps if step["correlation_id"] == slip and step["run"] == run["run"]]
        end = _begun(mine[number + 1]) if number + 1 < len(mine) else None
        left = [each for each in branches if end is None or _begun(each) < end]
        branches = [each for each in branches if each not in left]
        several = {step["step"] for step in tried if step["attempt"]}
        for index, step in enumerate(tried):
            yield _attempt(step, depth + 1, numbered=step["step"] in several)
            following = tried[index + 1] if index + 1 < len(tried) else None
            for branch in [each for each in left if following is None or _begun(each) < _begin(following)]:
                left.remove(branch)
                yield from _tree(branch["correlation_id"], runs, steps, depth + 2, above)
        for branch in left:
            yield from _tree(branch["correlation_id"], runs, steps, depth + 2, above)
        done = {step["step"] for step in tried}
        for name in (name for name in run["steps"] or () if name not in done and name != "router"):
            said = "planned" if run["ended_at"] is None else "planned, not reached"
            yield Row(label=name, depth=depth + 1, began=None, ended=None, tone="t6", said=said)


def _branches(slip: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first run of each that the tables have."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        if run["parent"] == slip:
            found.setdefault(run["correlation_id"], run)
    return list(found.values())


def _begun(run: dict[str, Any]) -> dt.datetime:
    """Of a run whose beginning nobody knows, when it was last told of."""
    found: dt.datetime = run["begun_at"] or run["last_at"]
    return found


def _begin(step: dict[str, Any]) -> dt.datetime:
    found: dt.datetime = step["began_at"] or step["ended_at"] or step["last_at"]
    return found


def _attempt(step: dict[str, Any], depth: int, *, numbered: bool) -> Row:
    """Of attempts people count from 1."""
    is_open = step["state"] in ("working", "waiting")
    return Row(
        label=(step["step"] or "") + (f" #{step['attempt'] + 1}" if numbered else ""),
        depth=depth,
        began=_begin(step),
        ended=step["last_at"] if is_open else step["ended_at"],
        tone=TONES.get(step["state"], "t6"),
        said=_error(step) if step["error_code"] else step["state"] if is_open else "",
        is_open=is_open,
    )


def _error(row: dict[str, Any]) -> str:
    return f"{row['error_code']}: {row['error_message']}" if row["error_message"] else str(row["error_code"])


def _legend(rows: Sequence[Row]) -> Html:
    words = {
        "good": "done",
        "warn": "tried again",
        "bad": "failed",
        "calm": "working",
        "t3": "waiting",
        "t6": "skipped",
    }
    there = [tone for tone in words if any(row.tone == tone and row.began is not None for row in rows)]
    return tag(
        "p",
        [tag("span", "■ ", words[tone], class_=f"pill {tone}") for tone in there],
        class_="legend",
    )


def _table(steps: list[dict[str, Any]]) -> Html:
    return table(
        ["slip", "step", ">attempt", "state", "began (UTC)", ">took", "error"],
        [
            (
                tag("code", step["correlation_id"]),
                tag("code", step["step"]),
                step["attempt"] + 1,
                step["state"],
                time_text(_begin(step)),
                ms_text(step["duration_ms"]) if step["duration_ms"] is not None else "",
                _error(step) if step["error_code"] else "",
            )
            for step in steps
        ],
    )


# Messages that carry a run in their envelopes


def _latest_of_envelopes(seen: Seen) -> str | None:
    rows = seen.rows(
        """SELECT run_id, count(*) AS steps, max(last_at) AS latest FROM run_lineage WHERE origin = 'envelope'
           GROUP BY run_id ORDER BY steps > 1 DESC, latest DESC LIMIT 1"""
    )
    return rows[0]["run_id"] if rows else None


def _of_envelopes(seen: Seen, run_id: str) -> list[dict[str, Any]]:
    return seen.rows(
        f"""SELECT * FROM run_lineage WHERE origin = 'envelope' AND run_id = {literal(run_id)}
            ORDER BY first_at, step_id LIMIT {ROWS_MAX}"""
    )


def _envelopes(seen: Seen, run_id: str, steps: list[dict[str, Any]]) -> Html:
    rows = list(_grown(steps))
    span = span_of(rows)
    took = f", over {ms_text((span[1] - span[0]) / dt.timedelta(milliseconds=1))}" if span else ""
    when = f", {ago_text(span[1], seen.now)}" if span else ""
    return join(
        tag(
            "p",
            tag("code", run_id),
            f": {some(len(steps), 'step')} that messages carry in their envelopes{took}{when}.",
        ),
        gantt(f"The steps of {run_id} over time", rows),
        behind(
            "As a table",
            table(
                ["step", "came from", "topic", ">messages", "first (UTC)", "last (UTC)"],
                [
                    (
                        tag("code", step["step_id"]),
                        tag("code", step["parent_step_id"] or ""),
                        step["topic"],
                        f"{step['messages'] or 0:,}",
                        time_text(step["first_at"]),
                        time_text(step["last_at"]),
                    )
                    for step in steps
                ],
            ),
        ),
    )


def _grown(steps: list[dict[str, Any]]) -> Iterator[Row]:
    """Each after the one that it came from; those whose origin is not there, or is themselves, as roots."""
    known = {step["step_id"] for step in steps}
    left = {step["step_id"]: step for step in steps}

    def grow(step: dict[str, Any], depth: int) -> Iterator[Row]:
        if left.pop(step["step_id"], None) is None:
            return
        yield Row(
            label=step["step_id"],
            depth=depth,
            began=step["first_at"],
            ended=step["last_at"],
            tone="t0",
            said=f"{some(step['messages'] or 0, 'message')} in {step['topic']}",
        )
        for child in steps:
            if child["parent_step_id"] == step["step_id"]:
                yield from grow(child, depth + 1)

    for step in steps:
        if step["parent_step_id"] not in known:
            yield from grow(step, 0)
    while left:  # a circle
        yield from grow(next(iter(left.values())), 0)
