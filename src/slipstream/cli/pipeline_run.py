"""`slipstream pipeline run`: the queries, until all is read or until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from slipstream.cli.health import health_options, opened_health
from slipstream.cli.observing import logging_options, observed
from slipstream.cli.output import EXIT_CODES, RETRY_FOR_MS, Output, answering, client_advice
from slipstream.cli.spark_options import spark_options
from slipstream.cli.table_folder import exit_code

if TYPE_CHECKING:
    from slipstream.health import Health
    from slipstream.pipeline.queries import Query
    from slipstream.pipeline.run import Pipeline
    from slipstream.pipeline.stream import Told
    from slipstream.pipeline.watch import Watch

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

REFRESH_PER_S = 4


def pipeline_options(command: CommandT) -> CommandT:
    """Where the messages and the tables are, and where Spark runs."""
    for option in reversed(
        [
            click.option("-s", "--server", "url", help="Address of the server; also SLIPSTREAM_URL."),
            click.option(
                "--bus",
                type=click.Choice(["slipstream", "nats"]),
                help="Read a server, or streams of NATS JetStream at NATS_URL; also PIPELINE_BUS.",
            ),
            click.option("--tables", help="The folder of the tables; also PIPELINE_TABLES."),
            click.option("--topics", help="What goes into `messages`: a regular expression; also PIPELINE_TOPICS."),
            spark_options,
            logging_options("warning"),
        ]
    ):
        command = option(command)
    return command


@click.command(epilog=EXIT_CODES)
@click.option("--once", is_flag=True, help="Read what is there, and end.")
@click.option("--table", "tables_wanted", multiple=True, help="Only what makes this table; repeat it for more.")
@click.option("--from-scratch", is_flag=True, help="Remove the tables, and make them anew of what the log has.")
@pipeline_options
@health_options
def run(
    once: bool,
    tables_wanted: tuple[str, ...],
    from_scratch: bool,
    log_level: str,
    log_format: str,
    health_port: int | None,
    health_host: str | None,
    **given: Any,
) -> None:
    """Keep the tables up to date, until SIGTERM or Ctrl-C.

    What was read is known from the checkpoints beside the tables: killed at any time, it goes on where it was, and no
    message is in a table twice. Tables that are made together are read together, so `--table` brings others along.

    \b
    [bold]Examples[/]
      slipstream pipeline run
      slipstream pipeline run --once --table job_snapshots
      slipstream pipeline run --once --from-scratch --tables /srv/tables
    """
    from slipstream.pipeline.metrics import Counting  # noqa: PLC0415
    from slipstream.pipeline.queries import queries_of  # noqa: PLC0415 - --help needs none of this
    from slipstream.pipeline.run import start_over  # noqa: PLC0415
    from slipstream.pipeline.watch import Watches  # noqa: PLC0415

    with (
        answering(False, exit_code, client_advice) as output,
        observed("pipeline", log_level, log_format),
        opened_health(health_port, health_host) as health,
    ):
        queries = queries_of(tables_wanted)
        show = Show(output)
        health.starting("Spark is being started")
        with opened(given, show, Watches(show, Pulse(health), Counting())) as found, show:

            def stop() -> None:
                health.stopping()
                found.stop()

            with stopping(stop):
                if from_scratch:
                    start_over(found.folder, queries)
                found.run(queries, once=once)
            health.rest()
        show.conclude()


@contextlib.contextmanager
def opened(given: Mapping[str, Any], show: Show, watch: Watch | None = None) -> Iterator[Pipeline]:
    """A pipeline with these settings, and Spark running."""
    from slipstream.client import Client  # noqa: PLC0415
    from slipstream.pipeline.errors import InvalidPipeline  # noqa: PLC0415
    from slipstream.pipeline.run import pipeline  # noqa: PLC0415
    from slipstream.pipeline.settings import load_settings  # noqa: PLC0415

    settings = load_settings({name: value for name, value in given.items() if value is not None})
    if settings.bus == "slipstream":
        # Asked now: Spark takes half a minute to start, and its queries a while to give up.
        with Client(settings.url, retry_for_ms=RETRY_FOR_MS) as client:
            client.offsets([])
    if settings.remote:
        raise InvalidPipeline(
            "the tables are made by streaming queries that need a driver of their own, which Spark Connect does not "
            "give: name a --master; steps, downloads and replays do work with --remote"
        )
    show.output.note(f"[dim]starting Spark ({escape(settings.master)}); tables in {escape(settings.tables)}[/]")
    with pipeline(settings, watch or show) as found:
        yield found


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C end it as it should."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Pulse:
    """Ready is a pipeline whose queries are started; alive, whose loop turns that looks after them."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def began(self, queries: Sequence[Query]) -> None:
        names = ", ".join(query.name for query in queries)
        self._health.starting(f"the queries are being started: {names}")

    def started(self) -> None:
        self._health.ready()

    def turned(self) -> None:
        self._health.beat()

    def told(self, told: Told) -> None:
        """A batch may take as long as it takes."""

    def behind(self, query: str, read: int, lag: int) -> None:
        """So may what is left."""

    def failed(self, query: str) -> None:
        """All of them end by that."""


