"""`slipstream jobs dlq` and `jobs replay`: resources that could not be stored, and what is done about them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import rich_click as click

from slipstream.cli.complete import complete_job
from slipstream.cli.jobs_service import NotThere, on_a_service
from slipstream.cli.output import EXIT_CODES, Output
from slipstream.cli.values import When, time_text

if TYPE_CHECKING:
    from slipstream.jobs.client import JobsClient
    from slipstream.jobs.dead_letters import Dealt, Letter, Selection

NOTHING_SELECTED = (
    "say which: --job, --resource, --code, --tenant, --type, --since or --until; or --all; "
    "--dry-run shows which that would be"
)


@click.group()
def dlq() -> None:
    """Resources that could not be stored: look at them, or have them out of sight. To try again: jobs replay."""


def _selecting(command: Any) -> Any:
    for option in reversed(
        [
            click.option("--job", "job_id", default="", shell_complete=complete_job, help="Of this job."),
            click.option("--resource", "resource_id", default="", help="Of this resource."),
            click.option("--code", default="", help="With this code, or one that begins so, such as DOWNLOAD_."),
            click.option("--tenant", default="", help="Of this tenant."),
            click.option("--type", "job_type", default="", help="Of jobs of this type."),
            click.option("--since", type=When(), help="Failed then or later (2030-01-31T12:00Z, or 2h ago as 2h)."),
            click.option("--until", type=When(), help="Failed before this time."),
        ]
    ):
        command = option(command)
    return command


def _dealing(command: Any) -> Any:
    for option in reversed(
        [
            click.option("--all", "everything", is_flag=True, help="All there are."),
            click.option("--dry-run", is_flag=True, help="Only show which."),
        ]
    ):
        command = option(command)
    return _selecting(command)


@dlq.command("list", epilog=EXIT_CODES)
@_selecting
@click.option("--dealt-with", is_flag=True, help="Those too that were replayed, discarded, or are stored by now.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="At most so many.")
@on_a_service
async def list_letters(jobs: JobsClient, output: Output, limit: int, dealt_with: bool, **given: Any) -> None:
    """List resources that could not be stored, the newest first.

    \b
    [bold]Examples[/]
      slipstream jobs dlq list --code DOWNLOAD_ --since 2h
    """
    page = await jobs.dead_letters(_selection(given, dealt_with=dealt_with), limit)
    if output.as_json:
        for letter in page.letters:
            output.json(letter)
        return
    if not page.letters:
        output.say("no dead letters")
        return
    _table(output, page.letters)
    if page.total > len(page.letters):
        output.note(f"[dim]there are {page.total:,}: see more with --limit, or filter[/]")


@dlq.command(epilog=EXIT_CODES)
@click.argument("job_id", shell_complete=complete_job)
@click.argument("resource_id")
@on_a_service
async def show(jobs: JobsClient, output: Output, job_id: str, resource_id: str) -> None:
    """Show the newest dead letter of a resource whole, with its task as JSON."""
    from slipstream.jobs.dead_letters import Selection  # noqa: PLC0415

    page = await jobs.dead_letters(Selection(job_id=job_id, resource_id=resource_id, dealt_with=True), 1)
    if not page.letters:
        raise NotThere(f"there is no dead letter of {resource_id} of job {job_id}: see `slipstream jobs dlq list`")
    letter = page.letters[0]
    if output.as_json:
        output.json(letter)
        return
    output.table(
        ["", ""],
        [
            ("job", letter.job_id),
            ("resource", letter.resource_id),
            ("type", letter.job_type),
            ("tenant", letter.tenant or "-"),
            ("url", letter.url),
            ("failed", time_text(letter.failed_at_ms)),
            ("attempts", letter.attempts),
            ("code", letter.code),
            ("message", letter.message),
            ("became", letter.became or "-"),
            ("place", f"partition {letter.partition}, offset {letter.offset} of jobs.dlq"),
            ("task", bytes(letter.task).decode()),
            ("letters", page.total),
        ],
    )


@dlq.command(epilog=EXIT_CODES)
@_dealing
@on_a_service
async def discard(jobs: JobsClient, output: Output, **given: Any) -> None:
    """Have dead letters out of sight, for those that nobody will try again. The stream keeps them for its time.

    \b
    [bold]Examples[/]
      slipstream jobs dlq discard --code DOWNLOAD_HTTP_STATUS --until 7d
    """
    await _deal(jobs, output, given, discard=True)


@click.command(epilog=EXIT_CODES)
@_dealing
@on_a_service
async def replay(jobs: JobsClient, output: Output, **given: Any) -> None:
    """Try again what could not be stored: each resource that is selected gets a new task, with all its attempts.

    What was replayed is not selected again, and neither is what is stored by now.

    \b
    [bold]Examples[/]
      slipstream jobs replay --job 0199c0de-7f00-7000-8000-000000000000
      slipstream jobs replay --code UPLOAD_ --since 2h --dry-run
    """
    await _deal(jobs, output, given, discard=False)


async def _deal(jobs: JobsClient, output: Output, given: dict[str, Any], *, discard: bool) -> None:
    everything, dry_run = given.pop("everything"), given.pop("dry_run")
    if not everything and not any(given.values()):
        raise click.UsageError(NOTHING_SELECTED)
    dealt = await jobs.replay(_selection(given), everything=everything, discard=discard, dry_run=dry_run)
    if output.as_json:
        output.json(dealt)
        return
    if dealt.letters:
        _table(output, dealt.letters)
    output.note(_summary(dealt, "discarded" if discard else "replayed"))


def _summary(dealt: Dealt, done: str) -> str:
    count = len(dealt.letters)
    verb = f"would be {done}" if dealt.dry_run else done
    skipped = f"; {dealt.skipped:,} left out: older ones of the same resource, or no tasks" if dealt.skipped else ""
    return f"{count:,} dead letter{'' if count == 1 else 's'} {verb}{skipped}"


def _selection(given: dict[str, Any], *, dealt_with: bool = False) -> Selection:
    from slipstream.jobs.dead_letters import Selection  # noqa: PLC0415

    since, until = given.pop("since"), given.pop("until")
    return Selection(**given, since_ms=_ms(since), until_ms=_ms(until), dealt_with=dealt_with)


def _ms(time: dt.datetime | None) -> int:
    return 0 if time is None else max(0, round(time.timestamp() * 1000))


def _table(output: Output, letters: list[Letter]) -> None:
    output.table(
        ["JOB", "RESOURCE", "CODE", ">ATTEMPTS", "FAILED", "URL", "MESSAGE", ""],
        [
            (
                each.job_id,
                each.resource_id,
                each.code,
                each.attempts,
                time_text(each.failed_at_ms),
                each.url[:80],
                each.message[:120],
                each.became,
            )
            for each in letters
        ],
    )
