"""`slipstream jobs list`, `status`, `logs`, `cleanup`, `rebuild` and `health`: how jobs and the service stand."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click
from rich.markup import escape

from slipstream.cli.complete import complete_job
from slipstream.cli.jobs_service import on_a_service
from slipstream.cli.jobs_watch import transfer_text, until_ended, waiting_text
from slipstream.cli.output import EXIT_CODES, Marked, Output, one_line
from slipstream.cli.values import Duration, size_text, time_text

if TYPE_CHECKING:
    from slipstream.jobs.client import JobDetails, JobsClient
    from slipstream.jobs.ledger import JobSnapshot, ResourceSnapshot
    from slipstream.jobs.messages import JobLog

STATES = ["queued", "in_progress", "paused", "partial", "completed", "failed", "cancelled"]
COLOURS = {"completed": "green", "failed": "red", "partial": "yellow", "in_progress": "cyan"}
HEALTH_COLOURS = {"ok": "green", "warning": "yellow", "down": "red"}
LEVELS = ["trace", "debug", "info", "warn", "error"]
LEVEL_COLOURS = {"warn": "yellow", "error": "red"}
PAGE = 1_000
"""The most that the service answers with at once."""


def marked_state(state: str) -> Marked:
    colour = COLOURS.get(state)
    return Marked(f"[{colour}]{escape(state)}[/]") if colour else Marked(escape(state))


# How jobs stand


@click.command("list", epilog=EXIT_CODES)
@click.option("--state", type=click.Choice(STATES), default=None, help="Only those in this state.")
@click.option("--type", "job_type", default="", help="Only those of this type.")
@click.option("--tenant", default="", help="Only those of this tenant.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@on_a_service
async def list_jobs(
    jobs: JobsClient, output: Output, state: str | None, job_type: str, tenant: str, limit: int
) -> None:
    """List jobs, the newest first.

    \b
    [bold]Examples[/]
      slipstream jobs list --state partial
      slipstream jobs list --type photos --tenant acme --limit 10
    """
    found: list[JobSnapshot] = []
    before, counts = "", {}
    while len(found) < limit:
        page = await jobs.jobs(
            state=state or "",
            tenant=tenant,
            job_type=job_type,
            limit=min(PAGE, limit - len(found)),
            before=before,
        )
        found, counts, before = found + page.jobs, page.counts, page.next or ""
        if not before:
            break
    if output.as_json:
        for job in found:
            output.json(job)
        return
    if not found:
        output.say("no jobs" if not counts else f"no such jobs; there are {_counted(counts)}")
        return
    output.table(
        ["JOB", "TYPE", "TENANT", "STATE", ">COMPLETED", ">FAILED", ">OF", "CREATED", "LAST ERROR"],
        [
            (
                job.job_id,
                job.job_type,
                job.tenant or "-",
                marked_state(job.state),
                f"{job.resources_completed:,}",
                f"{job.resources_failed:,}",
                f"{job.resources_total:,}",
                time_text(job.created_ms),
                job.last_error_code,
            )
            for job in found
        ],
    )
    if before:
        output.note(f"[dim]there are more than {limit}: see them with --limit, or filter[/]")


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts.get(state))


@click.command(epilog=EXIT_CODES)
@click.argument("job_id", shell_complete=complete_job)
@click.option("--resources", is_flag=True, help="All resources, and not only those that failed.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit code 1 if not all was completed.")
@on_a_service
async def status(jobs: JobsClient, output: Output, job_id: str, resources: bool, wait: bool) -> None:
    """Show how a job stands, and which of its resources failed, and why.

    \b
    [bold]Examples[/]
      slipstream jobs status 0199c0de-7f00-7000-8000-000000000000
      slipstream jobs status 0199c0de-7f00-7000-8000-000000000000 --wait --json
    """
    if wait:
        await until_ended(jobs, output, job_id)
    job = await jobs.job(job_id)
    shown = [each for each in job.resources if resources or each.state == "failed"]
    if output.as_json:
        output.json(msgspec.structs.replace(job, resources=shown))
    else:
        _show_job(output, job)
        _show_resources(output, shown, whole=resources)
    if wait and job.state != "completed":
        sys.exit(1)


def _show_job(output: Output, job: JobDetails) -> None:
    failed = f"[red]{job.resources_failed:,} failed[/], " if job.resources_failed else ""
    progress = f"[green]{job.resources_completed:,} completed[/], {failed}of {job.resources_total:,}"
    rows: list[tuple[str, object]] = [
        ("job", job.job_id),
        ("type", job.job_type),
        ("tenant", job.tenant or "-"),
        ("state", marked_state(job.state)),
        ("progress", Marked(progress)),
        ("downloaded", transfer_text(job)),
        ("manifest", job.manifest_key or "-"),
        ("created", time_text(job.created_ms)),
        ("updated", time_text(job.updated_ms)),
    ]
    if job.waiting_tasks:
        rows.insert(6, ("waiting", waiting_text(job)))
    if job.lost_tasks:
        text = f"{job.lost_tasks:,}, removed by retention: slipstream jobs requeue {job.job_id}"
        rows.append(("lost tasks", Marked(f"[red]{escape(text)}[/]")))
    if job.last_error_code:
        rows.append(("last error", f"{job.last_error_code}: {job.last_error_message}"))
    output.table(["", ""], rows)


def _show_resources(output: Output, resources: list[ResourceSnapshot], *, whole: bool) -> None:
    if not resources:
        return
    output.say("")
    if not whole:
        output.table(
            ["FAILED", "CODE", ">ATTEMPTS", "MESSAGE"],
            [(each.resource_id, each.error_code, each.attempts, each.error_message) for each in resources],
        )
        return
    output.table(
        ["RESOURCE", "STATE", ">SIZE", ">ATTEMPTS", "KEY", "CODE", "MESSAGE"],
        [
            (
                each.resource_id,
                marked_state(each.state),
                size_text(each.size) if each.key else "-",
                each.attempts,
                each.key or "-",
                each.error_code,
                each.error_message,
            )
            for each in resources
        ],
    )


# What was logged


@click.command(epilog=EXIT_CODES)
@click.argument("job_id", shell_complete=complete_job)
@click.option("--since-offset", type=click.IntRange(0), help="From this offset on; --json shows those of logs.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on, until the job has ended.")
@on_a_service
async def logs(jobs: JobsClient, output: Output, job_id: str, **given: Any) -> None:
    """Show what workers did for a job, step by step.

    \b
    [bold]Examples[/]
      slipstream jobs logs 0199c0de-7f00-7000-8000-000000000000 --follow
    """
    async for offset, found in jobs.logs(job_id, **given):
        if output.as_json:
            output.json({"offset": offset, **_log_fields(found)})
        else:
            output.out.print(_log_line(found), soft_wrap=True)


def _log_fields(found: JobLog) -> dict[str, Any]:
    from slipstream.jobs.messages import to_json  # noqa: PLC0415

    fields: dict[str, Any] = json.loads(to_json(found))
    return {**fields, "timestamp_ms": found.timestamp_ms, "level": _level(found)}


def _level(found: JobLog) -> str:
    return LEVELS[found.level] if 0 <= found.level < len(LEVELS) else str(found.level)


def _log_line(found: JobLog) -> str:
    level = _level(found)
    colour = LEVEL_COLOURS.get(level, "dim")
    code = f" [{colour}]{escape(one_line(found.fields['code']))}[/]" if "code" in found.fields else ""
    return (
        f"[dim]{time_text(found.timestamp_ms)}[/] [{colour}]{level:5}[/] "
        f"[bold]{escape(one_line(found.resource_id))}[/]{code} {escape(one_line(found.message))}"
    )


# The service


@click.command(epilog=EXIT_CODES)
@click.option("--older-than", type=Duration(), required=True, help="Jobs that nothing has happened to for so long.")
@click.option("--objects", is_flag=True, help="Also what was downloaded for them; otherwise only their manifests.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@on_a_service
async def cleanup(jobs: JobsClient, output: Output, older_than: int, objects: bool, dry_run: bool) -> None:
    """Remove old jobs from the ledger, with their manifests, and with what was stored for them if that is wanted.

    \b
    [bold]Examples[/]
      slipstream jobs cleanup --older-than 30d --dry-run
      slipstream jobs cleanup --older-than 30d --objects
    """
    cleaned = await jobs.cleanup(older_than, objects=objects, dry_run=dry_run)
    if output.as_json:
        output.json(cleaned)
        return
    would = "would be removed" if dry_run else "removed"
    output.say(
        f"{cleaned.jobs:,} job{_s(cleaned.jobs)} and {cleaned.objects:,} object{_s(cleaned.objects)} {would}"
        + ("" if objects else "; what was downloaded stays: --objects removes it, too")
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"


@click.command(epilog=EXIT_CODES)
@on_a_service
async def rebuild(jobs: JobsClient, output: Output) -> None:
    """Have the service read again all that the streams hold, for a ledger that was damaged, or copied from elsewhere.

    Nothing is forgotten meanwhile, and nothing counts twice.
    """
    await jobs.rebuild()
    if output.as_json:
        output.json({"rebuilding": True})
    output.say("the streams are read again from their beginning; see how far it is with `slipstream jobs list`")


@click.command(epilog=EXIT_CODES)
@click.argument("job_id", shell_complete=complete_job)
@on_a_service
async def cancel(jobs: JobsClient, output: Output, job_id: str) -> None:
    """End a job: downloads under way are stopped, and no worker begins another. What is stored stays.

    \b
    [bold]Example[/]
      slipstream jobs cancel 0199c0de-7f00-7000-8000-000000000000
    """
    _answer_control(output, await jobs.cancel(job_id))


@click.command(epilog=EXIT_CODES)
@click.argument("job_id", shell_complete=complete_job)
@on_a_service
async def pause(jobs: JobsClient, output: Output, job_id: str) -> None:
    """Begin no more downloads of a job; those under way are finished.

    \b
    [bold]Example[/]
      slipstream jobs pause 0199c0de-7f00-7000-8000-000000000000
    """
    _answer_control(output, await jobs.pause(job_id))


@click.command(epilog=EXIT_CODES)
@click.argument("job_id", shell_complete=complete_job)
@on_a_service
async def resume(jobs: JobsClient, output: Output, job_id: str) -> None:
    """Go on with a job that was paused.

    \b
    [bold]Example[/]
      slipstream jobs resume 0199c0de-7f00-7000-8000-000000000000
    """
    _answer_control(output, await jobs.resume(job_id))


def _answer_control(output: Output, job: JobSnapshot) -> None:
    if output.as_json:
        output.json(job)
    left = job.resources_total - job.resources_completed - job.resources_failed
    text = f"{left:,} resource{_s(left)} "
    if job.state == "cancelled":
        text += "was not downloaded" if left == 1 else "were not downloaded"
    else:
        text += "left"
    output.say(f"{job.job_id} is {job.state}, {text}")


@click.command(epilog=EXIT_CODES)
@click.argument("job_id", shell_complete=complete_job)
@click.option("--force", is_flag=True, help="Also where no task of the job is known to be lost.")
@on_a_service
async def requeue(jobs: JobsClient, output: Output, job_id: str, force: bool) -> None:
    """Publish the tasks of a job again that retention has removed, or that were dropped because it was cancelled.

    All resources without an end get a task, from the stored manifest. A paused job goes on; its tasks are in the
    stream, and only published again if they are lost. A task that is published again with --force while it is in the
    stream is done twice, and counts once.

    \b
    [bold]Example[/]
      slipstream jobs requeue 0199c0de-7f00-7000-8000-000000000000
    """
    done = await jobs.requeue(job_id, force=force)
    if output.as_json:
        output.json(done)
    if done.tasks:
        output.say(f"{done.tasks:,} task{_s(done.tasks)} of {job_id} published again")
    else:
        output.say(f"{job_id} goes on; none of its tasks is lost")


@click.command(epilog=EXIT_CODES)
@on_a_service
async def health(jobs: JobsClient, output: Output) -> None:
    """Report whether the service and its parts are well: exit code 1 when one is down, 5 when no service answers."""
    found = await jobs.health()
    if output.as_json:
        output.json(found)
    else:
        for name, part in found.parts.items():
            reason = f": {escape(one_line(part.reason))}" if part.reason else ""
            output.say(f"[{HEALTH_COLOURS[part.status]}]{part.status:7}[/] {name}{reason}")
    if found.status != "ok":
        sys.exit(1)
