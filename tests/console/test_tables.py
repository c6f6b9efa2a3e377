"""Tables in the console: small Delta tables, DuckDB, and an end to what takes too long."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from slipstream.console import Sources, create_console
from slipstream.console.answers import Refused
from slipstream.console.metrics import ConsoleMetrics, metrics_in
from slipstream.console.problems import Seen
from slipstream.console.settings import load_settings
from slipstream.console.tables import TablesFolder, report_policy
from tests.background_loop import BackgroundLoop
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, listening
from tests.pipeline.sample_tables import make_all, make_table, place

SMALL_BYTES = 64 << 20
SLOW = "select count(*) from range(10000000) a, range(10000000) b, range(10000000) c"  # takes time, and no memory


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tables")
    make_all(found)
    return found


@pytest.fixture(scope="module")
def background() -> Iterator[BackgroundLoop]:
    with BackgroundLoop() as loop:
        yield loop


@pytest.fixture(scope="module")
def url(root: Path, background: BackgroundLoop) -> str:
    """The address of a console that all tests ask that need no settings of their own."""
    return background.enter(looking(root))


@pytest.fixture(scope="module")
def small_url(root: Path, background: BackgroundLoop) -> str:
    """The address of a console whose questions have little memory."""
    return background.enter(looking(root, sql_memory_bytes=SMALL_BYTES, sql_concurrency=1))


@pytest.fixture(scope="module")
def patient_url(root: Path, background: BackgroundLoop) -> str:
    """The address of a console that answers one question at a time, however long it takes."""
    return background.enter(looking(root, sql_timeout_ms=60_000, sql_concurrency=1))


@contextlib.asynccontextmanager
async def looking(root: Path, metrics: ConsoleMetrics | None = None, **settings: Any) -> AsyncIterator[str]:
    tables = TablesFolder(root, load_settings(settings, {}), metrics=metrics)
    console = create_console(Sources(Numbers(), tables=tables))
    try:
        async with listening(console) as url:
            yield url
    finally:
        await console.close()


@in_loop
async def test_tables_are_listed_with_what_is_known_of_them(url: str, root: Path) -> None:
    _, answer, _ = await ask(f"{url}/v2/tables")
    assert answer["root"] == str(root)
    tables = {table["name"]: table for table in answer["tables"]}
    messages = tables["messages"]
    assert (messages["rows"], messages["lag"]) == (50, None)
    assert messages["bytes"] > 0
    assert messages["about"]
    assert messages["newest_ms"] < messages["written_ms"]


@in_loop
async def test_a_table_is_shown_with_its_columns_and_newest_rows(url: str) -> None:
    _, answer, _ = await ask(f"{url}/v2/tables/messages?limit=3")
    names = [column["name"] for column in answer["columns"] if "." not in column["name"]]
    assert (answer["name"], len(answer["rows"]), answer["more"]) == ("messages", 3, True)
    assert [dict(zip(names, row, strict=True))["offset"] for row in answer["rows"]] == [49, 48, 47]
    (column,) = [column for column in answer["columns"] if column["name"] == "topic"]
    assert column["type"] == "string"
    assert column["about"]
    assert not any(name.startswith("_") for name in names)
    _, answer, _ = await ask(f"{url}/v2/tables/messages?limit=100")
    assert (len(answer["rows"]), answer["more"]) == (50, False)
    status, answer, _ = await ask(f"{url}/v2/tables/nothing")
    assert (status, answer["error"]) == (404, "NOT_FOUND")
    assert "there are messages" in answer["message"]
    assert (await ask(f"{url}/v2/tables/messages?limit=-1"))[0] == 400


@in_loop
async def test_a_question_in_sql_is_answered(url: str) -> None:
    sql = 'select topic, count(*) as n, max("offset") as last from messages group by topic'
    _, answer, _ = await ask(f"{url}/v2/tables/query", "POST", json={"sql": sql})
    assert (answer["columns"], answer["numbers"]) == (["topic", "n", "last"], [False, True, True])
    assert (answer["rows"], answer["more"]) == ([["orders", 50, 49]], False)
    assert answer["took_ms"] > 0
    _, answer, _ = await ask(f"{url}/v2/tables/query", "POST", json={"sql": "from messages", "limit": 2})
    assert (len(answer["rows"]), answer["more"]) == (2, True)
    _, answer, _ = await ask(
        f"{url}/v2/tables/query", "POST", json={"sql": 'select "value" from messages where "offset" = 3'}
    )
    assert answer["rows"] == [[{"hex": "fffe00"}]], "bytes that are no text"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sql": "delete from messages"}, "only read"),
        ({"sql": "select nothing from messages"}, "messages has"),
        ({"sql": "select * from '/etc/passwd'"}, ""),
        ({"sql": "select * from elsewhere"}, "there is no table elsewhere"),
        ({"sql": ""}, "sql"),
        ({"sql": "select 1", "limit": 99_999}, "CONSOLE_SQL_ROWS"),
        ({"sql": "select 'a'::int"}, "Could not convert"),
        ({}, "sql"),
    ],
)
@in_loop
async def test_a_question_that_makes_no_sense_is_refused_with_the_reason(
    url: str, body: dict[str, Any], words: str
) -> None:
    status, answer, _ = await ask(f"{url}/v2/tables/query", "POST", json=body)
    assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")
    assert words in answer["message"]


@in_loop
async def test_a_question_that_takes_too_long_is_stopped_and_the_next_has_its_turn(root: Path) -> None:
    async with looking(root, sql_timeout_ms=2_000, sql_concurrency=1) as url:
        status, answer, _ = await ask(f"{url}/v2/tables/query", "POST", json={"sql": SLOW})
        assert (status, answer["error"]) == (504, "DEADLINE_EXCEEDED")
        assert "CONSOLE_SQL_TIMEOUT_MS" in answer["message"]
        _, answer, _ = await ask(f"{url}/v2/tables/query", "POST", json={"sql": "select 1"})
        assert answer["rows"] == [[1]]


@in_loop
async def test_a_question_that_needs_too_much_memory_is_stopped_and_the_next_has_its_turn(small_url: str) -> None:
    big = "select len(list(i)) from range(100000000) t(i)"
    status, answer, _ = await ask(f"{small_url}/v2/tables/query", "POST", json={"sql": big})
    assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")
    assert "64 MiB" in answer["message"]
    assert "CONSOLE_SQL_MEMORY_BYTES" in answer["message"]
    _, answer, _ = await ask(f"{small_url}/v2/tables/query", "POST", json={"sql": "select count(*) from messages"})
    assert answer["rows"] == [[50]]


@pytest.mark.parametrize(
    "sql",
    [
        "select repeat('x', 1000000) from range(1000)",
        "select repeat('x', 700000000)",
        "select max(length(repeat('x', 1000000 + range::int))) from range(4000)",
    ],
)
@in_loop
async def test_what_duckdb_does_not_count_is_memory_of_a_question_too(small_url: str, sql: str) -> None:
    status, answer, _ = await ask(f"{small_url}/v2/tables/query", "POST", json={"sql": sql, "limit": 1000})
    assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")
    assert "more memory than 64 MiB" in answer["message"]
    _, answer, _ = await ask(f"{small_url}/v2/tables/query", "POST", json={"sql": "select 1"})
    assert answer["rows"] == [[1]]


@in_loop
async def test_an_answer_ends_where_it_is_too_large_for_a_browser(url: str) -> None:
    rows = "select repeat('x', 1000000) from range(100)"
    _, answer, _ = await ask(f"{url}/v2/tables/query", "POST", json={"sql": rows})
    assert (len(answer["rows"]), answer["more"]) == (16, True)
    status, answer, _ = await ask(
        f"{url}/v2/tables/query", "POST", json={"sql": "select repeat('x', 20000000) as value"}
    )
    assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")
    assert "the first row alone is 19 MiB" in answer["message"]


@in_loop
async def test_a_question_whose_asker_is_gone_is_stopped(patient_url: str) -> None:
    url = f"{patient_url}/v2/tables/query"
    await ask(url, "POST", json={"sql": "select 1"})
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(session.post(url, json={"sql": SLOW}).__aenter__())
        await asyncio.sleep(0.3)  # so that it is really under way
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    _, answer, _ = await ask(url, "POST", json={"sql": "select 1"})
    assert answer["rows"] == [[1]]


@in_loop
async def test_questions_are_counted_by_what_became_of_them(root: Path) -> None:
    registry = CollectorRegistry()
    async with looking(root, metrics_in(registry), sql_concurrency=1) as url:
        for sql in ("select 1", "select 2", "select nothing"):
            await ask(f"{url}/v2/tables/query", "POST", json={"sql": sql})
    outcomes = {
        outcome: registry.get_sample_value("console_questions_total", {"outcome": outcome})
        for outcome in ("answered", "invalid_argument")
    }
    assert outcomes == {"answered": 2, "invalid_argument": 1}


@in_loop
async def test_many_questions_wait_for_each_other_and_are_all_answered(url: str) -> None:
    answers = await asyncio.gather(
        *(ask(f"{url}/v2/tables/query", "POST", json={"sql": f"select {n}"}) for n in range(10))
    )
    assert [answer["rows"] for _, answer, _ in answers] == [[[n]] for n in range(10)]


@in_loop
async def test_tables_are_looked_at_while_a_question_takes_its_time(patient_url: str) -> None:
    url = f"{patient_url}/v2/tables/query"
    async with aiohttp.ClientSession() as session:
        slow = asyncio.create_task(session.post(url, json={"sql": SLOW}).__aenter__())
        waiting = asyncio.create_task(session.post(url, json={"sql": "select 1"}).__aenter__())
        status, answer, _ = await ask(f"{patient_url}/v2/tables")
        assert status == 200
        assert answer["tables"]
        assert not slow.done()
        slow.cancel()
        async with await waiting as answered:
            assert (await answered.json())["rows"] == [[1]]


@in_loop
async def test_the_report_is_a_page_with_just_its_own_styles(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/console/report") as answer:
            page = await answer.text()
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            policy = answer.headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in policy
        assert "<script" not in page
        assert " style=" not in page, "which the policy would not let through"
        assert policy == report_policy(page)
        async with session.get(f"{url}/console/report?run=nobody") as answer:
            assert (answer.status, (await answer.json())["error"]) == (404, "NOT_FOUND")


@in_loop
async def test_without_tables_the_list_is_empty_and_the_rest_says_how_to_make_them(tmp_path: Path) -> None:
    async with looking(tmp_path / "none") as url:
        assert (await ask(f"{url}/v2/tables"))[1]["tables"] == []
        status, answer, _ = await ask(f"{url}/v2/tables/messages")
        assert status == 404
        assert "slipstream pipeline run" in answer["message"]
        assert (await ask(f"{url}/console/report"))[0] == 404


@in_loop
async def test_a_table_that_cannot_be_read_is_marked_and_the_others_are_shown(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [])
    (tmp_path / "slip_runs" / "_delta_log").mkdir(parents=True)
    async with looking(tmp_path) as url:
        status, answer, _ = await ask(f"{url}/v2/tables")
        assert status == 200
        troubles = {table["name"]: table["trouble"] for table in answer["tables"]}
        assert troubles["messages"] == ""
        assert "the table slip_runs in" in troubles["slip_runs"]
        assert "cannot be read" in troubles["slip_runs"]
        status, answer, _ = await ask(f"{url}/v2/tables/slip_runs")
        assert (status, answer["message"]) == (503, troubles["slip_runs"])
        _, answer, _ = await ask(f"{url}/v2/search?q=slip_runs")
        assert [hit["text"] for hit in answer["hits"]] == ["slip_runs"]


@in_loop
async def test_tables_are_found_by_their_name(url: str) -> None:
    _, answer, _ = await ask(f"{url}/v2/search?q=job_sn")
    assert answer["hits"] == [{"kind": "table", "text": "job_snapshots", "link": "#/pipeline/job_snapshots"}]


# How far the queries are


@in_loop
async def test_a_table_is_behind_as_its_query_is(tmp_path: Path) -> None:
    at = dt.datetime.now(dt.UTC)
    make_table(tmp_path, "messages", [place("orders", 3, at)], batch=4)
    make_table(tmp_path, "job_status", [])
    (query,) = {path.parent.name for path in tmp_path.glob("_checkpoints/*/metadata")}
    checkpoint = tmp_path / "_checkpoints" / query
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "4").write_text("")
    (checkpoint / "offsets").mkdir()
    reached = {"topics": {"orders": {"incarnation": "a1", "partitions": {"0": 4}}}}
    (checkpoint / "offsets" / "4").write_text("v1\n{}\n" + json.dumps(reached))

    async def ends() -> Mapping[str, Mapping[int, int]]:
        return {"orders": {0: 11}}

    tables = TablesFolder(tmp_path, load_settings({}, {}), ends)
    seen = await tables.look(Seen(now_ms=0))
    assert [(each.table, each.lag, each.unread_ms) for each in seen.tables] == [("messages", 7, 0)], "just met"
    while not seen.tables[0].unread_ms:
        seen = await tables.look(Seen(now_ms=0))
    await tables.close()


@in_loop
async def test_tables_are_listed_while_the_broker_is_away(root: Path) -> None:
    async def ends() -> Mapping[str, Mapping[int, int]]:
        raise Refused("UNAVAILABLE", "nobody listens there")

    tables = TablesFolder(root, load_settings({}, {}), ends)
    console = create_console(Sources(Numbers(), tables=tables))
    async with listening(console) as url:
        status, answer, _ = await ask(f"{url}/v2/tables")
        assert status == 200
        assert {table["lag"] for table in answer["tables"]} == {None}
    await console.close()
