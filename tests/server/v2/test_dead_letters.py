"""Dead letters over `/v2`: found by filters, shown, sent back once, at a rate, and cancelled."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from slipstream.api import DeadLetterList, DeadLetterQuery
from slipstream.api.codec import JSON_CODEC
from slipstream.broker import RetryPolicy
from slipstream.limits import Limits
from slipstream.server.v2.dead_letters import list_dead_letters
from slipstream.server.v2.endpoint import Call
from tests.conftest import StartServer
from tests.server.conftest import MemoryServer, StartMemory
from tests.server.v2.wire import MSGPACK, V2, values
from tests.store.node import Node


def bury(v2: V2, *messages: Any, group: str = "g", reason: str = "boom") -> None:
    v2.produce(*messages)
    v2.nack(*(m | {"retryable": False, "reason": reason} for m in v2.fetch(group=group)), group=group)


def letters(v2: V2, **query: Any) -> Any:
    return v2.call("GET", "/v2/dead-letters", params={"topic": v2.topic, **query})["dead_letters"]


def redrive(v2: V2, **request: Any) -> Any:
    """Started, and waited for."""
    status = v2.call("POST", "/v2/redrives", {"topic": v2.topic, **request}, 202)
    while status["state"] == "running":
        status = v2.call("GET", f"/v2/redrives/{status['id']}")
    return status


def test_they_are_found_by_topic_group_error_and_time(v2: V2) -> None:
    bury(v2, "a", reason="Connection Timeout")
    bury(v2, "b", group="h", reason="no such user")  # it gets the first one, too
    assert values(letters(v2)) == ["a", "a", "b"]
    assert values(letters(v2, group="h")) == ["a", "b"]
    assert values(letters(v2, error="timeout")) == ["a"], "in any case"
    assert values(letters(v2, error="rejected")) == ["a", "a", "b"], "the reason counts"
    now = dt.datetime.now(dt.UTC)
    assert letters(v2, since=(now + dt.timedelta(hours=1)).isoformat()) == []
    assert len(letters(v2, since=(now - dt.timedelta(hours=1)).isoformat())) == 3
    assert letters(v2, until=(now - dt.timedelta(hours=1)).isoformat()) == []


def test_they_come_in_pages(v2: V2) -> None:
    bury(v2, *map(str, range(7)))
    seen, after = [], None
    while True:
        query = {"topic": v2.topic, "limit": 3} | ({"after": after} if after else {})
        page = v2.call("GET", "/v2/dead-letters", params=query)
        seen += values(page["dead_letters"])
        after = page["next"]
        if after is None:
            break
    assert seen == [str(n) for n in range(7)]


def test_one_is_shown_whole_by_its_place(v2: V2) -> None:
    bury(v2, {"value": "a", "key": "k", "attributes": {"n": "1"}, "envelope": {"tenant_id": "t", "run_id": "r"}})
    letter = v2.call("GET", f"/v2/dead-letters/{v2.topic}/0/0")
    died = letter["envelope"]["dlq"]
    assert (letter["topic"], letter["key"], letter["attributes"]) == ("dlq." + v2.topic, "k", {"n": "1"})
    assert (died["original_topic"], died["original_offset"], died["group"], died["tenant_id"]) == (
        v2.topic,
        0,
        "g",
        "t",
    )
    assert letter["redriven"] is False
    v2.call("GET", f"/v2/dead-letters/{v2.topic}/0/1", expect=404)
    v2.call("GET", f"/v2/dead-letters/{v2.topic}/5/0", expect=404)


def test_a_topic_without_dead_letters_has_none_and_no_topic_is_404(v2: V2) -> None:
    assert letters(v2) == []
    assert redrive(v2)["redriven"] == 0
    v2.call("GET", "/v2/dead-letters", params={"topic": "nowhere"}, expect=404)
    v2.call("POST", "/v2/redrives", {"topic": "nowhere"}, 404)


def test_a_redrive_keeps_key_envelope_and_attributes(v2: V2) -> None:
    envelope = {"run_id": "r", "idempotency_key": "once", "labels": {"a": "b"}}
    bury(v2, {"value": "a", "key": "k", "attributes": {"n": "1"}, "envelope": envelope})
    assert redrive(v2)["redriven"] == 1
    (again,) = v2.fetch()
    assert (again["value"], again["key"], again["attributes"], again["envelope"]) == ("a", "k", {"n": "1"}, envelope)
    assert (again["attempts"], again["redriven_from"]) == (1, f"dlq.{v2.topic}/0/0")


def test_redriving_twice_enqueues_once_even_after_a_crash(start_server: StartServer) -> None:
    server = start_server()
    v2 = V2(server, "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    bury(v2, "a", "b")
    assert redrive(v2, error="boom", limit=1)["redriven"] == 1
    server.restart()
    status = redrive(v2)
    assert (status["redriven"], status["skipped"]) == (1, 1)
    assert redrive(v2)["redriven"] == 0
    assert values(v2.fetch()) == ["a", "b"]
    assert [letter["redriven"] for letter in letters(v2)] == [True, True]
    assert letters(v2, redriven="false") == []


def test_a_redrive_is_for_the_group_that_failed_unless_it_is_for_all(v2: V2) -> None:
    bury(v2, "a", "b", group="bad")
    for group in ("good", "other"):
        v2.ack(*v2.fetch(group=group), group=group)
    assert redrive(v2, messages=[{"partition": 0, "offset": 0}])["redriven"] == 1
    assert values(v2.fetch(group="good")) == []
    assert values(v2.fetch(group="new")) == ["a", "b"], "a group that comes later gets the originals, each once"
    assert values(v2.fetch(group="bad")) == ["a"]
    (log,) = v2.call("GET", f"/v2/topics/{v2.topic}/messages", params={"from": "2"})["messages"]
    assert log["only_group"] == "bad"
    info = v2.call("GET", f"/v2/topics/{v2.topic}/groups/good")
    assert (info["lag"], info["partitions"][0]["watermark"]) == (0, 2)
    status = redrive(v2, all_groups=True)
    assert (status["redriven"], status["skipped"], status["all_groups"]) == (1, 1, True)
    for group in ("bad", "good", "other"):
        assert values(v2.fetch(group=group)) == ["b"]


def test_what_failed_for_a_group_that_is_gone_is_counted_and_stays(v2: V2) -> None:
    bury(v2, "a", group="bad")
    v2.call("DELETE", f"/v2/topics/{v2.topic}/groups/bad", expect=204)
    for dry_run in (True, False):
        status = redrive(v2, dry_run=dry_run)
        assert (status["matched"], status["redriven"], status["without_group"]) == (1, 0, 1)
    assert redrive(v2, all_groups=True)["redriven"] == 1


def test_one_has_the_history_of_its_attempts(v2: V2) -> None:
    v2.produce({"value": "a", "envelope": {"retry_policy": {"max_attempts": 2}}})
    for number in (1, 2):
        (message,) = v2.fetch(owner=f"w{number}", wait_ms=10_000)
        failed = message | {"reason": f"error {number}", "traceback": f"line {number}"}
        v2.nack(failed, owner=f"w{number}")
    letter = v2.call("GET", f"/v2/dead-letters/{v2.topic}/0/0")
    first, second = letter["history"]
    assert (first["number"], first["worker"], first["error"], first["traceback"]) == (1, "w1", "error 1", "line 1")
    assert second["worker"] == "w2"
    assert first["duration_ms"] == first["ended_ms"] - first["started_ms"] >= 0
    assert second["started_ms"] >= first["ended_ms"]
    (listed,) = letters(v2)
    assert "history" not in listed, "a list would be far too long"
    (line,) = v2.server.take(f"dlq.{v2.topic}", group="look")
    assert set(line["envelope"]["dlq"]) == set(letter["envelope"]["dlq"]), "/v1 has what DriftQ has"
    assert b"line 1" not in msgspec.json.encode(line)


def test_one_that_dies_again_can_be_redriven_again(v2: V2) -> None:
    bury(v2, "a")
    redrive(v2)
    v2.nack(*(m | {"retryable": False, "reason": "again"} for m in v2.fetch()))
    assert redrive(v2)["redriven"] == 1
    assert values(v2.fetch()) == ["a"]


def test_a_selection_goes_elsewhere(v2: V2) -> None:
    v2.call("POST", "/v2/topics", {"name": v2.topic + ".retry"}, 201)
    bury(v2, "a", "b", "c")
    assert redrive(v2, messages=[{"partition": 0, "offset": 1}], to=v2.topic + ".retry")["redriven"] == 1
    assert values(V2(v2.server, v2.topic + ".retry").fetch()) == ["b"]
    assert v2.fetch() == []
    v2.call("POST", "/v2/redrives", {"topic": v2.topic, "to": "nowhere"}, 404)
    v2.call("POST", "/v2/redrives", {"topic": v2.topic, "to": "dlq." + v2.topic}, 400)


def test_a_dry_run_only_counts(v2: V2) -> None:
    bury(v2, "a", "b")
    assert redrive(v2, dry_run=True)["redriven"] == 2
    assert v2.fetch() == []


def test_a_rate_is_kept_and_a_cancelled_redrive_stops(v2: V2) -> None:
    bury(v2, *map(str, range(50)))
    status = v2.call("POST", "/v2/redrives", {"topic": v2.topic, "rate": 1}, 202)
    path = f"/v2/redrives/{status['id']}"
    while v2.call("GET", path)["redriven"] < 1:
        time.sleep(0.01)
    cancelled = v2.call("DELETE", path)
    assert cancelled["state"] == "cancelled"
    assert 1 <= cancelled["redriven"] < 50, "at one a second the rest was still to come"
    assert v2.call("GET", path)["redriven"] == cancelled["redriven"]
    assert redrive(v2)["redriven"] == 50 - cancelled["redriven"], "a repeat does the rest"
    assert status["id"] in [each["id"] for each in v2.call("GET", "/v2/redrives")["redrives"]]
    v2.call("GET", "/v2/redrives/nothing", expect=404)


def test_an_infinite_rate_is_refused(v2: V2) -> None:
    """Only MessagePack can say it. The redrive failed on its first message, with a traceback in the log."""
    bury(v2, "a")
    body = msgspec.msgpack.encode({"topic": v2.topic, "rate": float("inf")})
    response = v2.respond("POST", "/v2/redrives", body, headers={"Content-Type": MSGPACK})
    assert response.status_code == 400
    assert redrive(v2, rate=1e9)["redriven"] == 1


def test_a_deadline_that_has_passed_does_not_kill_it_again(memory: MemoryServer, in_memory: V2) -> None:
    v2 = in_memory
    deadline = (memory.broker.now + dt.timedelta(milliseconds=2_000)).isoformat()
    v2.produce({"value": "a", "envelope": {"deadline": deadline, "run_id": "r"}})
    v2.call("POST", v2.path("groups", "g", "seek"), {"to": "earliest"})
    assert letters(v2) == []
    memory.advance(2_000)
    assert values(letters(v2)) == ["a"]
    redrive(v2)
    (again,) = v2.fetch()
    assert again["envelope"] == {"run_id": "r"}


@pytest.mark.parametrize("place", ["0/" + "9" * 5_000, "9" * 5_000 + "/0"])
def test_a_number_that_python_will_not_read_is_nobodys_place(v2: V2, place: str) -> None:
    assert v2.call("GET", f"/v2/dead-letters/{v2.topic}/{place}", expect=404)["error"] == "NOT_FOUND"


def test_a_page_ends_when_it_is_large_enough(start_memory: StartMemory) -> None:
    """Ten thousand of a megabyte each would be in memory at once."""
    server = start_memory(max_read_bytes=1000)
    server.create("t")
    v2 = V2(server, "t")
    v2.produce(*("x" * 400 for _ in range(7)))
    v2.nack(*(m | {"retryable": False} for m in v2.fetch(max_bytes=1000)))
    while rest := v2.fetch(max_bytes=1000):
        v2.nack(*(m | {"retryable": False} for m in rest))
    sizes, after = [], None
    while True:
        page = v2.call("GET", "/v2/dead-letters", params={"topic": "t"} | ({"after": after} if after else {}))
        sizes.append(len(page["dead_letters"]))
        after = page["next"]
        if after is None:
            break
    assert sizes == [3, 3, 1]


def test_so_many_redrives_may_be_under_way(start_memory: StartMemory) -> None:
    v2 = V2(start_memory(max_redrives=1), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    bury(v2, "a", "b")
    running = v2.call("POST", "/v2/redrives", {"topic": "t", "rate": 0.01}, 202)
    assert "max_redrives" in v2.call("POST", "/v2/redrives", {"topic": "t"}, 429)["message"]
    v2.call("DELETE", f"/v2/redrives/{running['id']}")
    assert redrive(v2)["state"] == "done"


def test_a_topic_that_is_deleted_while_they_are_listed_has_none(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        for topic in ("a", "b"):
            node.create(topic, retry=RetryPolicy(max_attempts=1))
            node.produce(topic, b"v")
            (taken,) = node.take(topic, 1)
            place = (taken.partition, taken.record.offset)
            node.perform(lambda broker, now_ms, at=(topic, "g", *place): broker.nack(now_ms, *at, "o", "bad"))  # type: ignore[misc]
        call = Call(node.engine, Limits(), Request({"type": "http"}), None, DeadLetterQuery(), JSON_CODEC)

        async def list_while_it_is_deleted() -> DeadLetterList[str]:
            listing = asyncio.create_task(list_dead_letters(call))
            await asyncio.sleep(0)  # it reads the first topic now, in another thread
            await node.engine.delete_topic("dlq.b")
            return await listing

        listed = node.loop.run_until_complete(list_while_it_is_deleted())
        assert [letter.topic for letter in listed.dead_letters] == ["dlq.a"]
