"""Draws the timeline of a slip: one line per attempt, on one axis of time, and last what is going on, in words."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from slipstream.cli.output import payload_text
from slipstream.durations import duration_text

if TYPE_CHECKING:
    from slipstream.slip.event import StepError
    from slipstream.slip.standing import Standing
    from slipstream.slip.timeline import Row, Run, Timeline

NAME_MAX = 32
BAR_MIN, BAR_MAX = 16, 60
DURATION_WIDTH = 8
ERROR_CHARS = 400
"""Of an error in a line for people; --json has all of it."""
TEXT_WANTED = 30
"""Columns for what is said of a row, before the bar gets more than its least."""

QUEUED, WORKING, WAITING = "·", "█", "─"
"""On its way or in a pause; in somebody's hands; for a person, a word or branches."""

MARKS = {
    "done": ("✓", "green"),
    "retried": ("↻", "yellow"),
    "failed": ("✗", "bold red"),
    "skipped": ("-", "dim"),
    "working": ("▸", "bold cyan"),
    "waiting": ("?", "bold yellow"),
    "queued": ("▹", "bold yellow"),
    "pending": ("○", "dim"),
    "completed": ("✓", "green"),
    "dead-lettered": ("✗", "bold red"),
    "under way": ("▸", "bold cyan"),
    "dropped": ("-", "dim"),
}
STATE_STYLES = {"completed": "bold green", "dead-lettered": "bold red", "under way": "bold yellow", "dropped": "dim"}

COMMAND = " — slipstream slip "

TAKEN_UP_WITHIN_S = 2.0
"""Whoever looks in between sees every message on its way somewhere: that is no reason to worry."""


def draw(timeline: Timeline, width: int, now: dt.datetime) -> Iterator[Text]:
    yield from _header(timeline, width, now)
    for run in timeline.runs:
        yield Text()
        if len(timeline.runs) > 1 or run.detail:
            yield _run_heading(run)
        yield from _Drawing(run, width, now).lines()
    yield Text()
    style = "" if timeline.state == "completed" else "red" if timeline.state == "dead-lettered" else "yellow"
    for line in _sentence(in_words(timeline.correlation_id, timeline.standing, now), width):
        yield Text(line, style=style)


def _header(timeline: Timeline, width: int, now: dt.datetime) -> Iterator[Text]:
    name = Text(_line(timeline.correlation_id), style="bold")
    yield Text("  ").join([name, Text(_line(timeline.type)), Text(timeline.state, STATE_STYLES[timeline.state])])
    facts = [f"begun {clock(timeline.begun_at, now)}"]
    if timeline.ended_at is not None:
        runs = f" in {len(timeline.runs)} runs" if len(timeline.runs) > 1 else ""
        facts.append(f"took {_took(timeline.begun_at, timeline.ended_at)}{runs}")
    else:
        facts.append(f"under way for {_took(timeline.begun_at, now)}, moved {_took(timeline.moved_at, now)} ago")
    if timeline.timeout_at is not None and timeline.ended_at is None:
        facts.append(f"given up at {clock(timeline.timeout_at, now)}")
    trace = [f"trace {_line(timeline.trace_id)}"] if timeline.trace_id else []
    whole = " · ".join(facts + trace)
    for line in [whole] if len(whole) <= width else [" · ".join(facts), *trace]:
        yield Text(line, style="dim")


def _run_heading(run: Run) -> Text:
    what = f"run {run.number + 1}"
    if run.number and run.rows:
        what += f", from {_line(run.rows[0].step)}"
    what = _line(run.detail) if run.detail else what
    took = "" if run.ended_at is None else f", took {_took(run.begun_at, run.ended_at)}"
    return Text(f"{what}: ").append(run.state, STATE_STYLES[run.state]).append(took)


