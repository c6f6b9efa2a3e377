"""Completion of names in the shell: asks the server, the store of slips, the service of jobs or the folder of tables,
if there is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import rich_click as click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from slipstream.slip.store import Store


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(ctx, incomplete, None)


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    topic = ctx.params.get("topic")
    return _complete(ctx, incomplete, topic) if isinstance(topic, str) else []


def _complete(ctx: click.Context, incomplete: str, topic: str | None) -> list[CompletionItem]:
    from slipstream.cli.output import server_url  # noqa: PLC0415
    from slipstream.client import Client, SlipstreamError  # noqa: PLC0415

    named = ctx.params.get("server") or ctx.params.get("url") or os.environ.get("SLIPSTREAM_URL")
    try:
        with Client(server_url(named), timeout_ms=1_000, retry_for_ms=0) as client:
            if topic is None:
                names = [each.name for each in client.topics()]
            else:
                names = [each.group for each in client.groups(topic)]
    except SlipstreamError:
        return []  # nothing to offer, and no place to say why
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


# Slips, which are in a store


def complete_slip(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def names(store: Store) -> list[str]:
        return [each.slip for each in await store.tracked(limit=SLIPS_OFFERED)]

    return _complete_from_store(ctx, incomplete, names)


def complete_slip_step(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of the slip that was named before it."""
    from slipstream.slip import load_settings  # noqa: PLC0415
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    async def names(store: Store) -> list[str]:
        found = await Oversight(store, load_settings({})).find(str(ctx.params.get("correlation_id")))
        return [] if found is None else list(dict.fromkeys(row.step for run in found.runs for row in run.rows))

    return _complete_from_store(ctx, incomplete, names)


def complete_paused_step(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from slipstream.slip import Control  # noqa: PLC0415

    async def names(store: Store) -> list[str]:
        return list(await Control(store).pauses())

    return _complete_from_store(ctx, incomplete, names)


SLIPS_OFFERED = 100


def _complete_from_store(
    ctx: click.Context, incomplete: str, names: Callable[[Store], Awaitable[list[str]]]
) -> list[CompletionItem]:
    from slipstream.cli.slip_store import exit_code, slip_settings  # noqa: PLC0415
    from slipstream.slip.oversight import existing_store  # noqa: PLC0415

    async def look() -> list[str]:
        async with existing_store(slip_settings(ctx.params.get("store")).store) as store:
            return await names(store)

    try:
        found = asyncio.run(look())
    except Exception as error:
        if exit_code(error) is None:
            raise
        return []  # as above
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


# Jobs, which a service knows


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from slipstream.jobs.client import DEFAULT_URL, JobsClient  # noqa: PLC0415
    from slipstream.jobs.errors import JobsError  # noqa: PLC0415

    url = ctx.params.get("service") or os.environ.get("JOBS_URL") or DEFAULT_URL
    token = ctx.params.get("token") or os.environ.get("JOBS_TOKEN", "")

    async def look() -> list[CompletionItem]:
        async with JobsClient(url, token) as jobs:
            found = (await jobs.jobs(limit=JOBS_OFFERED)).jobs
        return [
            CompletionItem(job.job_id, help=f"{job.job_type} {job.state}")
            for job in found
            if job.job_id.startswith(incomplete)
        ]

    try:
        return asyncio.run(look())
    except JobsError:
        return []  # as above


JOBS_OFFERED = 100


# Tables, which are in a folder


def complete_table(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from slipstream.cli.table_folder import tables_folder  # noqa: PLC0415
    from slipstream.pipeline.errors import PipelineError  # noqa: PLC0415
    from slipstream.pipeline.looking import Tables  # noqa: PLC0415
    from slipstream.pipeline.tables import TABLES  # noqa: PLC0415

    try:
        names = Tables(tables_folder(ctx.params.get("tables"))).names
    except (PipelineError, OSError):
        return []  # as above
    return [
        CompletionItem(name, help=TABLES[name].what if name in TABLES else None)
        for name in names
        if name.startswith(incomplete)
    ]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that teaches a shell to complete slipstream's commands.

    \b
    [bold]bash[/]  echo 'eval "$(slipstream completion bash)"' >> ~/.bashrc
    [bold]zsh[/]   echo 'eval "$(slipstream completion zsh)"' >> ~/.zshrc
    [bold]fish[/]  slipstream completion fish > ~/.config/fish/completions/slipstream.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    from slipstream.cli.main import main  # noqa: PLC0415

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(main, {}, "slipstream", "_SLIPSTREAM_COMPLETE").source())
