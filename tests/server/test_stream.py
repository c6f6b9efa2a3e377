"""Unchanged workers on a real server: what a slow one, a silent one and a batching one get from a stream."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.server_process import ServerProcess


def test_a_worker_slower_than_its_lease_times_the_queue_runs_each_message_once(
    shared: ServerProcess, topic: str
) -> None:
    """A DriftQ worker: one message at a time, 16 of which take longer than a lease."""
    for number in range(30):
        shared.produce(topic, str(number), retry_policy={"max_attempts": 2})
    runs: list[int] = []
    with shared.consume(topic, lease_ms=600) as items:
        while len(set(runs)) < 30:
            item = next(items)
            time.sleep(0.05)  # the work
            runs.append(item["offset"])
            assert shared.ack(topic, item).status_code == 204
    assert sorted(runs) == list(range(30))
    assert f"dlq.{topic}" not in shared.get("/v1/topics").json()["topics"]


def test_a_stream_that_is_not_read_is_parked_and_destroys_nothing(shared: ServerProcess, topic: str) -> None:
    for number in range(40):
        shared.produce(topic, str(number), retry_policy={"max_attempts": 3})
    with shared.consume(topic, owner="silent", lease_ms=50):
        shared.await_metric(1, "slipstream_parked_consumers", topic=topic, group="g")
        group = shared.get(f"/v2/topics/{topic}/groups/g").json()
        [reader] = group["readers"]
        assert (reader["owner"], reader["kind"]) == ("silent", "stream")
        assert reader["parked_ms"] is not None
        assert group["parked"] == 1
        with shared.consume(topic, owner="healthy") as items:
            done: set[int] = set()
            while len(done) < 40:
                item = next(items)
                assert shared.ack(topic, item, owner="healthy").status_code == 204
                done.add(item["offset"])
    assert f"dlq.{topic}" not in shared.get("/v1/topics").json()["topics"]


@pytest.mark.parametrize("form", ["query", "body"])
def test_a_stream_holds_as_many_as_it_asks_for(shared: ServerProcess, topic: str, form: str) -> None:
    for number in range(60):
        shared.produce(topic, str(number))
    request = {"topic": topic, "group": "g", "owner": "o", "lease_ms": 60_000, "prefetch": 50}
    how = {"params": request} if form == "query" else {"json": request}
    with shared.client.stream("GET", shared.base + "/v1/consume", **how) as response:  # type: ignore[arg-type]
        lines = response.iter_lines()
        for _ in range(50):
            next(lines)
        shared.await_metric(50, "inflight_messages", topic=topic, group="g", partition="0")
        [reader] = shared.get(f"/v2/topics/{topic}/groups/g").json()["readers"]
        assert (reader["window"], reader["prefetch"]) == (50, True)


def test_a_prefetch_that_cannot_be_is_refused(shared: ServerProcess, topic: str) -> None:
    query = {"topic": topic, "group": "g", "owner": "o", "prefetch": "-1"}
    response = httpx.get(shared.base + "/v1/consume", params=query)
    assert (response.status_code, response.json()["error"]) == (400, "INVALID_ARGUMENT")
    assert "prefetch must be between 0 and" in response.json()["message"]


def test_the_ack_of_a_dead_letter_says_so(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v", retry_policy={"max_attempts": 1})
    item = shared.take(topic, lease_ms=1)[0]
    shared.await_metric(1, "dlq_messages_total", topic=topic, reason="max_attempts")
    response = shared.ack(topic, item)
    assert (response.status_code, response.json()["error"]) == (409, "FAILED_PRECONDITION")
    assert "already dead-lettered" in response.json()["message"]
    many = {"topic": topic, "group": "g", "owner": "o", "messages": [{"partition": 0, "offset": 0}]}
    [failure] = shared.post("/v2/ack", json=many).json()["failed"]
    assert failure["error"] == "FAILED_PRECONDITION"
    assert "already dead-lettered" in failure["message"]


def test_a_fetch_and_a_group_set_how_messages_are_retried(shared: ServerProcess, topic: str) -> None:
    for value in ("a", "b"):
        shared.produce(topic, value)
    changed = shared.client.put(shared.base + f"/v2/topics/{topic}/groups/g/retry", json={"retry": {"max_attempts": 2}})
    assert changed.json()["retry"] == {"max_attempts": 2, "backoff_ms": 100, "max_backoff_ms": 3_600_000}
    fetch = {"topic": topic, "group": "g", "owner": "o", "max_messages": 1, "lease_ms": 60_000}
    first = shared.post("/v2/fetch", json={**fetch, "retry": {"max_attempts": 1}}).json()["messages"][0]
    shared.nack(topic, first, "boom")
    second = shared.post("/v2/fetch", json=fetch).json()["messages"][0]
    shared.nack(topic, second, "boom")
    group = shared.get(f"/v2/topics/{topic}/groups/g").json()
    assert (group["lag"], group["in_flight"], group["retrying"]) == (1, 0, 1), "only the first had its one attempt"
    assert [each["state"] for each in group["messages"]] == ["waiting"]
    unset = shared.client.put(shared.base + f"/v2/topics/{topic}/groups/g/retry", json={"retry": None})
    assert "retry" not in unset.json() or unset.json()["retry"] is None