class _Drawing:
    """One run, with its branches, on one axis."""

    def __init__(self, run: Run, width: int, now: dt.datetime) -> None:
        self._run = run
        self._now = now
        self._from = run.begun_at
        self._to = max([run.ended_at or now, *(time for row in _every_row(run) for time in _times(row, now))])
        self._name_width = min(NAME_MAX, max(map(len, _names(run, 0)), default=4))
        fixed = 2 + self._name_width + 2 + 1 + DURATION_WIDTH + 2
        self._bar_width = min(BAR_MAX, max(BAR_MIN, width - fixed - TEXT_WANTED))
        self._text_at = fixed + self._bar_width
        self._width = width

    def lines(self) -> Iterator[Text]:
        if not self._run.all_rows:
            yield Text("it has no steps" if self._run.state == "completed" else "it was not planned", style="dim")
            return
        span = _took(self._from, self._to)
        axis = f"0{span:>{self._bar_width - 1}}"
        yield Text(" " * (4 + self._name_width) + axis, style="dim")
        yield from self._both_ways(self._run, 0)

    def _both_ways(self, run: Run, depth: int) -> Iterator[Text]:
        yield from self._rows(run.rows, depth)
        if run.undoing:
            yield Text("  " * depth + "undone, the last first", style="dim")
            yield from self._rows(run.undoing, depth)

    def _rows(self, rows: tuple[Row, ...], depth: int) -> Iterator[Text]:
        several = {row.step for row in rows if row.attempt}
        before: Row | None = None
        for row in rows:
            said = _said(row, again=before is not None and _is_like(row, before))
            yield from self._row(row, said, depth, numbered=row.step in several)
            before = row
            for branch in row.branches:
                mark, style = MARKS[branch.state]
                name = Text("  " * (depth + 1)).append(mark, style).append(f" {_line(branch.branch)}:", "cyan")
                yield name
                for run in branch.runs:
                    yield from self._both_ways(run, depth + 2)

    def _row(self, row: Row, said: str, depth: int, *, numbered: bool) -> Iterator[Text]:
        mark, style = _mark(row)
        name = fit(_name(row, depth, numbered=numbered), self._name_width)
        calm = row.state in ("skipped", "pending")
        line = Text(f"{'':{2 * depth}}").append(mark, style).append(" ")
        line.append(name[2 * depth :].ljust(self._name_width - 2 * depth), "dim" if calm else "").append("  ")
        said_style = "dim" if row.error is None or row.state == "skipped" else style.removeprefix("bold ")
        if calm and row.began_at is None and len(said) <= self._width - len(line):
            line.append(said, said_style)  # where its bar would be, as it has none
            line.rstrip()
            yield line
            return
        line.append_text(self._bar(row)).append(" ")
        line.append(_duration(row, self._now).rjust(DURATION_WIDTH), "dim" if calm else "")
        if len(said) <= self._width - self._text_at:
            yield line.append(f"  {said}" if said else "", said_style)
            return
        yield line
        indent = 4 + self._name_width
        for piece in _wrapped(said, self._width - indent):
            yield Text(" " * indent).append(piece, said_style)

    def _bar(self, row: Row) -> Text:
        """At least one cell for whatever was begun, however short."""
        cells = [" "] * self._bar_width
        began = row.began_at
        ended = row.ended_at or (self._now if row.state in ("working", "waiting", "queued") else None)
        if ended is None or (row.state == "skipped" and began is None):
            return Text("".join(cells))
        if row.queued_at is not None:
            for cell in range(self._cell(row.queued_at), self._cell(began or ended)):
                cells[cell] = QUEUED
        first = last = len(cells)
        if began is not None:
            first = min(self._cell(began), len(cells) - 1)
            last = max(first + 1, self._cell(ended))
            cells[first:last] = [WAITING if row.kind != "work" else WORKING] * (last - first)
        bar = Text("".join(cells))
        bar.stylize("dim", 0, first)
        bar.stylize(_mark(row)[1].removeprefix("bold "), first, last)
        return bar

    def _cell(self, time: dt.datetime) -> int:
        span = (self._to - self._from).total_seconds() or 1.0
        share = (time - self._from).total_seconds() / span
        return min(self._bar_width, max(0, round(share * self._bar_width)))


