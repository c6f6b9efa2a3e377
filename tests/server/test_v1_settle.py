"""`/v1/ack` and `/v1/nack`: progress, retries, dead letters, deadlines, and what a crash leaves of them."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from tests.server.conftest import MemoryServer, StartMemory
from tests.server.test_v1_contract import assert_error
from tests.server_process import ServerProcess

PATHS = ["/v1/ack", "/v1/nack"]


def place(name: str, **change: Any) -> dict[str, Any]:
    return {"topic": name, "group": "g", "owner": "o", "partition": 0, "offset": 0, **change}


@pytest.mark.parametrize("way", ["body", "query"])
@pytest.mark.parametrize("path", PATHS)
def test_settling_is_204_without_a_body(shared: ServerProcess, topic: str, path: str, way: str) -> None:
    shared.produce(topic, "v")
    shared.take(topic)
    response = shared.post(path, place(topic)) if way == "body" else shared.post(path, params=place(topic))
    assert (response.status_code, response.content) == (204, b"")


def test_a_body_may_leave_out_zeros(shared: ServerProcess, topic: str) -> None:
    """Go's omitempty does."""
    shared.produce(topic, "v")
    shared.take(topic)
    assert shared.post("/v1/ack", {"topic": topic, "group": "g", "owner": "o"}).status_code == 204


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("missing", ["topic", "group", "owner", "partition", "offset"])
def test_a_query_must_name_everything(shared: ServerProcess, topic: str, path: str, missing: str) -> None:
    shared.produce(topic, "v")
    shared.take(topic)
    query = {name: value for name, value in place(topic).items() if name != missing}
    assert_error(shared.post(path, params=query), 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "change",
    [
        {"partition": 1},
        {"partition": -1},
        {"offset": 1},
        {"offset": -1},
        {"offset": 10**30},
        {"group": "stranger"},
        {"topic": "nowhere"},
    ],
)
def test_what_is_not_there_cannot_be_settled(
    shared: ServerProcess, topic: str, path: str, change: dict[str, Any]
) -> None:
    shared.produce(topic, "v")
    shared.take(topic)
    assert_error(shared.post(path, place(topic, **change)), 400, "INVALID_ARGUMENT")
    assert_error(shared.post(path, params=place(topic, **change)), 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("path", PATHS)
def test_what_was_never_delivered_cannot_be_settled(shared: ServerProcess, topic: str, path: str) -> None:
    """Ruling 3."""
    with shared.consume(topic):
        pass
    shared.produce(topic, "v")
    message = assert_error(shared.post(path, place(topic)), 400, "INVALID_ARGUMENT")
    assert "never delivered" in message
    assert shared.take(topic)[0]["offset"] == 0


@pytest.mark.parametrize("path", PATHS)
def test_an_offset_of_another_partition_cannot_be_settled(shared: ServerProcess, topic: str, path: str) -> None:
    """Rulings 1 and 3: offset 0 lies in partition 1, and both partitions were delivered."""
    name = topic + ".2"
    shared.create(name, 2)
    shared.produce(name, "v", partition_override=1)
    shared.produce(name, "v", partition_override=0)
    shared.take(name, 2)
    assert_error(shared.post(path, place(name, partition=0, offset=0)), 400, "INVALID_ARGUMENT")
    assert_error(shared.post(path, place(name, partition=1, offset=1)), 400, "INVALID_ARGUMENT")
    assert shared.post(path, place(name, partition=1, offset=0)).status_code == 204


@pytest.mark.parametrize("path", PATHS)
def test_only_the_owner_settles(shared: ServerProcess, topic: str, path: str) -> None:
    """Ruling 3."""
    shared.produce(topic, "v")
    shared.take(topic, owner="a")
    response = shared.post(path, place(topic, owner="b"))
    assert assert_error(response, 409, "FAILED_PRECONDITION") == "not owner"
    assert shared.post(path, place(topic, owner="a")).status_code == 204


def test_a_second_ack_is_204(shared: ServerProcess, topic: str) -> None:
    """Ruling 3: by anyone, once it is done."""
    shared.produce(topic, "v")
    item = shared.take(topic)[0]
    for owner in ("o", "o", "somebody"):
        assert shared.ack(topic, item, owner=owner).status_code == 204
    assert shared.nack(topic, item).status_code == 204
    shared.produce(topic, "next")
    assert shared.take(topic)[0]["value"] == "next"


def test_who_lost_the_lease_to_another_is_not_the_owner(shared: ServerProcess, topic: str) -> None:
    """Ruling 3."""
    shared.produce(topic, "v")
    item = shared.take(topic, owner="a", lease_ms=1)[0]
    shared.take(topic, owner="b")
    assert shared.ack(topic, item, owner="a").status_code == 409
    assert shared.ack(topic, item, owner="b").status_code == 204


def test_an_expired_lease_nobody_took_still_belongs_to_its_owner(shared: ServerProcess, topic: str) -> None:
    """Ruling 3. The second message shows that the lease of the first has run out: the same tick ended both."""
    shared.produce(topic, "v", retry_policy={"max_attempts": 9, "backoff_ms": 60_000})
    shared.produce(topic, "w")
    first, _ = shared.take(topic, 2, owner="a", lease_ms=1)
    assert shared.take(topic, owner="b")[0]["value"] == "w"
    assert shared.ack(topic, first, owner="b").status_code == 409
    assert shared.ack(topic, first, owner="a").status_code == 204


def test_acks_attempts_errors_and_dead_letters_survive_a_crash(durable: ServerProcess) -> None:
    """Rulings 2, 5 and 6."""
    for name in ("in-order", "out-of-order", "failed", "dead"):
        durable.create(name)
    for number in range(10):
        durable.produce("in-order", str(number))
    for item in durable.take("in-order", 10):
        durable.ack("in-order", item)
    for value in ("zero", "one"):
        durable.produce("out-of-order", value)
    _, one = durable.take("out-of-order", 2, lease_ms=1)
    assert durable.ack("out-of-order", one).status_code == 204
    durable.produce("failed", "v", retry_policy={"max_attempts": 9})
    durable.nack("failed", durable.take("failed")[0], "boom")
    durable.produce("dead", "v", retry_policy={"max_attempts": 1})
    durable.nack("dead", durable.take("dead")[0], "boom")

    durable.restart()

    durable.produce("in-order", "new")
    assert durable.take("in-order")[0]["value"] == "new"

    durable.produce("out-of-order", "two")
    with durable.consume("out-of-order", lease_ms=60_000) as items:
        assert sorted(next(items)["offset"] for _ in range(2)) == [0, 2], "0 comes again, 1 never does"
    assert durable.ack("out-of-order", one).status_code == 204, "the ack of 1 is remembered"

    item = durable.take("failed")[0]
    assert (item["attempts"], item["last_error"]) == (2, "boom")

    durable.produce("dead", "next")
    assert durable.take("dead")[0]["value"] == "next", "the letter and the group's advance are one"
    durable.produce("dead", "v2", retry_policy={"max_attempts": 1})
    durable.nack("dead", durable.take("dead")[0], "boom")
    assert [item["value"] for item in durable.take("dlq.dead", 2)] == ["v", "v2"], "it is not made twice"


# Retries


def test_a_nack_without_reason_records_nack(shared: ServerProcess, topic: str) -> None:
    """Ruling 5, and what DriftQ says."""
    shared.produce(topic, "v", retry_policy={"max_attempts": 9})
    with shared.consume(topic, lease_ms=60_000) as items:
        first = next(items)
        shared.nack(topic, first)
        second = next(items)
        assert (second["attempts"], second["last_error"]) == (2, "nack")
        shared.nack(topic, second, "boom")
        third = next(items)
        assert (third["attempts"], third["last_error"]) == (3, "nack | boom")


def test_the_reason_may_come_in_the_query(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v")
    shared.take(topic)
    shared.post("/v1/nack", params=place(topic, reason="no disk"))
    assert shared.take(topic)[0]["last_error"] == "no disk"


def test_a_timeout_does_not_hide_an_error(memory: MemoryServer) -> None:
    """Ruling 5: "ack_timeout" only where there is no other."""
    memory.create("t")
    memory.produce("t", "v", retry_policy={"max_attempts": 9})
    with memory.consume("t", owner="a", lease_ms=1_000) as items:
        memory.nack("t", next(items), "boom", owner="a")
        next(items)
        with memory.consume("t", owner="b") as others:
            memory.advance(1_000)
            item = next(others)
    assert (item["attempts"], item["last_error"]) == (3, "boom")


def test_a_retry_waits_for_its_backoff(shared: ServerProcess, topic: str) -> None:
    """Ruling 5: what failed with a long backoff lets the next one pass, and is waited for and not ready."""
    shared.produce(topic, "failing", retry_policy={"max_attempts": 9, "backoff_ms": 60_000})
    with shared.consume(topic, lease_ms=60_000) as items:
        shared.nack(topic, next(items))
        for number in range(3):
            shared.produce(topic, str(number))
            assert next(items)["value"] == str(number)


def test_a_backoff_is_no_longer_than_its_maximum(shared: ServerProcess, topic: str) -> None:
    """Ruling 5: ten doublings of 60 s would be past the client's patience of 10 s."""
    shared.produce(topic, "v", retry_policy={"max_attempts": 20, "backoff_ms": 60_000, "max_backoff_ms": 1})
    with shared.consume(topic, lease_ms=60_000) as items:
        for attempt in range(1, 10):
            item = next(items)
            assert item["attempts"] == attempt
            shared.nack(topic, item)


def test_a_second_nack_changes_nothing(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v")
    item = shared.take(topic)[0]
    for reason in ("first", "second"):
        assert shared.nack(topic, item, reason).status_code == 204
    assert shared.take(topic)[0]["last_error"] == "first"


# Dead letters


def test_the_last_failure_makes_a_dead_letter(shared: ServerProcess, topic: str) -> None:
    """Ruling 6."""
    name = topic + ".3"
    shared.create(name, 3)
    policy = {"max_attempts": 2}
    shared.produce(name, "v", key="user:1", tenant_id="acme", idempotency_key="k", retry_policy=policy)
    with shared.consume(name, lease_ms=60_000) as items:
        for reason in ("one", "two"):
            shared.nack(name, next(items), reason)
    letter = shared.take(f"dlq.{name}")[0]
    assert (letter["partition"], letter["key"], letter["value"]) == (1, "user:1", "v")
    dlq = letter["envelope"]["dlq"]
    assert dlq.pop("routed_at_ms") > 1_700_000_000_000
    assert dlq == {
        "original_topic": name,
        "original_partition": 1,
        "original_offset": 0,
        "group": "g",
        "attempts": 2,
        "last_error": "one | two",
        "reason": "max_attempts",
        "tenant_id": "acme",
        "idempotency_key": "k",
    }
    assert shared.post("/v1/topics", {"name": f"dlq.{name}"}).json()["partitions"] == 3
    shared.produce(name, "next")
    assert shared.take(name)[0]["value"] == "next", "the group has moved on"


def test_a_dead_letter_does_not_die_again(shared: ServerProcess, topic: str) -> None:
    """Ruling 6: it still carries the policy that killed it."""
    shared.produce(topic, "v", retry_policy={"max_attempts": 1})
    shared.nack(topic, shared.take(topic)[0], "boom")
    with shared.consume(f"dlq.{topic}", lease_ms=60_000) as items:
        for attempt in range(1, 4):
            item = next(items)
            assert item["attempts"] == attempt
            shared.nack(f"dlq.{topic}", item)
    assert f"dlq.dlq.{topic}" not in shared.topics()


def test_a_timeout_can_be_the_last_failure(shared: ServerProcess, topic: str) -> None:
    """Rulings 5 and 6."""
    shared.produce(topic, "v", retry_policy={"max_attempts": 1})
    shared.create(f"dlq.{topic}")
    with shared.consume(f"dlq.{topic}") as letters:
        shared.take(topic, lease_ms=1)
        assert next(letters)["envelope"]["dlq"]["last_error"] == "ack_timeout"


# Deadlines


@pytest.mark.parametrize("connected", [False, True])
def test_a_deadline_that_passes_makes_a_dead_letter(memory: MemoryServer, connected: bool) -> None:
    """Ruling 7: whether or not anyone of the group is there to see it pass."""
    memory.create("t")
    memory.create("dlq.t")
    memory.produce("t", "blocker", retry_policy={"max_attempts": 9, "backoff_ms": 60_000})
    memory.nack("t", memory.take("t")[0])  # the group exists now
    with memory.consume("dlq.t") as letters:
        if connected:
            with memory.consume("t", lease_ms=60_000) as items:
                policy = {"max_attempts": 9, "backoff_ms": 60_000}
                memory.produce("t", "late", deadline=memory.soon(2_500), retry_policy=policy)
                memory.nack("t", next(items), "boom")
                memory.advance(2_500)
                letter = next(letters)
        else:
            memory.produce("t", "late", deadline=memory.soon(2_500))
            memory.advance(2_500)
            letter = next(letters)
    assert letter["value"] == "late"
    assert letter["envelope"]["dlq"]["reason"] == "deadline_exceeded"
    assert letter["envelope"]["dlq"]["last_error"] == ("boom" if connected else "deadline_exceeded")
    memory.produce("t", "next")
    assert memory.take("t")[0]["value"] == "next"


def test_a_deadline_that_passes_during_a_restart_makes_a_dead_letter(durable: ServerProcess, kept: str) -> None:
    """Ruling 7."""
    durable.create(f"dlq.{kept}")
    with durable.consume(kept):
        pass
    began = time.monotonic()
    deadline = (dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=2_500)).isoformat()
    assert durable.produce(kept, "late", deadline=deadline).status_code == 200
    durable.crash()
    time.sleep(max(0.0, began + 2.6 - time.monotonic()))  # no server is there to see it pass
    durable.start()
    assert durable.take(f"dlq.{kept}")[0]["value"] == "late"


def test_who_has_it_on_lease_may_finish_after_the_deadline(memory: MemoryServer) -> None:
    """Ruling 7 is about what waits. The second message's dead letter shows that the deadline has passed."""
    memory.create("t")
    memory.create("dlq.t")
    at = memory.soon(2_500)
    memory.produce("t", "held", deadline=at)
    item = memory.take("t")[0]
    with memory.consume("dlq.t") as letters:
        memory.produce("t", "late", deadline=at)
        memory.advance(2_500)
        assert next(letters)["value"] == "late"
    assert memory.ack("t", item).status_code == 204
    assert memory.metric("dlq_messages_total", topic="t", reason="deadline_exceeded") == 1


def test_an_expired_message_does_not_count_as_waiting(start_memory: StartMemory) -> None:
    """Rulings 7 and 10: what died makes room."""
    server = start_memory(max_waiting_messages=1)
    server.create("t")
    server.create("dlq.t")
    with server.consume("t"):
        pass
    server.produce("t", "late", deadline=server.soon(2_500))
    assert server.produce("t", "v").status_code == 429
    server.advance(2_500)
    server.take("dlq.t")
    assert server.produce("t", "v").status_code == 200
