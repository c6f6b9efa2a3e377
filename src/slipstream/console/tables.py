"""The pipeline's tables: what is there, its rows, answers to SQL and the report.

They are read in processes of their own, a few at a time, each with its memory, and ended where it takes too long.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.overview import SearchHit
from slipstream.api.tables import SqlRequest, TableList, TableQuery, TableSummary
from slipstream.console.answers import Refused, json_answer, read_json, read_query
from slipstream.console.metrics import ConsoleMetrics
from slipstream.console.problems import Seen, TableSeen
from slipstream.console.settings import ConsoleSettings
from slipstream.console.sources import Noun
from slipstream.console.tables_process import Listing, Question, Report, Sample, Sql, TablesProcess
from slipstream.durations import duration_text

log = logging.getLogger(__name__)

LISTED_FOR_S = 2.0
"""How long a list of the tables is good for: several ask for it, and each table is a folder of files."""

Ends = Callable[[], Awaitable[Mapping[str, Mapping[int, int]]]]
"""Topic → partition → the offset that the next message gets."""


class TablesFolder(Noun):
    what = "tables"
    link = "#/pipeline"

    def __init__(
        self, root: Path, settings: ConsoleSettings, ends: Ends | None = None, metrics: ConsoleMetrics | None = None
    ) -> None:
        self._root = root
        self._settings = settings
        self._ends = ends
        self._metrics = metrics or ConsoleMetrics(CollectorRegistry())
        self._processes = [TablesProcess(root, settings.sql_memory_bytes) for _ in range(settings.sql_concurrency)]
        # The last that answered is the first to be asked: it is there already.
        self._free: asyncio.LifoQueue[TablesProcess] = asyncio.LifoQueue()
        for each in self._processes:
            self._free.put_nowait(each)
        # Of its own: whoever looks for problems does not wait for two slow questions.
        self._lister = TablesProcess(root, settings.sql_memory_bytes)
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
        for each in (*self._processes, self._lister):
            await each.end()

    # Calls

    async def list_tables(self, request: Request) -> Response:
        return json_answer(TableList(await self._list(), str(self._root.absolute())))

    async def show(self, request: Request) -> Response:
        limit, name = read_query(request, TableQuery).limit, request.path_params["table"]
        return _json(await self._ask(Sample(name, limit), request))

    async def query(self, request: Request) -> Response:
        asked = await read_json(request, SqlRequest)
        most = self._settings.sql_rows
        if asked.limit > most:
            raise Refused("INVALID_ARGUMENT", f"limit {asked.limit}: {most} rows at the most (CONSOLE_SQL_ROWS)")
        try:
            answer = await self._ask(Sql(asked.sql, asked.limit), request)
        except Refused as refused:
            self._metrics.questions.labels(refused.code.lower()).inc()
            raise
        self._metrics.questions.labels("answered").inc()
        return _json(answer)

    async def report(self, request: Request) -> Response:
        page = await self._ask(Report(request.query_params.get("run")), request)
        policy = report_policy(page.decode())
        return Response(page, headers={"Content-Security-Policy": policy}, media_type="text/html")

    # What is wrong, and what is found

    async def look(self, seen: Seen) -> Seen:
        now_ms, now = time.time_ns() // 1_000_000, time.monotonic()
        # The first message after a quiet night is no backlog: what counts is how long it has been left unread.
        unread: dict[tuple[str, int], float] = {}
        behind = []
        for table in await self._list():
            if not table.lag or table.written_ms is None:
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
                await self._lister.start()
                listed = await self._within(self._lister, Listing(ends))
                self._listed = (time.monotonic(), msgspec.json.decode(listed, type=list[TableSummary]))
        return self._listed[1]

    async def _known_ends(self) -> Mapping[str, Mapping[int, int]]:
        if self._ends is None:
            return {}
        try:
            return await self._ends()
        except Refused as refused:
            log.debug("how far behind the tables are is not known: %s", refused.message)
            return {}

    async def _ask(self, question: Question, request: Request) -> bytes:
        """Raises Refused. What takes too long, or is nobody's any more, is ended: the next has its turn."""
        process = await self._free.get()
        try:
            await process.start()
            return await self._within(process, question, request)
        finally:
            self._free.put_nowait(process)

    async def _within(self, process: TablesProcess, question: Question, request: Request | None = None) -> bytes:
        answering = asyncio.create_task(process.ask(question))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait(
                [answering, gone],
                timeout=self._settings.sql_timeout_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answering.done():
                return answering.result()
            if gone.done():
                raise Refused("UNAVAILABLE", "whoever asked is gone")
        finally:
            gone.cancel()
            if not answering.done():
                answering.cancel()
                await asyncio.shield(asyncio.create_task(process.end()))
        raise Refused(
            "DEADLINE_EXCEEDED",
            f"this takes longer than {duration_text(self._settings.sql_timeout_ms)}, and was stopped: ask for less, "
            "such as one day of it (CONSOLE_SQL_TIMEOUT_MS)",
        )


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def _gone(request: Request | None) -> None:
    """Returns when whoever asked is gone. The body has been read: nothing else can come."""
    if request is None:
        await asyncio.get_running_loop().create_future()
    else:
        while (await request.receive())["type"] != "http.disconnect":
            pass


_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def report_policy(page: str) -> str:
    """Just the styles that stand in this page, by what they are."""
    styles = _hashes(_STYLE.findall(page))
    return f"default-src 'none'; style-src {styles}; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"


def _hashes(texts: Iterable[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
