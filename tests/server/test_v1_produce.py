"""`/v1/produce`: body and query, envelope, placement, idempotency, backpressure."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.server.conftest import StartMemory
from tests.server.test_v1_contract import assert_error
from tests.server_process import ServerProcess

LATER = "2099-12-21T12:00:00Z"

ENVELOPE: dict[str, Any] = {
    "run_id": "run",
    "step_id": "step",
    "parent_step_id": "parent",
    "tenant_id": "acme",
    "idempotency_key": "key",
    "partition_override": 1,
    "deadline": LATER,
    "retry_policy": {"max_attempts": 5, "backoff_ms": 250, "max_backoff_ms": 5000},
}


def test_an_envelope_comes_out_as_it_went_in(shared: ServerProcess, topic: str) -> None:
    shared.create(topic + ".3", 3)
    response = shared.produce(topic, "v", key="k", **ENVELOPE, target_topic=topic + ".3")
    assert (response.status_code, response.json()) == (200, {"status": "produced", "topic": topic})
    assert shared.take(topic + ".3") == [
        {
            "partition": 1,
            "offset": 0,
            "attempts": 1,
            "key": "k",
            "value": "v",
            "last_error": "",
            "envelope": {**ENVELOPE, "target_topic": topic + ".3"},
        }
    ]


def test_every_field_can_be_given_in_the_query(shared: ServerProcess, topic: str) -> None:
    shared.create(topic + ".3", 3)
    flat = {name: value for name, value in ENVELOPE.items() if name != "retry_policy"}
    retry = {f"retry_{name}": value for name, value in ENVELOPE["retry_policy"].items()}
    query = {"topic": topic, "value": "v", "key": "k", "target_topic": topic + ".3", **flat, **retry}
    response = shared.post("/v1/produce", params=query)
    assert (response.status_code, response.json()) == (200, {"status": "produced", "topic": topic})
    item = shared.take(topic + ".3")[0]
    assert item["envelope"] == {**ENVELOPE, "target_topic": topic + ".3"}
    assert (item["key"], item["value"], item["partition"]) == ("k", "v", 1)


MS = int(dt.datetime.fromisoformat(LATER).timestamp() * 1000)


@pytest.mark.parametrize(
    ("query", "envelope"),
    [
        ({"tenant": "acme"}, {"tenant_id": "acme"}),
        ({"idem_key": "k"}, {"idempotency_key": "k"}),
        ({"deadline": LATER}, {"deadline": LATER}),
        ({"deadline_rfc3339": LATER}, {"deadline": LATER}),
        ({"deadline_ms": MS}, {"deadline": LATER}),
        ({"deadline": "2099-12-21T13:00:00+01:00"}, {"deadline": LATER}),
        ({"retry_max_attempts": 3}, {"retry_policy": {"max_attempts": 3}}),
        ({"retry_max_attempts": 3, "retry_backoff_ms": 9}, {"retry_policy": {"max_attempts": 3, "backoff_ms": 9}}),
        ({"partition_override": 0}, {"partition_override": 0}),
        ({"partition_override": ""}, None),
        ({"unknown": "x"}, None),
    ],
)
def test_the_names_a_query_may_use(
    shared: ServerProcess, topic: str, query: dict[str, Any], envelope: dict[str, Any] | None
) -> None:
    """Ruling 14."""
    assert shared.post("/v1/produce", params={"topic": topic, "value": "v", **query}).status_code == 200
    assert shared.take(topic)[0].get("envelope") == envelope


@pytest.mark.parametrize(
    "query",
    [
        {"deadline": "tomorrow"},
        {"deadline": "2099-12-21T12:00:00"},
        {"deadline_rfc3339": "12"},
        {"deadline_ms": "soon"},
        {"deadline_ms": 10**20},
        {"deadline": "2001-01-01T00:00:00Z"},
        {"deadline_ms": 1},
        {"retry_backoff_ms": 5},
        {"retry_max_backoff_ms": 5},
        {"retry_max_attempts": 0, "retry_backoff_ms": 5},
        {"retry_max_attempts": -1},
        {"retry_max_attempts": 1, "retry_backoff_ms": -5},
        {"retry_max_attempts": 10**25},
        {"retry_max_attempts": "many"},
        {"partition_override": 1},
        {"partition_override": -1},
        {"partition_override": "x"},
        {"target_topic": "nowhere"},
        {"topic": ""},
        {"topic": "nowhere"},
        {"value": ""},
    ],
)
def test_a_query_that_makes_no_sense_is_400(shared: ServerProcess, topic: str, query: dict[str, Any]) -> None:
    response = shared.post("/v1/produce", params={"topic": topic, "value": "v", **query})
    assert_error(response, 400, "INVALID_ARGUMENT")
    shared.produce(topic, "good")
    assert shared.take(topic)[0]["value"] == "good"


@pytest.mark.parametrize(
    "envelope",
    [
        {"labels": {"a": "b"}},
        {"dlq": {}},
        {"unknown": 1},
        {"run_id": 1},
        {"deadline": "2001-01-01T00:00:00Z"},
        {"deadline": "2099-12-21T12:00:00"},
        {"deadline": 1},
        {"deadline": "9999-12-31T23:59:59-12:00"},
        {"partition_override": 1},
        {"partition_override": -1},
        {"partition_override": "0"},
        {"partition_override": 10**30},
        {"retry_policy": {"max_attempts": -1}},
        {"retry_policy": {"max_attempts": 10**25}},
        {"retry_policy": {"attempts": 1}},
        {"retry_policy": 3},
        {"target_topic": "nowhere"},
        {"target_topic": 3},
        [],
        "x",
    ],
)
def test_an_envelope_that_makes_no_sense_is_400(shared: ServerProcess, topic: str, envelope: Any) -> None:
    """`labels` and `dlq` are the broker's own: unknown to a producer. Ruling 7 for the deadline already past."""
    if isinstance(envelope, dict):
        envelope = {"idempotency_key": "k", **envelope}
    response = shared.post("/v1/produce", {"topic": topic, "value": "bad", "envelope": envelope})
    assert_error(response, 400, "INVALID_ARGUMENT")
    # Nothing was stored, and the key is not taken.
    assert shared.produce(topic, "good", idempotency_key="k").status_code == 200
    assert shared.take(topic)[0]["value"] == "good"


