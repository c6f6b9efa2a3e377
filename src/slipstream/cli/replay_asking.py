"""What `pipeline replay` and `pipeline rerun` have in common: they show what Spark has found, and ask."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import rich_click as click
from rich.markup import escape

from slipstream.cli.output import Output, payload_text

if TYPE_CHECKING:
    from slipstream.pipeline.settings import PipelineSettings

CELL_CHARS = 60
NOT_ASKED = "nobody is there to be asked: say --yes to write it, or --dry-run to see what it would be"


def replay_settings(given: Mapping[str, Any]) -> PipelineSettings:
    from slipstream.pipeline.settings import load_settings  # noqa: PLC0415 - --help needs none of it

    return load_settings({name: value for name, value in given.items() if value is not None})


def need_answer(*, yes: bool, dry_run: bool) -> None:
    """Before Spark is started: it takes half a minute."""
    if not yes and not dry_run and not sys.stdin.isatty():
        raise click.UsageError(NOT_ASKED)


def note_spark(output: Output, settings: PipelineSettings, table: str) -> None:
    from slipstream.pipeline.spark_place import shown  # noqa: PLC0415 - --help needs none of it

    where = shown(settings.remote) if settings.remote else settings.master
    output.note(f"[dim]starting Spark ({escape(where)}) to look at {table}[/]")


def show_sample(output: Output, sample: list[dict[str, Any]]) -> None:
    if sample and not output.as_json:
        output.table([name.upper() for name in sample[0]], [[_cell(value) for value in row.values()] for row in sample])


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        text = payload_text(value)
    else:
        text = value.isoformat(" ", "milliseconds") if isinstance(value, dt.datetime) else str(value)
    return text if len(text) <= CELL_CHARS else f"{text[: CELL_CHARS - 1]}…"


def agreed(question: str, count: int, *, yes: bool, dry_run: bool) -> bool:
    """Whether it is to be done. Raises click.Abort if the answer is no."""
    if dry_run or not count:
        return False
    return yes or click.confirm(question, abort=True, err=True)
