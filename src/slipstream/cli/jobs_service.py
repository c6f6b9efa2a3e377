"""How commands of `slipstream jobs` ask the service, and the exit code of what went wrong."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

from slipstream.cli.output import CONFLICT, NOT_FOUND, OVERLOADED, UNREACHABLE, answering

DEFAULT_URL = "http://127.0.0.1:8090"

STATUS_CODES = {404: NOT_FOUND, 409: CONFLICT, 429: OVERLOADED, 502: UNREACHABLE, 503: UNREACHABLE}
"""What the service answers, as an exit code; 1 for all else."""

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class NotThere(LookupError):
    """Nothing of what was asked for is there."""


def on_a_service(command: CommandT) -> CommandT:
    """Gives a command `--service`, `--token` and `--json`, a client of the service and an output, and an exit code for
    what went wrong."""

    @click.option(
        "--service",
        envvar="JOBS_URL",
        default=DEFAULT_URL,
        show_default=True,
        help="Address of the service; also JOBS_URL.",
    )
    @click.option("--token", envvar="JOBS_TOKEN", default="", help="What the service asks for; also JOBS_TOKEN.")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
    @functools.wraps(command)
    def run(*args: Any, service: str, token: str, as_json: bool, **kwargs: Any) -> None:
        with answering(as_json, exit_code) as output:
            from slipstream.jobs.client import JobsClient  # noqa: PLC0415 - --help needs none of it

            async def ask() -> None:
                async with JobsClient(service, token) as jobs:
                    await command(jobs, output, *args, **kwargs)

            asyncio.run(ask())

    return run  # type: ignore[return-value]


def exit_code(error: Exception) -> int | None:
    from slipstream.jobs.client import STRANGER, ServiceError, ServiceUnreachable  # noqa: PLC0415
    from slipstream.jobs.errors import InvalidJobs, JobsError  # noqa: PLC0415

    if isinstance(error, ServiceError):
        if error.code == STRANGER:
            return UNREACHABLE
        return STATUS_CODES.get(error.status, 1)
    codes: list[tuple[type[Exception], int]] = [
        (ServiceUnreachable, UNREACHABLE),
        (NotThere, NOT_FOUND),
        (InvalidJobs, 2),
        (JobsError, 1),
        (OSError, 1),
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), None)
