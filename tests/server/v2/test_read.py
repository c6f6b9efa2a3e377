"""Reading the log without a group: ranges, times, forms, and what retention has removed."""

from __future__ import annotations

import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.conftest import StartServer
from tests.server.conftest import StartMemory
from tests.server.v2.wire import MSGPACK, V2, values

ARROW = "application/vnd.apache.arrow.stream"


def test_a_range_of_offsets(v2: V2) -> None:
    v2.produce(*map(str, range(10)))
    page = v2.read(**{"from": 2, "to": 5})
    assert values(page["messages"]) == ["2", "3", "4"]
    assert (page["next_offset"], page["first_offset"], page["end_offset"]) == (5, 0, 10)


def test_pages_lead_from_one_to_the_next(v2: V2) -> None:
    v2.produce(*map(str, range(10)))
    seen: list[str] = []
    offset = 0
    while True:
        page = v2.read(**{"from": offset, "limit": 3})
        if not page["messages"]:
            break
        seen += values(page["messages"])
        offset = page["next_offset"]
    assert seen == [str(n) for n in range(10)]
    assert offset == 10


def test_the_newest_so_many(v2: V2) -> None:
    v2.produce(*map(str, range(10)))
    assert values(v2.read(last=3)["messages"]) == ["7", "8", "9"]
    assert values(v2.read(last=2, to=5)["messages"]) == ["3", "4"]


def test_a_range_of_time(v2: V2) -> None:
    v2.produce("a", "b")
    stored = dt.datetime.fromtimestamp(v2.read()["messages"][0]["timestamp_ms"] / 1000, dt.UTC)
    hour = dt.timedelta(hours=1)
    assert len(v2.read(since=(stored - hour).isoformat())["messages"]) == 2
    assert v2.read(since=(stored + hour).isoformat())["messages"] == []
    assert v2.read(until=(stored - hour).isoformat())["messages"] == []
    assert len(v2.read(since=(stored - hour).isoformat(), until=(stored + hour).isoformat())["messages"]) == 2


def test_about_so_many_bytes_and_at_least_one_message(v2: V2) -> None:
    v2.produce(*["x" * 1_000] * 5)
    assert len(v2.read(max_bytes=2_500)["messages"]) == 3
    assert len(v2.read(max_bytes=1)["messages"]) == 1


def test_reading_takes_nothing_from_a_group(v2: V2) -> None:
    v2.produce("a")
    v2.read()
    assert v2.describe()["groups"] == []
    assert [m["attempts"] for m in v2.fetch()] == [1]


def test_a_partition_is_named_where_there_are_several(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"partitions": 2})
    assert "partition=0 to 1" in v2.read(expect=400)["message"]
    assert v2.read(partition=1)["messages"] == []
    assert "partitions 0 to 1" in v2.read(partition=2, expect=404)["message"]


def test_envelope_attributes_and_delay_are_shown(v2: V2) -> None:
    before_ms = time.time_ns() // 1_000_000
    v2.produce({"value": "a", "key": "k", "attributes": {"n": "1"}, "envelope": {"run_id": "r"}, "delay_ms": 60_000})
    after_ms = time.time_ns() // 1_000_000
    (message,) = v2.read()["messages"]
    assert (message["key"], message["attributes"], message["envelope"]) == ("k", {"n": "1"}, {"run_id": "r"})
    assert before_ms <= message["deliver_at_ms"] - 60_000 <= after_ms


def test_a_read_waits_for_what_is_not_there_yet(v2: V2) -> None:
    v2.produce("a")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(V2(v2.server, v2.topic).read, **{"from": 1, "wait_ms": 10_000})
        assert not waiting.done()
        v2.produce("b")
        assert values(waiting.result()["messages"]) == ["b"]
    assert v2.read(**{"from": 2, "wait_ms": 10})["messages"] == []


def test_messagepack_carries_bytes(v2: V2) -> None:
    v2.produce({"value": "/w==", "encoding": "base64"})
    response = v2.respond("GET", v2.path("messages"), headers={"Accept": MSGPACK})
    assert msgspec.msgpack.decode(response.content)["messages"][0]["value"] == b"\xff"


