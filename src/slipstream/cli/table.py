"""`slipstream table`: look at the tables of the pipeline, and ask them in SQL."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import rich_click as click
from rich.markup import escape

from slipstream.cli.complete import complete_table
from slipstream.cli.extras import require_extra
from slipstream.cli.output import EXIT_CODES, Output, one_line
from slipstream.cli.table_folder import on_tables
from slipstream.cli.values import size_text
from slipstream.durations import duration_text
from slipstream.extras import can_read_tables

if TYPE_CHECKING:
    from slipstream.pipeline.looking import Answer, TableInfo, Tables

SHOWN_MAX = 100
"""Rows that a person reads."""
CELL_MAX = 60
"""Of a value in a table that a person reads; a record shows more of it."""
RECORD_CELL_MAX = 400


@click.group()
def table() -> None:
    """Look at the tables of the pipeline, and ask them in SQL.

    Needs no Spark and no Java, and may be used while the pipeline runs.
    """


@table.command("list", epilog=EXIT_CODES)
@on_tables
def list_tables(tables: Tables, output: Output) -> None:
    """List the tables: how large each is, how fresh, and how far.

    FRESH is how long ago the newest of its rows is from, or the day that it is about. BATCH is the last of each query
    that the table has.
    """
    infos = [tables.info(name) for name in tables.names]
    if output.as_json:
        output.json(infos)
    elif not infos:
        output.say(
            f"no tables in {escape(str(tables.root))} yet: make them with  slipstream pipeline run --once, or name "
            "another folder with --tables"
        )
    else:
        output.table(
            ["TABLE", "LAYER", ">ROWS", ">SIZE", ">FILES", ">FRESH", ">VERSION", "BATCH"],
            [
                (
                    info.name,
                    info.layer or "-",
                    f"{info.rows:,}",
                    size_text(info.bytes),
                    f"{info.files:,}",
                    _fresh(info),
                    info.version,
                    _batches(info) or "-",
                )
                for info in infos
            ],
        )


def _fresh(info: TableInfo) -> str:
    if info.newest is None:
        return "-"
    if info.is_daily:
        return f"{info.newest:%Y-%m-%d}"
    ago_ms = (dt.datetime.now(dt.UTC) - info.newest) / dt.timedelta(milliseconds=1)
    return f"{duration_text(ago_ms)} ago" if ago_ms >= 0 else f"in {duration_text(-ago_ms)}"


def _batches(info: TableInfo) -> str:
    return ", ".join(f"{query} {batch}" for query, batch in info.batches.items())


@table.command(epilog=EXIT_CODES)
@click.argument("name", shell_complete=complete_table)
@click.option("-n", "--limit", type=click.IntRange(0), default=3, show_default=True, help="Rows, the newest first.")
@click.option("--where", default="", metavar="SQL", help="Only rows for which this holds.")
@click.option("--all", "everything", is_flag=True, help="Also the pipeline's own columns, which begin with _.")
@on_tables
def show(tables: Tables, output: Output, name: str, limit: int, where: str, everything: bool) -> None:
    """Show a table: what its columns mean, how it is partitioned, and its newest rows.

    \b
    [bold]Examples[/]
      slipstream table show job_snapshots
      slipstream table show job_logs --where "level = 'LOG_LEVEL_ERROR'" -n 20
    """
    info, columns = tables.info(name), tables.columns(name, everything=everything)
    rows = tables.sample(name, limit, where, everything=everything)
    if output.as_json:
        output.json({"table": info, "columns": columns, "rows": [_json_row(row) for row in rows.dicts()]})
        return
    output.say(f"[bold]{escape(one_line(info.name))}[/]  {info.layer}  {escape(one_line(info.what))}")
    fresh = f", newest {_fresh(info)}" if info.newest is not None else ""
    output.say(
        f"{info.rows:,} rows, {size_text(info.bytes)} in {info.files:,} files{fresh}, version {info.version}"
        + (f", batch {_batches(info)}" if info.batches else "")
    )
    kept = f"kept for {info.keep_days} days" if info.keep_days else "kept for ever"
    output.say(f"[dim]{escape(one_line(_partitions(info)))}{kept}[/]\n")
    output.table(["COLUMN", "TYPE", "MEANING"], [(each.name, each.type, each.what) for each in columns])
    shown = list(rows)
    for number, row in enumerate(shown):
        output.say(f"\n[dim]row {number + 1}[/]")
        _record(output, rows.columns, row)
    if not shown and limit:
        output.say("\nno rows" + (f" for which {escape(one_line(where))}" if where else " yet"))


def _partitions(info: TableInfo) -> str:
    if not info.partition_by:
        return ""
    by = ", ".join(info.partition_by)
    if not info.partitions:
        return f"partitioned by {by}; "
    first, last = info.partitions[0], info.partitions[-1]
    span = first if first == last else f"{first} to {last}"
    return f"partitioned by {by}, {len(info.partitions)} there: {span}; "


@table.command(epilog=EXIT_CODES)
@click.argument("query", metavar="SQL")
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many rows; 100 where a person reads them.")
@click.option("--csv", "as_csv", is_flag=True, help="Answer with CSV.")
@click.option("--all", "everything", is_flag=True, help="Also the pipeline's own columns, which begin with _.")
@on_tables
def sql(tables: Tables, output: Output, query: str, limit: int | None, as_csv: bool, everything: bool) -> None:
    """Ask the tables in SQL, as DuckDB understands it; - reads the question from stdin.

    Every table is there by its name, and all times are in UTC. Nothing can be changed. Those of the tables that no
    pipeline has made yet are empty.

    \b
    [bold]Examples[/]
      slipstream table sql "select state, count(*) from job_snapshots group by state"
      slipstream table sql "select * from dead_letter_causes order by count desc" --csv
      slipstream table sql "select r.type, s.step, avg(s.duration_ms) as ms from slip_steps s
        join slip_runs r using (correlation_id, run) group by all order by ms desc" --json
    """
    if as_csv and output.as_json:
        raise click.UsageError("--csv or --json: one of them")
    question = sys.stdin.read() if query == "-" else query
    is_read_by_people = not as_csv and not output.as_json
    answer = tables.query(
        question, limit=SHOWN_MAX if limit is None and is_read_by_people else limit, everything=everything
    )
    if output.as_json:
        for row in answer.dicts():
            output.json(_json_row(row))
    elif as_csv:
        _csv(answer)
    else:
        _show(output, answer)
        if answer.more and limit is None:
            output.note(f"[dim]there are more than {SHOWN_MAX}: see them with --limit, --json or --csv[/]")


def _json_row(row: dict[str, object]) -> dict[str, object]:
    from slipstream.pipeline.looking.answer import json_value  # noqa: PLC0415

    return {name: json_value(value) for name, value in row.items()}


def _csv(answer: Answer) -> None:
    from slipstream.pipeline.looking.answer import value_text  # noqa: PLC0415

    for rows in _chunks(itertools.chain([answer.columns], answer)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([value_text(value) for value in row] for row in rows)
        sys.stdout.write(text.getvalue())
    sys.stdout.flush()


def _chunks(rows: Iterable[Sequence[object]]) -> Iterable[list[Sequence[object]]]:
    left = iter(rows)
    return iter(lambda: list(itertools.islice(left, 1_000)), [])


def _show(output: Output, answer: Answer) -> None:
    """A table where it fits, else one record under the other."""
    from slipstream.pipeline.looking.answer import value_text  # noqa: PLC0415

    rows = list(answer)
    cells = [[_cut(value_text(value), CELL_MAX) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[column]) for row in cells), 0) for column, name in enumerate(answer.columns)]
    if not rows:
        output.say("no rows: " + escape(one_line(", ".join(answer.columns))))
    elif answer.columns == ("explain_key", "explain_value"):  # a drawing, of many lines
        for line in (line for row in rows for line in value_text(row[1]).splitlines()):
            output.out.print(escape(one_line(line)), soft_wrap=True)
    elif sum(widths) + 2 * len(widths) <= output.out.width:
        names = [(">" if number else "") + name for name, number in zip(answer.columns, answer.numbers, strict=True)]
        output.table(names, cells)
    else:
        for number, row in enumerate(rows):
            output.say(("\n" if number else "") + f"[dim]row {number + 1}[/]")
            _record(output, answer.columns, row)


def _record(output: Output, columns: Sequence[str], row: Sequence[object]) -> None:
    from slipstream.pipeline.looking.answer import value_text  # noqa: PLC0415

    width = max(map(len, columns), default=0)
    for name, value in zip(columns, row, strict=True):
        shown = "[dim]null[/]" if value is None else escape(_cut(one_line(value_text(value)), RECORD_CELL_MAX))
        output.out.print(f"  {escape(one_line(name)):{width}}  {shown}", soft_wrap=True)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


require_extra(table, "tables", "pipeline", can_read_tables)