def test_the_messages_clients_look_for(shared: ServerProcess, topic: str) -> None:
    for body in ({"topic": topic}, {"value": "v"}, {"topic": topic, "value": ""}, {"topic": "", "value": "v"}):
        message = assert_error(shared.post("/v1/produce", body), 400, "INVALID_ARGUMENT")
        assert message == "topic and value are required"
    past = shared.produce(topic, "v", deadline="2001-01-01T00:00:00Z")
    assert assert_error(past, 400, "INVALID_ARGUMENT") == "message deadline exceeded"
    unknown = assert_error(shared.produce("nowhere", "v"), 400, "INVALID_ARGUMENT")
    assert unknown.startswith("topic does not exist")


def test_null_fields_are_absent_fields(shared: ServerProcess, topic: str) -> None:
    envelope = dict.fromkeys([*ENVELOPE, "target_topic"])
    body = {"topic": topic, "key": None, "value": "v", "envelope": envelope}
    assert shared.post("/v1/produce", body).status_code == 200
    assert shared.post("/v1/produce", body | {"envelope": None}).status_code == 200
    nulls = dict.fromkeys(ENVELOPE["retry_policy"])
    assert shared.produce(topic, "v", retry_policy=nulls).status_code == 200
    assert [(item["key"], item["value"]) for item in shared.take(topic, 3)] == [("", "v")] * 3


def test_a_body_wins_over_the_query(shared: ServerProcess, topic: str) -> None:
    query = {"topic": "nowhere", "value": "query", "key": "query", "run_id": "query"}
    assert shared.post("/v1/produce", {"topic": topic, "value": "body"}, params=query).json()["topic"] == topic
    item = shared.take(topic)[0]
    assert (item["key"], item["value"], "envelope" in item) == ("", "body", False)


def test_the_requested_topic_is_answered_and_need_not_exist(shared: ServerProcess, topic: str) -> None:
    response = shared.produce("not-there", "v", target_topic=topic)
    assert (response.status_code, response.json()) == (200, {"status": "produced", "topic": "not-there"})
    assert shared.take(topic)[0]["value"] == "v"
    assert "not-there" not in shared.topics()


