"""`slipstream jobs watch`: a bar for each job, until all have ended."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import rich_click as click
from rich.markup import escape
from rich.progress import Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from slipstream.cli.complete import complete_job
from slipstream.cli.jobs_service import on_a_service
from slipstream.cli.output import EXIT_CODES, Output
from slipstream.cli.values import size_text, time_text

if TYPE_CHECKING:
    from slipstream.jobs.client import JobsClient
    from slipstream.jobs.ledger import JobSnapshot

LOOK_S = 0.5
NOTE_EVERY_S = 5.0
AWAY_S_MAX = 30.0
"""A service that is restarted is waited for."""
WIDTH = 40


@click.command(epilog=EXIT_CODES)
@click.argument("job_ids", metavar="[JOB_ID]...", nargs=-1, shell_complete=complete_job)
@on_a_service
async def watch(jobs: JobsClient, output: Output, job_ids: tuple[str, ...]) -> None:
    """Watch jobs until all have ended: those named, or all that have not ended yet.

    Without a terminal it prints a line whenever something has changed. A job with lost tasks is not waited for: it ends
    only after a requeue. The exit code is 1 unless all are completed.

    \b
    [bold]Examples[/]
      slipstream jobs watch
      slipstream jobs watch 0199c0de-7f00-7000-8000-000000000000
    """
    wanted = list(dict.fromkeys(job_ids)) or await under_way(jobs)
    if not wanted:
        output.say("no job is under way")
    sys.exit(await follow(jobs, output, wanted))


async def follow(jobs: JobsClient, output: Output, job_ids: Sequence[str]) -> int:
    """Show jobs until all have ended, or cannot end because their tasks are lost; return the exit code."""
    on_a_terminal = sys.stdout.isatty() and not output.as_json
    columns = (
        TextColumn("[bold]{task.description}[/]"),
        Bar(),
        Counts(),
        Rate(),
        TextColumn("[dim]{task.fields[transfer]}[/]"),
        Remaining(),
    )
    with Progress(*columns, console=output.out, disable=not on_a_terminal) as progress:
        seen = _Seen(output, progress if on_a_terminal else None)
        waiting = list(job_ids)
        while waiting:
            for job_id in list(waiting):
                job = await _ask(jobs, output, job_id)
                seen.show(job)
                if job.is_ended or job.lost_tasks:
                    waiting.remove(job_id)
            if waiting:
                await asyncio.sleep(LOOK_S)
    return 0 if all(job.state == "completed" for job in seen.jobs.values()) else 1


async def until_ended(jobs: JobsClient, output: Output, job_id: str) -> None:
    """Wait for the end of a job; while something is under way, note every few seconds how far it has come."""
    noted_at = -NOTE_EVERY_S
    while True:
        job = await _ask(jobs, output, job_id)
        if job.is_ended or job.lost_tasks:
            return
        if (
            (job.bytes_under_way or job.waiting_tasks)
            and not output.as_json
            and time.monotonic() - noted_at >= NOTE_EVERY_S
        ):
            noted_at = time.monotonic()
            output.note(f"[dim]{escape(_line(job))}: {transfer_text(job)}[/]")
        await asyncio.sleep(LOOK_S)


async def _ask(jobs: JobsClient, output: Output, job_id: str) -> JobSnapshot:
    from slipstream.jobs.client import ServiceUnreachable  # noqa: PLC0415

    away_since: float | None = None
    while True:
        try:
            return await jobs.job(job_id, resources=False)
        except ServiceUnreachable as error:
            if away_since is None:
                away_since = time.monotonic()
                output.note(f"[yellow]the service does not answer, waiting for it:[/] {escape(str(error))}")
            if time.monotonic() - away_since > AWAY_S_MAX:
                raise
            await asyncio.sleep(LOOK_S)


async def under_way(jobs: JobsClient) -> list[str]:
    found: list[str] = []
    for state in ("in_progress", "queued", "paused"):
        before = ""
        while True:
            page = await jobs.jobs(state=state, limit=1_000, before=before)
            found += [job.job_id for job in page.jobs]
            before = page.next or ""
            if not before:
                break
    return list(dict.fromkeys(reversed(found)))  # the oldest first; one may have begun in between


class _Seen:
    """What was shown of each job: as a bar, or as a line whenever it has changed."""

    def __init__(self, output: Output, progress: Progress | None) -> None:
        self._output = output
        self._progress = progress
        self._bars: dict[str, TaskID] = {}
        self.jobs: dict[str, JobSnapshot] = {}

    def show(self, job: JobSnapshot) -> None:
        before = self.jobs.get(job.job_id)
        self.jobs[job.job_id] = job
        if self._progress is not None:
            self._draw(self._progress, job)
        elif before is None or _standing(before) != _standing(job):
            if self._output.as_json:
                self._output.json(job)
            else:
                self._output.say(escape(_line(job)))
                sys.stdout.flush()

    def _draw(self, progress: Progress, job: JobSnapshot) -> None:
        if job.job_id not in self._bars:
            self._bars[job.job_id] = progress.add_task(escape(job.job_id), total=None, transfer="")
        progress.update(
            self._bars[job.job_id],
            total=job.resources_total or None,
            completed=job.resources_completed + job.resources_failed,
            failed=job.resources_failed,
            state=job.state,
            transfer=", ".join(filter(None, (_speed_text(job), waiting_text(job)))),
            remaining_s=job.remaining_s,
        )


def transfer_text(job: JobSnapshot) -> str:
    """Return the bytes of a job, and while something is under way its speed and the time that is left."""
    left = f", about {dt.timedelta(seconds=job.remaining_s)} left" if job.remaining_s is not None else ""
    return _speed_text(job) + left


def waiting_text(job: JobSnapshot) -> str:
    """Return which host the tasks of a job wait for, and until when; "" if they wait for none."""
    if not job.waiting_tasks:
        return ""
    tasks = "1 task waits" if job.waiting_tasks == 1 else f"{job.waiting_tasks:,} tasks wait"
    return f"{tasks} for {job.waiting_host}, which asked to wait until {time_text(job.waiting_until_ms)}"


def _speed_text(job: JobSnapshot) -> str:
    under_way = f", {size_text(job.bytes_under_way)} under way" if job.bytes_under_way else ""
    speed = f", {size_text(job.bytes_per_s)}/s" if job.bytes_per_s else ""
    return f"{size_text(job.bytes_stored)} stored{under_way}{speed}"


def _standing(job: JobSnapshot) -> tuple[object, ...]:
    counts = (job.resources_completed, job.resources_failed, job.resources_total, job.lost_tasks)
    return (job.state, *counts, job.waiting_host)


def _line(job: JobSnapshot) -> str:
    failed = f", {job.resources_failed:,} failed" if job.resources_failed else ""
    lost = f", {job.lost_tasks:,} lost: slipstream jobs requeue {job.job_id}" if job.lost_tasks else ""
    waiting = f", {waiting_text(job)}" if job.waiting_tasks else ""
    done = f"{job.resources_completed:,} of {job.resources_total:,} completed"
    return f"{job.job_id} {job.state}: {done}{failed}{lost}{waiting}"


class Bar(ProgressColumn):
    """Green for what was completed, red for what failed, of the whole."""

    def render(self, task: Task) -> Text:
        total = task.total or 0
        failed = task.fields.get("failed", 0)
        completed = task.completed - failed
        green = round(WIDTH * completed / total) if total else 0
        red = min(WIDTH - green, max(round(WIDTH * failed / total), 1 if failed else 0)) if total else 0
        return Text.assemble(("━" * green, "green"), ("━" * red, "red"), ("─" * (WIDTH - green - red), "dim"))


class Counts(ProgressColumn):
    def render(self, task: Task) -> Text:
        failed = task.fields.get("failed", 0)
        text = Text(f"{int(task.completed - failed):,}", "green")
        if failed:
            text.append(f" + {failed:,}", "red")
        return text.append(f" of {int(task.total or 0):,} {task.fields.get('state', '')}", "default")


class Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f}/s", "dim")


class Remaining(TimeRemainingColumn):
    """The time that is left: by bytes where the service knows it, else by resources."""

    def render(self, task: Task) -> Text:
        left_s = task.fields.get("remaining_s")
        return super().render(task) if left_s is None else Text(str(dt.timedelta(seconds=left_s)), "progress.remaining")
