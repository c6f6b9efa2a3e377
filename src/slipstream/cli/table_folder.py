"""How commands get at the folder of the tables, and the exit code of what went wrong."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from slipstream.cli.output import CONFLICT, NOT_FOUND, UNREACHABLE, answering, client_exit_code

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def on_tables(command: CommandT) -> CommandT:
    """Gives a command `--tables` and `--json`, the tables and an output, and an exit code for what went wrong."""

    @tables_option
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
    @functools.wraps(command)
    def run(*args: Any, tables: str | None, as_json: bool, **kwargs: Any) -> None:
        with answering(as_json, exit_code) as output:
            from slipstream.pipeline.looking import Tables  # noqa: PLC0415 - --help needs none of it

            command(Tables(tables_folder(tables)), output, *args, **kwargs)

    return run  # type: ignore[return-value]


tables_option = click.option("--tables", metavar="DIR", help="The folder of the tables; also PIPELINE_TABLES.")


def tables_folder(given: str | None) -> Path:
    from slipstream.pipeline.settings import load_settings  # noqa: PLC0415

    return Path(load_settings({} if given is None else {"tables": given}).tables)


def exit_code(error: Exception) -> int | None:
    """Of the commands of the tables and of the pipeline; None for what nobody has foreseen."""
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    from slipstream.pipeline.errors import InvalidPipeline, PipelineError, SparkUnreachable  # noqa: PLC0415
    from slipstream.pipeline.looking import NoSuchTable, QueryRefused  # noqa: PLC0415
    from slipstream.pipeline.replay.errors import DoesNotFit, NoSuchTopic  # noqa: PLC0415
    from slipstream.pipeline.report import NoSuchRun  # noqa: PLC0415
    from slipstream.pipeline.source import ConnectorError  # noqa: PLC0415

    codes: list[tuple[tuple[type[Exception], ...], int]] = [
        ((NoSuchTable, NoSuchRun, NoSuchTopic), NOT_FOUND),
        ((DoesNotFit,), CONFLICT),
        ((QueryRefused, InvalidPipeline), 2),
        ((SparkUnreachable,), UNREACHABLE),
        ((PipelineError, ConnectorError, DeltaError, OSError, *_of_spark()), 1),
    ]
    return next((code for kinds, code in codes if isinstance(error, kinds)), client_exit_code(error))


def _of_spark() -> tuple[type[Exception], ...]:
    """None where it was not started: looking at tables needs none of it."""
    if sys.modules.get("pyspark") is None:
        return ()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    return PySparkException, Py4JError
