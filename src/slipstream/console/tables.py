"""The pipeline's tables: what is there, its rows, answers to SQL and the report.

DuckDB and Arrow read them in threads of this process, a few at a time, and are interrupted where it takes too long.
This is never the broker's process: a question can take all the cores there are, and a good deal of memory.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.overview import SearchHit
from slipstream.api.tables import SqlAnswer, SqlRequest, TableColumn, TableList, TableQuery, TableRows, TableSummary
from slipstream.console.answers import Refused, json_answer, read_json, read_query
from slipstream.console.problems import Seen, TableSeen
from slipstream.console.settings import ConsoleSettings
from slipstream.console.sources import Noun
from slipstream.durations import duration_text
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.looking import Answer, NoSuchTable, QueryRefused, TableInfo, Tables
from slipstream.pipeline.looking.answer import json_value

log = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_BYTES_MAX = 16 << 20
"""Of rows: a browser shows them all."""

LISTED_FOR_S = 2.0
"""How long a list of the tables is good for: several ask for it, and each table is a folder of files."""

Ends = Callable[[], Awaitable[Mapping[str, Mapping[int, int]]]]
"""Topic → partition → the offset that the next message gets."""


class TablesFolder(Noun):
    what = "tables"
    link = "#/pipeline"

    def __init__(self, root: Path, settings: ConsoleSettings, ends: Ends | None = None) -> None:
        self._root = root
        self._settings = settings
        self._ends = ends
        self._threads = ThreadPoolExecutor(settings.sql_concurrency, "tables")
        self._free = asyncio.Semaphore(settings.sql_concurrency)
        self._listed: tuple[float, list[TableSummary]] | None = None
        self._listing = asyncio.Lock()
        self._unread: dict[tuple[str, int], float] = {}
        """Since when each version of a table is known to have left something unread."""

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/tables", self.list_tables, methods=["GET"]),
            Route("/v2/tables/query", self.query, methods=["POST"]),
            Route("/v2/tables/{table}", self.show, methods=["GET"]),
            Route("/console/report", self.report, methods=["GET"]),
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Calls

    async def list_tables(self, request: Request) -> Response:
        return json_answer(TableList(await self._list(), str(self._root.absolute())))

    async def show(self, request: Request) -> Response:
        limit, name = read_query(request, TableQuery).limit, request.path_params["table"]

        def read(tables: Tables) -> TableRows:
            columns = [TableColumn(each.name, each.type, each.what) for each in tables.columns(_known(tables, name))]
            rows, more = _rows(tables.sample(name, limit + 1), limit)
            return TableRows(name=name, columns=columns, rows=rows, more=more)

        return json_answer(await self._ask(read, request))

    async def query(self, request: Request) -> Response:
        asked = await read_json(request, SqlRequest)
        most = self._settings.sql_rows
        if asked.limit > most:
            raise Refused("INVALID_ARGUMENT", f"limit {asked.limit}: {most} rows at the most (CONSOLE_SQL_ROWS)")

        def read(tables: Tables) -> SqlAnswer:
            began = time.perf_counter()
            answer = tables.query(asked.sql, limit=asked.limit)
            rows, more = _rows(answer, asked.limit)
            took_ms = round((time.perf_counter() - began) * 1000, 1)
            columns, numbers = list(answer.columns), list(answer.numbers)
            return SqlAnswer(columns=columns, numbers=numbers, rows=rows, more=more or answer.more, took_ms=took_ms)

        return json_answer(await self._ask(read, request))

    async def report(self, request: Request) -> Response:
        run = request.query_params.get("run")

        def render(tables: Tables) -> str:
            from slipstream.pipeline.report import NoSuchRun  # noqa: PLC0415 - only whoever opens it needs it
            from slipstream.pipeline.report import render as render_report  # noqa: PLC0415

            try:
                return render_report(tables, run=run)
            except NoSuchRun as error:
                raise Refused("NOT_FOUND", str(error)) from error

        page = await self._ask(render, request)
        return Response(page, headers={"Content-Security-Policy": report_policy(page)}, media_type="text/html")

    # What is wrong, and what is found

    async def look(self, seen: Seen) -> Seen:
        now_ms, now = time.time_ns() // 1_000_000, time.monotonic()
        # The first message after a quiet night is no backlog: what counts is how long it has been left unread.
        unread: dict[tuple[str, int], float] = {}
        behind = []
        for table in await self._list():
            if not table.lag:
                continue
            version = (table.name, table.written_ms)
            unread[version] = since = self._unread.get(version, now)
            written_ms_ago = max(0, now_ms - table.written_ms)
            unread_ms = int((now - since) * 1000)
            behind.append(
                TableSeen(table=table.name, lag=table.lag, written_ms_ago=written_ms_ago, unread_ms=unread_ms)
            )
        self._unread = unread
        return replace(seen, tables=tuple(behind))

    async def search(self, text: str) -> list[SearchHit]:
        names = [table.name for table in await self._list() if text in table.name]
        return [SearchHit(kind="table", text=name, link=f"#/pipeline/{quote(name, safe='')}") for name in names]

    # Reading

    async def _list(self) -> list[TableSummary]:
        async with self._listing:
            if self._listed is None or time.monotonic() - self._listed[0] > LISTED_FOR_S:
                ends = await self._known_ends()
                self._listed = (time.monotonic(), await self._ask(lambda tables: _summaries(tables, ends)))
        return self._listed[1]

    async def _known_ends(self) -> Mapping[str, Mapping[int, int]]:
        if self._ends is None:
            return {}
        try:
            return await self._ends()
        except Refused as refused:
            log.debug("how far behind the tables are is not known: %s", refused.message)
            return {}

    async def _ask(self, question: Callable[[Tables], T], request: Request | None = None) -> T:
        """Raises Refused. What takes too long, or is nobody's any more, is interrupted: the next has its turn."""
        async with self._free:
            tables = Tables(self._root, memory_bytes=self._settings.sql_memory_bytes)
            answering = asyncio.get_running_loop().run_in_executor(self._threads, question, tables)
            gone = asyncio.create_task(_gone(request))
            either: set[asyncio.Future[Any]] = {answering, gone}
            try:
                await asyncio.wait(
                    either,
                    timeout=self._settings.sql_timeout_ms / 1000,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                is_late = not answering.done()
            finally:
                gone.cancel()
                await asyncio.shield(asyncio.create_task(_interrupt(tables, answering)))
            return self._result(answering, is_late=is_late)

    def _result(self, answering: asyncio.Future[T], *, is_late: bool) -> T:
        try:
            return answering.result()
        except NoSuchTable as error:
            raise Refused("NOT_FOUND", str(error)) from error
        except QueryRefused as error:
            if is_late:
                patience = duration_text(self._settings.sql_timeout_ms)
                raise Refused(
                    "DEADLINE_EXCEEDED",
                    f"this takes longer than {patience}, and was stopped: ask for less, such as one day of it "
                    "(CONSOLE_SQL_TIMEOUT_MS)",
                ) from error
            if "Out of Memory" in str(error):
                # DuckDB's own advice is to settings that cannot be changed here.
                raise Refused(
                    "INVALID_ARGUMENT",
                    f"this needs more memory than {self._settings.sql_memory_bytes >> 20} MiB, and was stopped: ask "
                    "for less, such as one day of it (CONSOLE_SQL_MEMORY_BYTES)",
                ) from error
            raise Refused("INVALID_ARGUMENT", str(error)) from error
        except PipelineError as error:
            raise Refused("UNAVAILABLE", str(error)) from error


async def _gone(request: Request | None) -> None:
    """Returns when whoever asked is gone. The body has been read: nothing else can come."""
    if request is None:
        await asyncio.get_running_loop().create_future()
    else:
        while (await request.receive())["type"] != "http.disconnect":
            pass


async def _interrupt(tables: Tables, answering: asyncio.Future[Any]) -> None:
    """Until it is over. Again and again: it may be between two queries, or not have begun."""
    while not answering.done():
        tables.interrupt()
        await asyncio.wait({answering}, timeout=0.1)


def _known(tables: Tables, name: str) -> str:
    """Raises NoSuchTable, for ours that are not there yet, too."""
    if name not in tables.names:
        raise NoSuchTable(tables.missing(name))
    return name


def _rows(answer: Answer, limit: int) -> tuple[list[list[Any]], bool]:
    """As JSON has them, and whether there is more; not more than a browser can take."""
    rows: list[list[Any]] = []
    size = 0
    for row in answer:
        if len(rows) == limit:
            return rows, True
        plain = [json_value(value) for value in row]
        size += len(msgspec.json.encode(plain))
        if size > ANSWER_BYTES_MAX and rows:
            return rows, True
        rows.append(plain)
    return rows, False


def _summaries(tables: Tables, ends: Mapping[str, Mapping[int, int]]) -> list[TableSummary]:
    lags: dict[str, int | None] = {}
    found = []
    for name in tables.names:
        info = tables.info(name)
        found.append(_summary(info, _lag(tables, info, ends, lags)))
    return found


def _summary(info: TableInfo, lag: int | None) -> TableSummary:
    return TableSummary(
        name=info.name,
        about=info.what,
        rows=info.rows,
        bytes=info.bytes,
        newest_ms=None if info.newest is None else _ms(info.newest),
        written_ms=_ms(info.changed_at),
        batch=max(info.batches.values(), default=None),
        lag=lag,
    )


def _lag(
    tables: Tables, info: TableInfo, ends: Mapping[str, Mapping[int, int]], lags: dict[str, int | None]
) -> int | None:
    """Of the query that writes it; where several do, of the one that is furthest behind."""
    for query in info.batches:
        if query not in lags:
            lags[query] = query_lag(tables.reached(query), ends)
    known = [lag for query in info.batches if (lag := lags[query]) is not None]
    return max(known, default=None)


def query_lag(reached: Mapping[str, Mapping[str, int]], ends: Mapping[str, Mapping[int, int]]) -> int | None:
    """About how many messages a query has not read; None where no topic of it is known.

    Offsets count per topic, across its partitions: what is left is between the first place that was reached and the
    last end, of those partitions that have something left.
    """
    known = [topic for topic in reached if topic in ends]
    return sum(_left(reached[topic], ends[topic]) for topic in known) if known else None


def _left(reached: Mapping[str, int], ends: Mapping[int, int]) -> int:
    places = [(reached.get(str(partition), 0), end) for partition, end in ends.items()]
    behind = [(place, end) for place, end in places if place < end]
    return max(end for _, end in behind) - min(place for place, _ in behind) if behind else 0


def _ms(at: dt.datetime) -> int:
    return round(at.timestamp() * 1000)


_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def report_policy(page: str) -> str:
    """Just the styles that stand in this page, by what they are."""
    styles = _hashes(_STYLE.findall(page))
    return f"default-src 'none'; style-src {styles}; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"


def _hashes(texts: Iterable[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
