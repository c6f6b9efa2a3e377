"""`slipstream pipeline backfill`: a day once more."""

from __future__ import annotations

import datetime as dt
from typing import Any

import rich_click as click

from slipstream.cli.observing import observed
from slipstream.cli.output import EXIT_CODES, answering, client_advice
from slipstream.cli.pipeline_run import Show, opened, pipeline_options, stopping
from slipstream.cli.table_folder import exit_code


@click.command(epilog=EXIT_CODES)
@click.argument("day", metavar="YYYY-MM-DD", type=click.DateTime(["%Y-%m-%d"]))
@click.option("--table", "tables_wanted", multiple=True, help="Only what makes this table; repeat it for more.")
@pipeline_options
def backfill(day: dt.datetime, tables_wanted: tuple[str, ...], log_level: str, log_format: str, **given: Any) -> None:
    """Read the messages of one day (UTC) again, and put what they say in place of what the tables have of it.

    For a day that was decoded by a release that knew less. The tables are brought up to date first. Rows whose messages
    retention has removed from the log stay as they are.

    \b
    [bold]Examples[/]
      slipstream pipeline backfill 2026-11-15
      slipstream pipeline backfill 2026-11-15 --table dead_letters
    """
    from slipstream.pipeline.backfill import backfill as run  # noqa: PLC0415 - --help needs none of this
    from slipstream.pipeline.queries import queries_of  # noqa: PLC0415

    with answering(False, exit_code, client_advice) as output, observed("pipeline", log_level, log_format):
        queries = queries_of(tables_wanted)
        show = Show(output)
        with opened(given, show) as found, show, stopping(found.stop):
            done = run(found, queries, day.date())
        output.table(
            ["TABLE", ">ROWS BEFORE", ">ROWS NOW"],
            [(one.table, "-" if one.before is None else f"{one.before:,}", f"{one.rows:,}") for one in done],
        )