def test_keys_choose_partitions_by_fnv_1a(shared: ServerProcess, topic: str) -> None:
    """Ruling 1: the vectors, and offsets that count per topic from 0."""
    name = topic + ".3"
    shared.create(name, 3)
    for key in ("user:1", "user:2", "", "user:1"):
        shared.produce(name, "v", key=key)
    shared.produce(name, "v", key="user:1", partition_override=2)
    items = sorted(shared.take(name, 5), key=lambda item: int(item["offset"]))
    assert [(item["offset"], item["partition"]) for item in items] == [(0, 1), (1, 0), (2, 0), (3, 1), (4, 2)]


def test_offsets_go_on_and_keys_are_known_after_a_crash(durable: ServerProcess) -> None:
    """Rulings 1 and 8."""
    durable.create("offsets", 2)
    durable.create("keys")
    durable.produce("offsets", "a", key="1")
    durable.produce("keys", "once", idempotency_key="k")
    durable.restart()
    durable.produce("offsets", "b", key="2")
    assert sorted(item["offset"] for item in durable.take("offsets", 2)) == [0, 1]
    assert durable.produce("keys", "twice", idempotency_key="k").status_code == 200
    durable.produce("keys", "last")
    assert [item["value"] for item in durable.take("keys", 2)] == ["once", "last"]


def test_dead_letter_topics_are_not_for_producers(shared: ServerProcess, topic: str) -> None:
    """Ruling 15, the long way round too."""
    shared.create(f"dlq.{topic}")
    assert_error(shared.produce(f"dlq.{topic}", "v"), 400, "INVALID_ARGUMENT")
    assert_error(shared.produce(topic, "v", target_topic=f"dlq.{topic}"), 400, "INVALID_ARGUMENT")


# Idempotency


def test_the_same_key_stores_one_message(shared: ServerProcess, topic: str) -> None:
    """Ruling 8: by tenant and final topic."""
    shared.create(topic + ".x")
    for _ in range(3):
        assert shared.produce(topic, "once", idempotency_key="k").json() == {"status": "produced", "topic": topic}
    shared.produce(topic, "other tenant", idempotency_key="k", tenant_id="acme")
    shared.produce(topic, "other topic", idempotency_key="k", target_topic=topic + ".x")
    shared.produce(topic + ".x", "again", idempotency_key="k")
    shared.produce(topic, "last")
    assert [item["value"] for item in shared.take(topic, 3)] == ["once", "other tenant", "last"]
    shared.produce(topic + ".x", "last")
    assert [item["value"] for item in shared.take(topic + ".x", 2)] == ["other topic", "last"]


def test_a_key_is_forgotten_after_its_time(start_memory: StartMemory) -> None:
    """Ruling 8: the TTL."""
    server = start_memory(idempotency_ttl_ms=1)
    server.create("t")
    server.produce("t", "1", idempotency_key="k")
    server.produce("t", "twice", idempotency_key="k")
    server.advance(1)
    server.produce("t", "2", idempotency_key="k")
    assert [item["value"] for item in server.take("t", 2)] == ["1", "2"]


def test_the_same_key_while_the_first_is_being_stored_is_409(shared: ServerProcess, topic: str) -> None:
    """Ruling 8: PENDING. Both come in one packet, so the first cannot be on disk when the second is looked at."""
    one = f"POST /v1/produce?topic={topic}&value=v&idem_key=k HTTP/1.1\r\nHost: x\r\n"
    received = shared.raw((one + "\r\n" + one + "Connection: close\r\n\r\n").encode(), finish=False)
    assert [answer[:3] for answer in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"409"]
    assert b"FAILED_PRECONDITION" in received
    assert shared.produce(topic, "v", idempotency_key="k").status_code == 200


def test_a_header_named_idempotency_key_changes_nothing(shared: ServerProcess, topic: str) -> None:
    """The Python SDK sends it beside the envelope, which is what counts."""
    for _ in range(2):
        shared.post("/v1/produce", {"topic": topic, "value": "v"}, headers={"Idempotency-Key": "k"})
    assert len(shared.take(topic, 2)) == 2