def _mark(row: Row) -> tuple[str, str]:
    """Red is for what needs a person: what may fail does not."""
    mark, style = MARKS[row.state]
    return mark, "yellow" if row.optional else style


def _every_row(run: Run) -> Iterator[Row]:
    for row in run.all_rows:
        yield row
        for branch in row.branches:
            for inner in branch.runs:
                yield from _every_row(inner)


def _times(row: Row, now: dt.datetime) -> Iterator[dt.datetime]:
    if row.ended_at is not None:
        yield row.ended_at
    elif row.began_at is not None:
        yield now


def _names(run: Run, depth: int) -> Iterator[str]:
    several = {row.step for row in run.all_rows if row.attempt}
    for row in run.all_rows:
        yield _name(row, depth, numbered=row.step in several)
        for branch in row.branches:
            for inner in branch.runs:
                yield from _names(inner, depth + 2)


def _name(row: Row, depth: int, *, numbered: bool) -> str:
    """Of attempts people count from 1."""
    return "  " * depth + _line(row.undoes or row.step) + (f" #{row.attempt + 1}" if numbered else "")


def fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _duration(row: Row, now: dt.datetime) -> str:
    if row.state in ("skipped", "pending") and row.began_at is None:
        return ""
    since = row.began_at or row.queued_at
    until = row.ended_at or (now if row.state in ("working", "waiting", "queued") else None)
    return "" if since is None or until is None else _took(since, until)


def _is_like(row: Row, before: Row) -> bool:
    """Failed in the same way, as an attempt at the same step."""
    if row.error is None or before.error is None:
        return False
    said, said_before = (row.step, row.error.code, row.error.message), (before.error.code, before.error.message)
    return said == (before.step, *said_before)


def _said(row: Row, *, again: bool) -> str:
    """`again`: the attempt before has failed in the same way, which need not be read twice."""
    parts: list[str] = []
    if row.kind == "wait" and (decision := _decision(row.detail)):
        parts.append(decision)
    elif row.error is not None:
        parts.append(f"{_line(row.error.code)}, as before" if again else error_text(row.error))
    if row.detail and row.kind != "wait":
        parts.append(_line(row.detail))
    if row.optional:
        parts.append("it may fail: the message goes on without it")
    if row.taken > 1:
        parts.append(f"taken up {row.taken} times")
    said = "; ".join(parts)
    if row.state != "skipped":
        return said
    return f"skipped {said}" if said.startswith("as ") else f"skipped: {said}" if said else "skipped"


def _decision(notes: str) -> str:
    """What a person has said, which is noted as JSON; where nobody has in time, the note is text."""
    if not notes.startswith("{"):
        return _line(notes)
    said = json.loads(notes)
    word = {"approve": "approved", "deny": "denied"}.get(str(said.get("decision")), "answered")
    by = f" by {said['by']}" if said.get("by") else ""
    return _line(f"{word}{by}" + (f": {said['note']}" if said.get("note") else ""))


def error_text(error: StepError) -> str:
    return fit(_line(f"{error.code}: {error.message}" if error.message else error.code), ERROR_CHARS)


# What is going on, in words


