"""`slipstream pipeline maintain`: small files, old versions, and rows that are past their time."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import rich_click as click
from rich.markup import escape

from slipstream.cli.complete import complete_table
from slipstream.cli.output import EXIT_CODES, Output, answering
from slipstream.cli.table_folder import exit_code, tables_folder, tables_option
from slipstream.cli.values import Duration, Pair, size_text

if TYPE_CHECKING:
    from slipstream.pipeline.upkeep import Upkept


@click.command(epilog=EXIT_CODES)
@click.option("--table", "names", multiple=True, shell_complete=complete_table, help="Only this one; may be repeated.")
@click.option(
    "--keep", type=Pair(), multiple=True, metavar="NAME=DAYS", help="How long a table keeps its rows; 0 for ever."
)
@click.option("--old-versions", type=Duration(), help="How long what only old versions have can be read; 1h at least.")
@click.option("--force", is_flag=True, help="Also less than 1h: nobody may read or write the tables now.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@tables_option
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
def maintain(
    names: tuple[str, ...],
    keep: tuple[tuple[str, str], ...],
    old_versions: int | None,
    force: bool,
    dry_run: bool,
    tables: str | None,
    as_json: bool,
) -> None:
    """Look after the tables: make small files fewer, remove old rows, and free what only old versions have.

    May run beside the pipeline, every night for instance. How long a table keeps its rows is in the documentation of
    the tables, unless --keep says otherwise. Old versions can be read for 7 days where a table is appended to, and for
    an hour where its rows change. With --force they may go at once; while a pipeline runs on these tables, it refuses.

    \b
    [bold]Examples[/]
      slipstream pipeline maintain --dry-run
      slipstream pipeline maintain --keep messages=30 --keep job_logs=14
    """
    with answering(as_json, exit_code) as output:
        from slipstream.pipeline.upkeep import Upkeep, maintain  # noqa: PLC0415 - --help needs none of it

        upkeep = Upkeep(
            tables=names,
            keep_days={name: _days(name, text) for name, text in keep},
            keep_versions=None if old_versions is None else dt.timedelta(milliseconds=old_versions),
            is_forced=force,
            is_dry_run=dry_run,
        )
        root = tables_folder(tables)
        is_any = False
        for each in maintain(root, upkeep):
            is_any = True
            if output.as_json:
                output.json(each)
            else:
                _say(output, each, dry_run)
        if not is_any:
            output.say(f"no tables in {escape(str(root))} yet: make them with  slipstream pipeline run --once")


def _days(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise click.UsageError(f"--keep {name}={text:.20}: type a number of days, such as {name}=30; 0 is for ever")
    return int(text)


def _say(output: Output, done: Upkept, is_dry_run: bool) -> None:
    would = "would be " if is_dry_run else ""
    parts = []
    if done.rows_removed:
        parts.append(f"{done.rows_removed:,} rows {would}removed")
    if done.files_after != done.files_before:
        parts.append(f"{done.files_before:,} files are {done.files_after:,} now")
    if done.old_files_removed:
        parts.append(f"{done.old_files_removed:,} old files {would}removed, {size_text(done.bytes_freed)} {would}freed")
    if done.log_files_removed:
        parts.append(f"{done.log_files_removed:,} files of the log removed")
    output.say(f"[bold]{done.table}[/]: " + (", ".join(parts) or f"nothing to do, {done.files_after:,} files"))
