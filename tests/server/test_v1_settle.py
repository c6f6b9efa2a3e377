"""`/v1/ack` and `/v1/nack`: progress, retries, dead letters, deadlines, and what a crash leaves of them."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.server.test_v1_contract import assert_error
from tests.server_process import ServerProcess

PATHS = ["/v1/ack", "/v1/nack"]


def place(name: str, **change: Any) -> dict[str, Any]:
    return {"topic": name, "group": "g", "owner": "o", "partition": 0, "offset": 0, **change}


def soon(ms: int) -> str:
    return (dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=ms)).isoformat()


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


def test_an_ack_out_of_order_loses_nothing_in_a_crash(server: ServerProcess) -> None:
    """Ruling 2: 0 comes again, 1 never does."""
    server.create("t")
    for value in ("zero", "one"):
        server.produce("t", value)
    _, one = server.take("t", 2, lease_ms=1)
    assert server.ack("t", one).status_code == 204
    server.restart()
    server.produce("t", "two")
    with server.consume("t", lease_ms=60_000) as items:
        assert sorted(next(items)["offset"] for _ in range(2)) == [0, 2]
    assert server.ack("t", one).status_code == 204, "the ack of 1 is remembered"


def test_acks_survive_a_crash(server: ServerProcess) -> None:
    server.create("t")
    for number in range(10):
        server.produce("t", str(number))
    for item in server.take("t", 10):
        server.ack("t", item)
    server.restart()
    server.produce("t", "new")
    assert server.take("t")[0]["value"] == "new"


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


def test_a_timeout_does_not_hide_an_error(shared: ServerProcess, topic: str) -> None:
    """Ruling 5: "ack_timeout" only where there is no other."""
    shared.produce(topic, "v", retry_policy={"max_attempts": 9})
    shared.nack(topic, shared.take(topic)[0], "boom")
    shared.take(topic, lease_ms=1)
    item = shared.take(topic)[0]
    assert (item["attempts"], item["last_error"]) == (3, "boom")


def test_attempts_and_errors_survive_a_crash(server: ServerProcess) -> None:
    """Ruling 5."""
    server.create("t")
    server.produce("t", "v", retry_policy={"max_attempts": 9})
    server.nack("t", server.take("t")[0], "boom")
    server.restart()
    item = server.take("t")[0]
    assert (item["attempts"], item["last_error"]) == (2, "boom")


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


def test_a_dead_letter_survives_a_crash_and_is_not_made_twice(server: ServerProcess) -> None:
    """Ruling 6: the letter and the group's advance are one."""
    server.create("t")
    server.produce("t", "v", retry_policy={"max_attempts": 1})
    server.nack("t", server.take("t")[0], "boom")
    server.restart()
    server.produce("t", "next")
    assert server.take("t")[0]["value"] == "next"
    server.produce("t", "v2", retry_policy={"max_attempts": 1})
    server.nack("t", server.take("t")[0], "boom")
    assert [item["value"] for item in server.take("dlq.t", 2)] == ["v", "v2"]


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
def test_a_deadline_that_passes_makes_a_dead_letter(shared: ServerProcess, topic: str, connected: bool) -> None:
    """Ruling 7: whether or not anyone of the group is there to see it pass."""
    shared.create(f"dlq.{topic}")
    shared.produce(topic, "blocker", retry_policy={"max_attempts": 9, "backoff_ms": 60_000})
    shared.nack(topic, shared.take(topic)[0])  # the group exists now
    with shared.consume(f"dlq.{topic}") as letters:
        if connected:
            with shared.consume(topic, lease_ms=60_000) as items:
                shared.produce(
                    topic, "late", deadline=soon(2_500), retry_policy={"max_attempts": 9, "backoff_ms": 60_000}
                )
                shared.nack(topic, next(items), "boom")
                letter = next(letters)
        else:
            shared.produce(topic, "late", deadline=soon(2_500))
            letter = next(letters)
    assert letter["value"] == "late"
    assert letter["envelope"]["dlq"]["reason"] == "deadline_exceeded"
    assert letter["envelope"]["dlq"]["last_error"] == ("boom" if connected else "deadline_exceeded")
    shared.produce(topic, "next")
    assert shared.take(topic)[0]["value"] == "next"


def test_a_deadline_that_passes_during_a_restart_makes_a_dead_letter(server: ServerProcess) -> None:
    """Ruling 7."""
    server.create("t")
    server.create("dlq.t")
    with server.consume("t"):
        pass
    began = time.monotonic()
    assert server.produce("t", "late", deadline=soon(2_500)).status_code == 200
    server.crash()
    time.sleep(max(0.0, began + 2.6 - time.monotonic()))  # nobody is there to see it pass
    server.start()
    assert server.take("dlq.t")[0]["value"] == "late"


def test_who_has_it_on_lease_may_finish_after_the_deadline(shared: ServerProcess, topic: str) -> None:
    """Ruling 7 is about what waits. The second message's dead letter shows that the deadline has passed."""
    shared.create(f"dlq.{topic}")
    at = soon(2_500)
    shared.produce(topic, "held", deadline=at)
    item = shared.take(topic)[0]
    with shared.consume(f"dlq.{topic}") as letters:
        shared.produce(topic, "late", deadline=at)
        assert next(letters)["value"] == "late"
    assert shared.ack(topic, item).status_code == 204
    assert shared.metric("dlq_messages_total", topic=topic, reason="deadline_exceeded") == 1


def test_an_expired_message_does_not_count_as_waiting(start_server: StartServer) -> None:
    """Rulings 7 and 10: what died makes room."""
    server = start_server("--max-waiting-messages", "1")
    server.create("t")
    server.create("dlq.t")
    with server.consume("t"):
        pass
    server.produce("t", "late", deadline=soon(2_500))
    assert server.produce("t", "v").status_code == 429
    server.take("dlq.t")
    assert server.produce("t", "v").status_code == 200