def in_words(correlation_id: str, standing: Standing, now: dt.datetime) -> str:
    """One sentence, with what to type next where something can be done."""
    since = "" if standing.since is None else f" for {_took(standing.since, now)}"
    until = "" if standing.until is None else f", until {clock(standing.until, now)}"
    step, typed, name = _line(standing.step), _quoted(standing.step), _quoted(correlation_id)
    match standing.going:
        case "completed":
            return f"completed {_took(standing.since or now, now)} ago"
        case "dropped":
            return f"dropped: {_line(standing.reason) or 'its message was over without it'}"
        case "dead-lettered":
            why = f": {error_text(standing.error)}" if standing.error is not None else ""
            where = f" at {step}" if step else ""
            first = standing.again_from
            again = f" — slipstream slip rerun {name} --from {_quoted(first)}" if first else ""
            return f"a dead letter since {clock(standing.since or now, now)}, failed{where}{why}{again}"
        case "paused":
            reason = f": {_line(standing.reason)}" if standing.reason else ""
            return f"step {step} is paused{reason}{until} — slipstream slip resume {typed}"
        case "approval":
            return f"waits for approval at {step}{since}{until} — slipstream slip approve {name} {typed}"
        case "signal":
            return f"waits for a signal at {step}{since}{until} — slipstream slip signal {name} {typed}"
        case "chunks":
            return f"{step} waits for chunks that have not come{since}{until}"
        case "retry pause":
            return f"in retry pause before {step}{until}"
        case "at work":
            by = f" by {_line(standing.by)}" if standing.by else ""
            return f"{step} is being worked on{since}{by}"
        case "worker lost":
            taken = "" if standing.since is None else f" {_took(standing.since, now)} ago"
            return (
                f"{step} was taken{taken} by {_line(standing.by)}, which does not work on it any more: "
                f"{_line(standing.reason)}; the message is delivered again when its lease ends (SLIP_ACK_DEADLINE_MS)"
            )
        case "no worker":
            return (
                f"no worker can take {step}{since}: {_line(standing.reason)}. Start one with @worker.step({step!r}, "
                f"topic={_line(standing.topic)!r}), or change `topic` of the step in the route table"
            )
        case "branches":
            return _branches_in_words(standing, since + until, now)
        case "not taken up":
            waited_s = (now - standing.since).total_seconds() if standing.since is not None else 0.0
            if waited_s < TAKEN_UP_WITHIN_S:
                return f"on its way to {step}{since}"
            where = f" from {_line(standing.topic)}" if standing.topic else ""
            if standing.workers:
                busy = "its worker is" if len(standing.workers) == 1 else f"its {len(standing.workers)} workers are"
                return f"{step} is not taken yet{where}{since}: {busy} running, and may be busy with others"
            last = f"; {_line(standing.reason)}" if standing.reason else ""
            return f"{step} is not taken yet{where}{since}: no worker for it is known to run there{last}"
        case "ending":
            return f"all steps are done; the router has not told its end{since}: does it run?"


def _branches_in_words(standing: Standing, when: str, now: dt.datetime) -> str:
    if not standing.branches:
        return f"all branches of {_line(standing.step)} have ended; the router has not joined them{when}: does it run?"
    each = "; ".join(f"{_line(name)}: {in_words(name, branch, now)}" for name, branch in standing.branches)
    return f"{_line(standing.step)} waits for its branches{when}; {each}"


def clock(time: dt.datetime, now: dt.datetime) -> str:
    """As a clock on the wall shows it, with the date where it is not today's."""
    local, today = time.astimezone(), now.astimezone().date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M:%S}"


def _took(began: dt.datetime, ended: dt.datetime) -> str:
    took_ms = (ended - began).total_seconds() * 1000
    return duration_text(took_ms) if took_ms >= 1 else "<1 ms"


def _line(text: str) -> str:
    return payload_text(text.encode(errors="replace"))


def _quoted(text: str) -> str:
    """As a shell takes it."""
    return shlex.quote(_line(text))


def _wrapped(text: str, width: int) -> Iterable[str]:
    return textwrap.wrap(text, max(20, width), break_on_hyphens=False)


def _sentence(text: str, width: int) -> Iterator[str]:
    """What there is to type stays in one piece, on a line of its own where there is no room for it."""
    said, dash, command = text.rpartition(COMMAND)
    if len(text) <= width or not dash:
        yield from _wrapped(text, width)
    else:
        yield from _wrapped(said, width)
        yield (dash + command).removeprefix(" — ")
