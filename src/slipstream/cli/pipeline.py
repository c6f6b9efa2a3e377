"""`slipstream pipeline`: what was told in streams, as tables."""

from __future__ import annotations

import importlib.util

import rich_click as click

from slipstream.cli.pipeline_backfill import backfill
from slipstream.cli.pipeline_maintain import maintain
from slipstream.cli.pipeline_report import report
from slipstream.cli.pipeline_run import run

EXTRA = "the pipeline needs libraries that are not installed: pip install 'slipstream[pipeline]'"


@click.group()
def pipeline() -> None:
    """The data pipeline on Spark: every stream becomes tables, exactly once.

    [bold]run[/] keeps the tables up to date; `slipstream table` looks at them, without Spark.
    """
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "deltalake", "duckdb", "ptars")):
        raise click.ClickException(EXTRA)


for command in (run, backfill, maintain, report):
    pipeline.add_command(command)
