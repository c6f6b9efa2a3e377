"""`slipstream pipeline`: what was told in streams, as tables."""

from __future__ import annotations

import rich_click as click

from slipstream.cli.extras import require_extra
from slipstream.cli.pipeline_backfill import backfill
from slipstream.cli.pipeline_maintain import maintain
from slipstream.cli.pipeline_prepare import prepare
from slipstream.cli.pipeline_replay import replay
from slipstream.cli.pipeline_report import report
from slipstream.cli.pipeline_rerun import rerun
from slipstream.cli.pipeline_run import run


@click.group()
def pipeline() -> None:
    """The data pipeline on Spark: every stream becomes tables, exactly once.

    [bold]run[/] keeps the tables up to date; `slipstream table` looks at them, without Spark.
    """


for command in (run, backfill, replay, rerun, maintain, report, prepare):
    pipeline.add_command(command)
require_extra(pipeline, "tables and Spark", "pipeline")