def test_a_refused_message_leaves_its_key_free(start_memory: StartMemory) -> None:
    """Ruling 8: only what was stored is committed."""
    server = start_memory(profile="driftq-v1")
    server.create("t")
    server.produce("t", "1")
    server.produce("t", "2")
    assert server.produce("t", "3", idempotency_key="k").status_code == 429
    for item in server.take("t", 2):
        server.ack("t", item)
    assert server.produce("t", "3", idempotency_key="k").status_code == 200
    assert server.take("t")[0]["value"] == "3"


# Backpressure


def assert_overloaded(server: ServerProcess, topic: str, value: str = "v", **envelope: Any) -> None:
    response = server.produce(topic, value, **envelope)
    assert_error(response, 429, "RESOURCE_EXHAUSTED")
    body = response.json()
    assert set(body) == {"error", "message", "reason", "retry_after_ms"}
    assert (body["reason"], body["retry_after_ms"], response.headers["retry-after"]) == ("overloaded", 1000, "1")


@pytest.mark.parametrize("with_group", [False, True])
def test_two_messages_fill_a_partition_of_driftq(start_memory: StartMemory, with_group: bool) -> None:
    """Ruling 10, with and without anybody who reads."""
    server = start_memory(profile="driftq-v1")
    server.create("t", 2)
    if with_group:
        with server.consume("t"):
            pass
    assert [server.produce("t", "v").status_code for _ in range(2)] == [200, 200]
    assert_overloaded(server, "t")
    assert server.produce("t", "v", partition_override=1).status_code == 200, "the other partition has room"
    items = [item for item in server.take("t", 3) if item["partition"] == 0]
    assert_overloaded(server, "t")
    server.ack("t", items[0])
    assert server.produce("t", "v").status_code == 200
    assert_overloaded(server, "t")


def test_twenty_bytes_fill_a_partition_of_driftq(start_memory: StartMemory) -> None:
    """Ruling 10: key and value count."""
    server = start_memory(profile="driftq-v1")
    server.create("t")
    assert_error(server.produce("t", "x" * 20), 400, "INVALID_ARGUMENT")  # an empty partition has no room for it either
    assert server.produce("t", "x" * 10, key="k").status_code == 200
    assert_overloaded(server, "t", "x" * 9)
    assert server.produce("t", "x" * 8).status_code == 200


def test_the_slowest_group_counts(start_server: StartServer) -> None:
    """Ruling 10."""
    server = start_server("--max-waiting-messages", "2")
    server.create("t")
    for _ in range(5):
        assert server.produce("t", "v").status_code == 200, "nobody waits for these"
    with server.consume("t", group="slow", lease_ms=1):
        pass
    assert_overloaded(server, "t")
    for item in server.take("t", 5, group="fast"):
        server.ack("t", item, group="fast")
    assert_overloaded(server, "t")
    for item in server.take("t", 5, group="slow"):
        server.ack("t", item, group="slow")
    assert server.produce("t", "v").status_code == 200


def test_a_group_that_vanished_does_not_block_producers_for_ever(start_server: StartServer) -> None:
    """Ruling 10, and a known fault of DriftQ."""
    server = start_server("--max-waiting-messages", "1", "--group-absent-ms", "1")
    server.create("t")
    with server.consume("t", group="here"):
        server.produce("t", "v")
        assert_overloaded(server, "t")
    server.await_metric(0, "slipstream_consumers", topic="t", group="here")
    time.sleep(0.01)  # the server goes by the clock on the wall; there is nothing to await
    assert server.produce("t", "v").status_code == 200


def test_a_message_that_never_fits_is_400_and_not_asked_to_come_back(start_memory: StartMemory) -> None:
    """Ruling 10: a client that obeys Retry-After would try for ever."""
    server = start_memory(max_waiting_bytes=20)
    server.create("t")
    refused = server.produce("t", "v" * 20)
    assert (refused.status_code, refused.json()["error"]) == (400, "INVALID_ARGUMENT")
    assert "never fits" in refused.json()["message"]
    assert "retry-after" not in refused.headers
    batch = server.post("/v2/produce", {"topic": "t", "messages": [{"value": "v" * 20}]})
    assert (batch.status_code, "never fits" in batch.json()["message"]) == (400, True)
    assert server.produce("t", "v" * 19).status_code == 200
    server.take("t", 1)
    waiting = server.produce("t", "v" * 19)
    assert (waiting.status_code, waiting.headers["retry-after"]) == (429, "1")