def arrow(v2: V2, **query: Any) -> tuple[pa.Table, Any]:
    response = v2.respond("GET", v2.path("messages"), headers={"Accept": ARROW}, params=query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    return pa.ipc.open_stream(response.content).read_all(), response.headers


def test_arrow_has_a_column_for_everything(v2: V2) -> None:
    v2.produce("a", {"value": "b", "key": "k", "attributes": {"n": "1"}, "envelope": {"run_id": "r"}})
    table, headers = arrow(v2)
    assert table.schema.names == [
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "attributes",
        "envelope",
        "routing",
        "deliver_at",
        "redriven_from",
    ]
    assert table.column("value").to_pylist() == [b"a", b"b"]
    assert table.column("partition").to_pylist() == [0, 0]
    assert table.column("attributes").to_pylist() == [None, [("n", "1")]]
    assert table.column("envelope").to_pylist() == [None, '{"run_id":"r"}']
    assert table.column("timestamp").to_pylist()[0].tzinfo is not None
    names = ("slipstream-next-offset", "slipstream-first-offset", "slipstream-end-offset")
    assert [headers[name] for name in names] == ["2", "0", "2"]


def test_an_empty_range_of_arrow_still_has_its_columns(v2: V2) -> None:
    table, headers = arrow(v2)
    assert (table.num_rows, headers["slipstream-next-offset"]) == (0, "0")


def test_what_lies_in_segments_is_read_like_the_rest(start_server: StartServer) -> None:
    server = start_server("--journal-changes", "100", "--compaction-backlog-max", "1000")
    v2 = V2(server, "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    for start in range(0, 1_000, 50):
        v2.produce(*({"value": str(n), "attributes": {"n": str(n)}} for n in range(start, start + 50)))
    assert values(v2.read()["messages"]) == [str(n) for n in range(1_000)]
    assert values(v2.read(**{"from": 333, "limit": 5})["messages"]) == ["333", "334", "335", "336", "337"]
    table, _ = arrow(v2, limit=100_000)
    assert table.column("value").to_pylist() == [str(n).encode() for n in range(1_000)]
    assert table.column("attributes").to_pylist()[777] == [("n", "777")]
    server.restart()
    assert values(v2.read(**{"from": 990})["messages"]) == [str(n) for n in range(990, 1_000)]


def test_what_retention_removed_is_said_with_the_earliest_there_is(start_server: StartServer) -> None:
    server = start_server("--journal-changes", "50", "--retention-check-ms", "20", "--compaction-backlog-max", "1000")
    v2 = V2(server, "t")
    v2.call("POST", "/v2/topics", {"name": "t", "config": {"retention_bytes": 20_000}}, 201)
    first = 0
    until = time.monotonic() + 60
    while not first:
        assert time.monotonic() < until, "nothing was removed"
        v2.produce(*["x" * 1_000] * 30)
        first = v2.describe()["partitions"][0]["first_offset"]
    gone = v2.read(**{"from": 0}, expect=410)
    assert gone["error"] == "OFFSET_OUT_OF_RANGE"
    assert gone["earliest_offset"] >= first
    assert str(gone["earliest_offset"]) in gone["message"]
    assert v2.read()["messages"][0]["offset"] >= first, "without an offset, from the oldest there is"


@pytest.mark.parametrize(
    "query", [{"from": -1}, {"from": 2**64}, {"to": 2**64}, {"limit": 0}, {"since": "noon"}, {"colour": 1}]
)
def test_what_is_wrong_with_a_read_is_said(v2: V2, query: dict[str, Any]) -> None:
    assert v2.read(expect=400, **query)["error"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack", ARROW])
def test_the_highest_offset_there_can_be_is_ahead_and_no_error(v2: V2, accept: str) -> None:
    response = v2.respond("GET", f"{v2.path('messages')}?from={2**63 - 1}", headers={"Accept": accept})
    assert response.status_code == 200


@pytest.mark.parametrize("query", ["since=0001-01-01T00:00:00%2B14:00", "until=9999-12-31T23:59:59-14:00"])
def test_a_time_outside_the_calendar_is_refused(v2: V2, query: str) -> None:
    assert "years 1 to 9999" in v2.call("GET", f"{v2.path('messages')}?{query}", expect=400)["message"]


def test_more_than_the_server_gives_at_a_time_is_a_page_like_any_other(start_memory: StartMemory) -> None:
    v2 = V2(start_memory(max_batch_messages=3, max_read_bytes=1000), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    for _ in range(2):
        v2.produce("a", "b", "c")
    page = v2.read(max_bytes=1 << 40)
    assert (len(page["messages"]), page["next_offset"]) == (3, 3)
    assert len(v2.fetch()) == 3
