"""Where logs begin and end, at once and when something changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import StartServer
from tests.server.conftest import MemoryServer
from tests.server.v2.wire import V2
from tests.server_process import ServerProcess


def offsets(v2: V2, expect: int = 200, **request: Any) -> Any:
    return v2.call("POST", "/v2/offsets", request, expect)


def ends(answer: Any) -> dict[str, list[int]]:
    return {topic["name"]: [each["end_offset"] for each in topic["partitions"]] for topic in answer["topics"]}


def test_the_ends_of_what_is_named(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"partitions": 3})
    v2.produce({"value": "a", "key": "user:1"}, {"value": "b", "key": "user:2"})
    answer = offsets(v2, topics=[v2.topic, "nowhere", "nowhere"])
    (topic,) = answer["topics"]
    assert answer["missing"] == ["nowhere"]
    assert (topic["name"], topic["incarnation"]) == (v2.topic, v2.describe()["id"])
    assert topic["partitions"] == [
        {"partition": 0, "first_offset": 0, "end_offset": 2, "messages": 1, "since_offset": None},
        {"partition": 1, "first_offset": 0, "end_offset": 1, "messages": 1, "since_offset": None},
        {"partition": 2, "first_offset": 0, "end_offset": 0, "messages": 0, "since_offset": None},
    ]


def test_without_names_it_is_all_topics(v2: V2) -> None:
    v2.produce("a")
    named = [topic["name"] for topic in offsets(v2)["topics"]]
    assert v2.topic in named
    assert named == sorted(named)
    assert offsets(v2, topics=[]) == {"topics": [], "missing": []}


def test_the_first_offset_since_a_time(v2: V2) -> None:
    v2.produce("a", "b")
    stored = dt.datetime.fromtimestamp(v2.read()["messages"][0]["timestamp_ms"] / 1000, dt.UTC)
    hour = dt.timedelta(hours=1)

    def since(time: dt.datetime) -> int:
        (topic,) = offsets(v2, topics=[v2.topic], since=time.isoformat())["topics"]
        offset: int = topic["partitions"][0]["since_offset"]
        return offset

    assert since(stored - hour) == 0
    assert since(stored) == 0
    assert since(stored + hour) == 2


def test_the_first_offset_since_a_time_in_a_segment(start_server: StartServer) -> None:
    v2 = V2(start_server("--journal-changes", "100", "--compaction-backlog-max", "1000"), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    for start in range(0, 1_000, 50):
        v2.produce(*map(str, range(start, start + 50)))
    messages = v2.read()["messages"]
    for wanted in (messages[0], messages[417], messages[999]):
        time_ms = wanted["timestamp_ms"]
        expected = next(message["offset"] for message in messages if message["timestamp_ms"] >= time_ms)
        time = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=time_ms)
        (topic,) = offsets(v2, topics=["t"], since=time.isoformat())["topics"]
        assert topic["partitions"][0]["since_offset"] == expected


def produce(v2: V2) -> None:
    v2.produce("a")


def grow(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"partitions": 2})


def delete(v2: V2) -> None:
    v2.call("DELETE", v2.path(), expect=204)


@pytest.mark.parametrize("named", [True, False], ids=["named", "all"])
@pytest.mark.parametrize("change", [produce, grow, delete])
def test_an_answer_that_waits_comes_with_the_change(in_memory: V2, named: bool, change: Callable[[V2], None]) -> None:
    v2 = in_memory
    request: dict[str, Any] = {"topics": ["t"]} if named else {}
    before = ends(offsets(v2, **request))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(offsets, V2(v2.server, "t"), **request, known=before, wait_ms=9_000)
        change(v2)
        after = ends(waiting.result())
    assert after != before
    assert after == ends(offsets(v2, **request))


@pytest.mark.parametrize("topics", [["late"], None], ids=["named", "all"])
def test_an_answer_that_waits_comes_with_a_new_topic(memory: MemoryServer, topics: list[str] | None) -> None:
    v2 = V2(memory, "late")
    request: dict[str, Any] = {"topics": topics} if topics else {}
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(offsets, V2(memory, "late"), **request, known={}, wait_ms=9_000)
        v2.call("POST", "/v2/topics", {"name": "late"}, 201)
        assert ends(waiting.result()) == {"late": [0]}


def test_what_is_another_already_is_answered_at_once(v2: V2) -> None:
    v2.produce("a")
    for known in ({}, {v2.topic: [0]}, {v2.topic: [1, 0]}, {v2.topic: [7]}):
        assert ends(offsets(v2, topics=[v2.topic], known=known, wait_ms=60_000)) == {v2.topic: [1]}


def test_the_time_is_up_when_nothing_has_changed_there(v2: V2) -> None:
    answer = offsets(v2, topics=[v2.topic, "nowhere"], known={v2.topic: [0], "elsewhere": [9]}, wait_ms=50)
    assert (ends(answer), answer["missing"]) == ({v2.topic: [0]}, ["nowhere"])


def test_a_wait_ends_with_the_server(server: ServerProcess) -> None:
    v2 = V2(server, "t")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(offsets, V2(server, "t"), known={}, wait_ms=60_000)
        offsets(v2)
        assert server.stop() == 0, "it did not wait for the one that waits"
        # One that came too late for an answer was refused; none is left without either.
        assert isinstance(waiting.exception(30), httpx.TransportError | None)


@pytest.mark.parametrize(
    "request_",
    [{"since": "noon"}, {"since": "2030-01-01T00:00:00"}, {"known": {"t": [-1]}}, {"wait_ms": -1}, {"colour": 1}],
)
def test_what_is_wrong_with_the_request_is_said(v2: V2, request_: dict[str, Any]) -> None:
    assert offsets(v2, 400, **request_)["error"] == "INVALID_ARGUMENT"


def test_nobody_waits_longer_than_the_server_allows(v2: V2) -> None:
    assert "max_wait_ms" in offsets(v2, 400, wait_ms=60_001)["message"]
