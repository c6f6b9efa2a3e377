"""`slipstream pipeline report`: a page of plots."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import rich_click as click
from rich.markup import escape

from slipstream.cli.output import EXIT_CODES, answering
from slipstream.cli.table_folder import exit_code, tables_folder, tables_option
from slipstream.cli.values import Duration, size_text


@click.command(epilog=EXIT_CODES)
@click.option(
    "-o", "--out", default="report.html", show_default=True, metavar="FILE", help="Where to write it; - is stdout."
)
@click.option("--run", metavar="ID", help="Which run to show step by step: a correlation id, or a run id of envelopes.")
@click.option(
    "--last", type=Duration(), default="24h", show_default=True, help="How much time the plots show; 3660d at most."
)
@tables_option
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
def report(out: str, run: str | None, last: int, tables: str | None, as_json: bool) -> None:
    """Write a page with what went through: throughput, how long steps take, dead letters, jobs, tenants, one run.

    The page is one file that needs nothing else, neither a server nor the internet. Without --run it shows the run that
    has most to tell: one that failed, if there is one.

    \b
    [bold]Examples[/]
      slipstream pipeline report
      slipstream pipeline report --last 7d --run order-1 --out week.html
    """
    with answering(as_json, exit_code) as output:
        from slipstream.pipeline.errors import PipelineError  # noqa: PLC0415
        from slipstream.pipeline.looking import Tables  # noqa: PLC0415 - --help needs none of it
        from slipstream.pipeline.report import render  # noqa: PLC0415

        if not last:
            raise click.UsageError("--last 0 shows nothing: type 24h, or 7d")
        page = render(Tables(tables_folder(tables)), run=run, span=dt.timedelta(milliseconds=last))
        if out == "-":
            click.echo(page)
            return
        path = Path(out)
        try:
            path.write_text(page, encoding="utf-8")
        except OSError as error:
            raise PipelineError(
                f"{path} cannot be written: {error.strerror or error}; name another with --out"
            ) from error
        if output.as_json:
            output.json({"path": str(path.absolute()), "bytes": path.stat().st_size})
        output.say(f"written to {escape(str(path))} ({size_text(path.stat().st_size)}): open it in a browser")
