"""`slipstream jobs`: download jobs, their streams, services and workers."""

from __future__ import annotations

import rich_click as click

from slipstream.cli.extras import require_extra
from slipstream.cli.jobs_backfill import backfill
from slipstream.cli.jobs_dlq import dlq, replay
from slipstream.cli.jobs_operator import (
    cancel,
    cleanup,
    health,
    list_jobs,
    logs,
    pause,
    rebuild,
    requeue,
    resume,
    status,
)
from slipstream.cli.jobs_run import provision, run, serve, worker
from slipstream.cli.jobs_submit import submit
from slipstream.cli.jobs_watch import watch


@click.group()
def jobs() -> None:
    """Download jobs: a manifest comes in, every resource is stored or a dead letter.

    [bold]run[/] does all of it in one process; [bold]serve[/] and [bold]worker[/] share a bus that is elsewhere. The
    other commands ask the service, at --service or JOBS_URL.
    """


for command in (
    *(run, serve, worker, provision),
    *(submit, backfill, list_jobs, status, logs, watch, cancel, pause, resume),
    *(dlq, replay, requeue, cleanup, rebuild, health),
):
    jobs.add_command(command)
require_extra(jobs, "download jobs", "jobs")

click.rich_click.COMMAND_GROUPS["slipstream jobs"] = [
    {"name": "Run", "commands": ["run", "serve", "worker", "provision"]},
    {"name": "Jobs", "commands": ["submit", "backfill", "list", "status", "logs", "watch"]},
    {"name": "Hold", "commands": ["cancel", "pause", "resume"]},
    {"name": "Look after", "commands": ["dlq", "replay", "requeue", "cleanup", "rebuild", "health"]},
]
