"""The process that reads tables: answers questions until the console that started it is gone.

Not imported by anything in the console: `tables_process` starts it.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401 - before the first question, not in it
import duckdb  # noqa: F401
import msgspec
import pyarrow as pa

from slipstream.api.tables import SqlAnswer, TableColumn, TableRows, TableSummary
from slipstream.console.answers import Refused
from slipstream.console.tables_process import (
    LENGTH,
    OUT_OF_MEMORY,
    READY,
    Answered,
    Listing,
    Question,
    Report,
    Sample,
    Sql,
    framed,
)
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.looking import Answer, NoSuchTable, QueryRefused, TableInfo, Tables
from slipstream.pipeline.looking.answer import json_value

ANSWER_BYTES_MAX = 16 << 20
"""Of rows: a browser shows them all."""

OWN_BYTES = 128 << 20
"""What DuckDB and Delta take for themselves with the first question: a hundred megabytes, on two cores."""

THREAD_BYTES = 16 << 20
"""For each core: DuckDB and Delta have a thread there each, with its stack."""


def main(root: str, memory_bytes: int) -> None:
    """The life of the process: one question after the other, until the console is gone, however it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C goes to all of a terminal's processes; the console decides
    _limit(memory_bytes)
    questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=[questions], daemon=True).start()
    _say(READY)
    while True:
        _say(framed(_answered(Path(root), memory_bytes, questions.get())))


def _limit(memory_bytes: int) -> None:
    own = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    most = own + OWN_BYTES + THREAD_BYTES * (os.cpu_count() or 1) + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _listen(questions: queue.SimpleQueue[Question]) -> None:
    pipe = sys.stdin.buffer
    while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
        questions.put(msgspec.msgpack.decode(pipe.read(LENGTH.unpack(head)[0]), type=Question))
    os._exit(0)  # also in the middle of a question: nobody waits for its answer any more


def _say(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _answered(root: Path, memory_bytes: int, question: Question) -> Answered:
    # Half for what DuckDB counts, and puts on the disk where that is not enough; half for what is made of it.
    tables = Tables(root, memory_bytes=memory_bytes // 2)
    try:
        return Answered(_answer(tables, question))
    except Refused as refused:
        return Answered(code=refused.code, message=refused.message)
    except NoSuchTable as error:
        return Answered(code="NOT_FOUND", message=str(error))
    except QueryRefused as error:
        if "Out of Memory" in str(error) or isinstance(error.__cause__, pa.ArrowMemoryError):
            os._exit(OUT_OF_MEMORY)
        return Answered(code="INVALID_ARGUMENT", message=str(error))
    except PipelineError as error:
        return Answered(code="UNAVAILABLE", message=str(error))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _answer(tables: Tables, question: Question) -> bytes:
    """Raises Refused, PipelineError."""
    match question:
        case Sql(sql, limit):
            return msgspec.json.encode(_sql(tables, sql, limit))
        case Sample(table, limit):
            return msgspec.json.encode(_sample(tables, table, limit))
        case Report(run):
            return _report(tables, run).encode()
        case Listing(ends):
            return msgspec.json.encode(_summaries(tables, ends))


def _sql(tables: Tables, sql: str, limit: int) -> SqlAnswer:
    began = time.perf_counter()
    answer = tables.query(sql, limit=limit)
    rows, more = _rows(answer, limit)
    took_ms = round((time.perf_counter() - began) * 1000, 1)
    columns, numbers = list(answer.columns), list(answer.numbers)
    return SqlAnswer(columns=columns, numbers=numbers, rows=rows, more=more or answer.more, took_ms=took_ms)


def _sample(tables: Tables, name: str, limit: int) -> TableRows:
    if name not in tables.names:  # ours that are not there yet, too
        raise NoSuchTable(tables.missing(name))
    columns = [TableColumn(each.name, each.type, each.what) for each in tables.columns(name)]
    rows, more = _rows(tables.sample(name, limit + 1), limit)
    return TableRows(name=name, columns=columns, rows=rows, more=more)


def _rows(answer: Answer, limit: int) -> tuple[list[list[Any]], bool]:
    """As JSON has them, and whether there is more; not more than a browser can take. Raises Refused."""
    rows: list[list[Any]] = []
    size = 0
    for row in answer:
        if len(rows) == limit:
            return rows, True
        plain = [_for_browser(json_value(value)) for value in row]
        size += len(msgspec.json.encode(plain))
        if size > ANSWER_BYTES_MAX:
            if rows:
                return rows, True
            raise Refused(
                "INVALID_ARGUMENT",
                f"the first row alone is {size >> 20} MiB, and an answer {ANSWER_BYTES_MAX >> 20} MiB at the most: ask "
                "for fewer columns, or for a part of a value, such as left(value, 1000)",
            )
        rows.append(plain)
    return rows, False


def _for_browser(value: Any) -> Any:
    """JavaScript has numbers of 53 bits: larger ones would be others there."""
    if isinstance(value, int) and abs(value) >= 1 << 53:
        return str(value)
    return value


def _report(tables: Tables, run: str | None) -> str:
    from slipstream.pipeline.report import NoSuchRun, render  # noqa: PLC0415 - only whoever opens it needs it

    try:
        return render(tables, run=run)
    except NoSuchRun as error:
        raise Refused("NOT_FOUND", str(error)) from error


def _summaries(tables: Tables, ends: Mapping[str, Mapping[int, int]]) -> list[TableSummary]:
    lags: dict[str, int | None] = {}
    found = []
    for name in tables.names:
        try:
            info = tables.info(name)
            found.append(_summary(info, _lag(tables, info, ends, lags)))
        except PipelineError as error:
            found.append(_unreadable(name, str(error)))
    return found


def _unreadable(name: str, trouble: str) -> TableSummary:
    return TableSummary(
        name=name, about="", rows=0, bytes=0, newest_ms=None, written_ms=None, batch=None, lag=None, trouble=trouble
    )


def _summary(info: TableInfo, lag: int | None) -> TableSummary:
    return TableSummary(
        name=info.name,
        about=info.what,
        rows=info.rows,
        bytes=info.bytes,
        newest_ms=None if info.newest is None else round(info.newest.timestamp() * 1000),
        written_ms=round(info.changed_at.timestamp() * 1000),
        batch=max(info.batches.values(), default=None),
        lag=lag,
        is_daily=info.is_daily,
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


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
