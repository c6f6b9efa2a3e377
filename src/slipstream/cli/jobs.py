"""`slipstream jobs`: download jobs, their streams, services and workers."""

from __future__ import annotations

import rich_click as click

from slipstream.cli.jobs_run import provision, run, serve, worker


@click.group()
def jobs() -> None:
    """Download jobs: a manifest comes in, every resource is stored or a dead letter.

    [bold]run[/] does all of it in one process; [bold]serve[/] and [bold]worker[/] share a bus that is elsewhere. The
    other commands ask the service, at --service or JOBS_URL.
    """


for command in (provision, run, serve, worker):
    jobs.add_command(command)