class Show:
    """How it goes: a line a table that moves, or where nobody looks a line a batch."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._lock = threading.Lock()
        self._queries: Sequence[Query] = ()
        self._rows: dict[tuple[str, str], int] = {}
        self._told: dict[str, Told] = {}
        self._read: dict[str, tuple[int, int]] = {}
        self._live = Live(
            get_renderable=self._table, console=output.err, refresh_per_second=REFRESH_PER_S, transient=True
        )
        self._on_a_terminal = sys.stderr.isatty()

    def __enter__(self) -> Show:
        if self._on_a_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._on_a_terminal:
            self._live.stop()

    # What the pipeline tells, from any thread

    def began(self, queries: Sequence[Query]) -> None:
        with self._lock:
            self._queries = queries

    def told(self, told: Told) -> None:
        with self._lock:
            self._told[told.query] = told
            for table, rows in told.rows.items():
                key = (told.query, table)
                self._rows[key] = self._rows.get(key, 0) + rows
        if not self._on_a_terminal:
            wrote = ", ".join(f"{table} {rows:,}" for table, rows in told.rows.items() if rows)
            self.output.note(f"{told.query} batch {told.batch}: {wrote or 'nothing new'} in {told.took_s:.1f} s")

    def behind(self, query: str, read: int, lag: int) -> None:
        with self._lock:
            self._read[query] = (read, lag)

    def started(self) -> None:
        """The lines are there as soon as they are being started."""

    def turned(self) -> None:
        """Nothing has changed by that."""

    def failed(self, query: str) -> None:
        """It is raised, and said with its reason."""

    # What is shown of it

    def conclude(self) -> None:
        """What is in the tables more than before."""
        self.output.out.print(self._table())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, justify in (
            ("TABLE", "left"),
            ("ROWS", "right"),
            ("LAST BATCH", "right"),
            ("TOOK", "right"),
            ("LAG", "right"),
            ("READ", "left"),
        ):
            table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        with self._lock:
            for query in self._queries:
                told = self._told.get(query.name)
                known = self._read.get(query.name)
                for number, each in enumerate(query.tables):
                    last = told.rows.get(each.name, 0) if told is not None else 0
                    table.add_row(
                        each.name,
                        f"{self._rows.get((query.name, each.name), 0):,}",
                        f"{last:,}",
                        f"{told.took_s:.1f} s" if told is not None and number == 0 else "",
                        _lag(known) if number == 0 else "",
                        _bar(known) if number == 0 else "",
                    )
        return table


def _lag(known: tuple[int, int] | None) -> str:
    return "…" if known is None else f"{known[1]:,}"


def _bar(known: tuple[int, int] | None) -> ProgressBar:
    """It moves without a length until a query has read something."""
    if known is None:
        return ProgressBar(total=None, pulse=True, width=20)
    read, lag = known
    return ProgressBar(total=max(1, read + lag), completed=read if read + lag else 1, width=20)
