"""The options of every command that starts Spark."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def _joined(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    return shlex.join(values) if values else None


def spark_options(command: CommandT) -> CommandT:
    """Gives a command `master`, `remote` and `spark_conf`, None where they are not said: settings of the pipeline."""
    for option in reversed(
        [
            click.option(
                "--master", help="Where Spark runs: local[*], spark://…, k8s://… or yarn; also PIPELINE_MASTER."
            ),
            click.option("--remote", help="A server of Spark Connect instead, sc://…; also PIPELINE_REMOTE."),
            click.option(
                "--conf",
                "spark_conf",
                multiple=True,
                callback=_joined,
                metavar="NAME=VALUE",
                help="An option of Spark; repeat it for more; also PIPELINE_SPARK_CONF.",
            ),
        ]
    ):
        command = option(command)
    return command
