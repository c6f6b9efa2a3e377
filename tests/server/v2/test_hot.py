"""`/v2/produce`, `ack`, `nack` and `extend` over a socket, in JSON, lines of JSON and MessagePack."""

from __future__ import annotations

import base64
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from tests.conftest import StartServer
from tests.server.conftest import MemoryServer
from tests.server.v2.wire import MSGPACK, V2, values
from tests.server_process import ServerProcess

# Produce


def test_each_message_is_answered_with_its_partition_and_offset(v2: V2) -> None:
    answer = v2.produce("a", "b", {"value": "c", "key": "k"})
    assert answer == {"topic": v2.topic, "messages": [{"partition": 0, "offset": n} for n in range(3)]}


def test_keys_choose_the_partition_as_in_v1(shared: Any, v2: V2) -> None:
    name = v2.topic + ".three"
    v2.call("POST", "/v2/topics", {"name": name, "partitions": 3}, 201)
    placed = V2(shared, name).produce({"value": "a", "key": "user:1"}, {"value": "b", "key": "user:2"})["messages"]
    assert [place["partition"] for place in placed] == [1, 0], "ruling 1's vectors"


def test_an_array_a_single_message_and_lines_name_their_topic_in_the_query(v2: V2) -> None:
    path = f"/v2/produce?topic={v2.topic}"
    v2.call("POST", path, [{"value": "array"}])
    v2.call("POST", path, {"value": "single"})
    lines = b'{"value": "line 1"}\n{"value": "line 2"}\n'
    answer = v2.call("POST", path, lines, headers={"Content-Type": "application/x-ndjson"})
    assert [place["offset"] for place in answer["messages"]] == [2, 3]
    assert values(v2.read()["messages"]) == ["array", "single", "line 1", "line 2"]


@pytest.mark.parametrize("shape", ["request", "array", "single"])
def test_messagepack_carries_any_bytes(v2: V2, shape: str) -> None:
    message = {"value": b"\xff\x00\xfe", "key": b"\x80"}
    body: Any = {"request": {"topic": v2.topic, "messages": [message]}, "array": [message], "single": message}[shape]
    path = "/v2/produce" if shape == "request" else f"/v2/produce?topic={v2.topic}"
    response = v2.respond("POST", path, msgspec.msgpack.encode(body), headers={"Content-Type": MSGPACK})
    assert response.headers["content-type"] == MSGPACK
    assert msgspec.msgpack.decode(response.content)["messages"] == [{"partition": 0, "offset": 0}]
    (shown,) = v2.fetch()
    assert base64.b64decode(shown["value"]) == b"\xff\x00\xfe"
    assert (shown["encoding"], shown["key_encoding"]) == ("base64", "base64")


def test_messagepack_text_is_taken_as_utf8(v2: V2) -> None:
    """Not every library tells text from bytes."""
    body = msgspec.msgpack.encode({"topic": v2.topic, "messages": [{"value": "ü", "key": b"k"}]})
    assert v2.respond("POST", "/v2/produce", body, headers={"Content-Type": MSGPACK}).status_code == 200
    assert values(v2.fetch()) == ["ü"]


def test_json_carries_bytes_as_base64(v2: V2) -> None:
    encoded = base64.b64encode(b"\xff\x00").decode()
    v2.produce({"value": encoded, "encoding": "base64", "key": encoded, "key_encoding": "base64"})
    (message,) = v2.fetch()
    assert (message["value"], message["encoding"], message["key"]) == (encoded, "base64", encoded)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"value": "%%%", "encoding": "base64"}, "value is not base64"),
        ({"value": 1}, "Expected `str`"),
        ({"key": "k"}, "missing required field `value`"),
        ({"value": "v", "colour": "red"}, "unknown field `colour`"),
        ({"value": "v", "delay_ms": -1}, "delay_ms"),
        ({"value": "v", "delay_ms": 1, "deliver_at": "2100-01-01T00:00:00Z"}, "both say when"),
        ({"value": "v", "deliver_at": "soon"}, "RFC3339"),
        ({"value": "v", "deliver_at": "0001-01-01T00:00:00+14:00"}, "years 1 to 9999"),
        ({"value": "v", "attributes": {"n": 1}}, "attributes"),
        ({"value": "v", "envelope": {"labels": {"n": 1}}}, "labels"),
        ({"value": "v", "envelope": {"partition_override": 7}}, "partition_override out of range"),
        ({"value": "v", "envelope": {"deadline": "2001-01-01T00:00:00Z"}}, "deadline exceeded"),
        ({"value": "v", "envelope": {"target_topic": "nowhere"}}, "nowhere"),
    ],
)
def test_one_bad_message_is_named_and_nothing_of_its_batch_is_stored(v2: V2, message: Any, words: str) -> None:
    status = 404 if words == "nowhere" else 400
    answer = v2.produce("good", message, "good", expect=status)
    assert words in answer["message"]
    assert "1" in answer["message"], "it is the second one, counted from 0"
    assert v2.read()["messages"] == []


def test_batches_delays_and_acks_survive_a_crash(durable: ServerProcess) -> None:
    delayed, whole, keyed, acked = (V2(durable, name) for name in ("delayed", "whole", "keyed", "acked"))
    for v2, partitions in ((delayed, 1), (whole, 3), (keyed, 2), (acked, 1)):
        v2.call("POST", "/v2/topics", {"name": v2.topic, "partitions": partitions}, 201)
    placed = whole.produce(*({"value": str(n), "key": f"k{n}"} for n in range(500)))["messages"]
    batch = [{"value": str(n), "key": f"k{n}"} for n in range(5)]
    first = keyed.produce(*batch, idempotency_key="b")["messages"]
    acked.produce(*map(str, range(10)))
    acked.ack(*acked.fetch()[1:9])
    delayed.produce({"value": "soon", "delay_ms": 3_000}, {"value": "late", "delay_ms": 600_000})
    assert delayed.fetch() == []

    durable.restart()

    for number in range(3):
        stored = whole.read(partition=number)["messages"]
        assert [m["offset"] for m in stored] == [p["offset"] for p in placed if p["partition"] == number]

    again = keyed.produce(*batch, idempotency_key="b")["messages"]
    assert again == [place | {"deduplicated": True} for place in first], "a batch with a key is stored once"
    assert "used for a batch of 5" in keyed.produce("x", idempotency_key="b", expect=409)["message"]

    assert (acked.group()["lag"], [m["offset"] for m in acked.group()["messages"]]) == (2, [0, 9])
    acked.call("POST", acked.path("groups", "g", "seek"), {"offset": 0})
    assert len(acked.fetch()) == 10, "a seek forgets, a restart does not"

    assert values(delayed.fetch(wait_ms=10_000)) == ["soon"]
    assert delayed.fetch() == []


def test_what_idempotency_swallowed_is_said_to_be_deduplicated(v2: V2) -> None:
    once = {"value": "v", "envelope": {"idempotency_key": "k"}}
    assert v2.produce(once, once)["messages"] == [
        {"partition": 0, "offset": 0},
        {"partition": 0, "offset": 0, "deduplicated": True},
    ]
    assert v2.produce("other", once)["messages"][1] == {"partition": 0, "offset": 0, "deduplicated": True}
    assert values(v2.read()["messages"]) == ["v", "other"]


def test_attributes_labels_and_envelope_travel_with_the_message(v2: V2) -> None:
    envelope = {
        "run_id": "r",
        "step_id": "s",
        "parent_step_id": "p",
        "tenant_id": "t",
        "labels": {"colour": "red"},
        "retry_policy": {"max_attempts": 3, "backoff_ms": 10},
    }
    v2.produce({"value": "v", "attributes": {"traceparent": "00-ab"}, "envelope": envelope})
    (message,) = v2.fetch()
    assert message["attributes"] == {"traceparent": "00-ab"}
    assert message["envelope"] == envelope


def test_a_target_topic_is_named_where_it_differs(shared: Any, v2: V2) -> None:
    v2.call("POST", "/v2/topics", {"name": v2.topic + ".b"}, 201)
    placed = v2.produce({"value": "v", "envelope": {"target_topic": v2.topic + ".b"}}, "here")["messages"]
    assert placed == [{"partition": 0, "offset": 0, "topic": v2.topic + ".b"}, {"partition": 0, "offset": 0}]


def test_the_router_is_asked_for_every_message_of_a_batch(start_server: StartServer) -> None:
    server = start_server("--router", "tests.router.routers:urgent")
    v2 = V2(server, "t")
    for name in ("t", "urgent"):
        v2.call("POST", "/v2/topics", {"name": name}, 201)
    placed = v2.produce("urgent: now", "later", "urgent: too")["messages"]
    assert [place.get("topic") for place in placed] == ["urgent", None, "urgent"]


def test_delayed_messages_come_when_they_are_due_and_hold_nobody_up(memory: MemoryServer, in_memory: V2) -> None:
    v2, minute = in_memory, dt.timedelta(minutes=1)
    at = (memory.broker.now + minute).isoformat()
    v2.produce({"value": "late", "deliver_at": at}, {"value": "soon", "delay_ms": 3_000}, "now")
    assert values(v2.fetch()) == ["now"]
    assert v2.group()["delayed"] == 2
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(V2(memory, v2.topic).fetch, wait_ms=30_000)
        memory.await_metric(1, "slipstream_consumers", topic=v2.topic, group="g")
        memory.advance(2_999)
        assert v2.group()["delayed"] == 2
        memory.advance(1)
        assert values(waiting.result()) == ["soon"], "it comes to who waits for it"
    assert v2.group()["delayed"] == 1
    memory.advance(57_000)
    assert values(v2.fetch()) == ["late"]


def test_a_batch_may_be_larger_than_other_bodies(v2: V2) -> None:
    value = "x" * 1_000
    assert len(v2.produce(*[value] * 2_000)["messages"]) == 2_000


def test_more_messages_than_fit_are_refused_with_the_limit(v2: V2) -> None:
    assert "max_batch_messages" in v2.produce(*["v"] * 10_001, expect=400)["message"]
    assert "1 to 10000" in v2.produce(expect=400)["message"]


def test_backpressure_refuses_the_whole_batch_and_says_when_to_come_back(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"config": {"max_waiting_messages": 3}})
    v2.produce("a", "b")
    v2.fetch()
    body = {"topic": v2.topic, "messages": [{"value": "c"}, {"value": "d"}]}
    response = v2.respond("POST", "/v2/produce", body)
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["reason"] == "overloaded"
    assert v2.produce("c")["messages"] == [{"partition": 0, "offset": 2}], "one fits"
    too_many = v2.produce("1", "2", "3", "4", expect=400)
    assert "smaller batches" in too_many["message"], "to wait for this would not help"


def test_dead_letter_topics_cannot_be_written(v2: V2) -> None:
    v2.produce("v")
    v2.nack(*v2.fetch(), expect=200)
    v2.call("POST", "/v2/topics", {"name": "dlq." + v2.topic}, 201)
    body = {"topic": "dlq." + v2.topic, "messages": [{"value": "v"}]}
    assert "written by the broker only" in v2.call("POST", "/v2/produce", body, 400)["message"]


def test_a_topic_that_does_not_exist_is_404(v2: V2) -> None:
    answer = v2.call("POST", "/v2/produce", {"topic": "nowhere", "messages": [{"value": "v"}]}, 404)
    assert answer["error"] == "NOT_FOUND"


def test_an_unknown_parameter_is_refused(v2: V2) -> None:
    assert "colour" in v2.call("POST", f"/v2/produce?topic={v2.topic}&colour=red", {"value": "v"}, 400)["message"]


def test_another_method_is_405_with_what_is_allowed(v2: V2) -> None:
    response = v2.respond("GET", "/v2/produce")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_a_request_id_comes_back(v2: V2) -> None:
    response = v2.respond("POST", "/v2/produce", b"{", headers={"X-Request-Id": "abc"})
    assert (response.status_code, response.headers["x-request-id"]) == (400, "abc")


# Settle


def test_a_batch_of_acks_is_taken_one_by_one(v2: V2) -> None:
    v2.produce("a", "b", "c")
    messages = v2.fetch()
    answer = v2.ack(messages[0], {"partition": 0, "offset": 99}, messages[2])
    assert answer["acked"] == 2
    (failed,) = answer["failed"]
    assert (failed["offset"], failed["error"]) == (99, "INVALID_ARGUMENT")
    assert v2.group()["in_flight"] == 1
    assert v2.ack(messages[0])["failed"] == [], "saying it again is fine (ruling 3)"


def test_only_the_owner_settles(v2: V2) -> None:
    v2.produce("a")
    (message,) = v2.fetch(owner="mine")
    for verb in ("ack", "nack", "extend"):
        (failed,) = v2.settle(verb, message, owner="other")["failed"]
        assert (failed["error"], failed["message"]) == ("FAILED_PRECONDITION", "not owner")
    assert v2.ack(message, owner="mine")["acked"] == 1


def test_a_nack_with_a_delay_comes_again_then(v2: V2) -> None:
    v2.produce("a")
    (message,) = v2.fetch()
    v2.nack(message | {"delay_ms": 60_000, "reason": "busy"})
    assert v2.fetch() == []
    (waiting,) = v2.group()["messages"]
    assert (waiting["state"], waiting["last_error"]) == ("waiting", "busy")


def test_a_nack_with_no_delay_comes_at_once_whatever_the_policy(v2: V2) -> None:
    v2.produce({"value": "a", "envelope": {"retry_policy": {"max_attempts": 9, "backoff_ms": 60_000}}})
    (message,) = v2.fetch()
    v2.nack(message | {"delay_ms": 0, "reason": "again"})
    (again,) = v2.fetch()
    assert (again["attempts"], again["last_error"]) == (2, "again")


def test_a_nack_that_is_not_retryable_goes_straight_to_the_dead_letters(v2: V2) -> None:
    v2.produce({"value": "a", "attributes": {"n": "1"}})
    (message,) = v2.fetch()
    v2.nack(message | {"retryable": False, "reason": "no such user"})
    (letter,) = v2.call("GET", "/v2/dead-letters", params={"topic": v2.topic})["dead_letters"]
    died = letter["envelope"]["dlq"]
    assert (died["reason"], died["last_error"], died["attempts"]) == ("rejected", "no such user", 1)
    assert letter["attributes"] == {"n": "1"}
    assert v2.group()["lag"] == 0


def test_without_dead_letters_it_is_dropped(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"config": {"dead_letters": False}})
    v2.produce("a")
    v2.nack(*(message | {"retryable": False} for message in v2.fetch()))
    assert v2.group()["lag"] == 0
    assert "dlq." + v2.topic not in [each["name"] for each in v2.call("GET", "/v2/topics")["topics"]]


def test_an_extended_lease_outlives_its_first_end(memory: MemoryServer, in_memory: V2) -> None:
    v2 = in_memory
    v2.produce("a")
    (message,) = v2.fetch(lease_ms=400)
    answer = v2.settle("extend", message, lease_ms=60_000)
    assert answer["extended"] == 1
    assert v2.group()["messages"][0]["until_ms"] == answer["lease_until_ms"]
    memory.advance(800)
    assert v2.fetch(owner="other") == [], "its first lease has ended meanwhile"
    assert v2.ack(message)["acked"] == 1


def test_a_group_that_never_read_is_404(v2: V2) -> None:
    assert "has no group" in v2.ack({"partition": 0, "offset": 0}, group="nobody", expect=404)["message"]


@pytest.mark.parametrize("delay_ms", [2**64, 10**30])
def test_a_time_that_no_journal_can_hold_is_refused_and_changes_nothing(v2: V2, delay_ms: int) -> None:
    """It used to be noted before it was found to be unwritable: the message was gone, and so was every snapshot."""
    v2.produce("a", "b")
    first, _ = v2.fetch()
    body = b'{"topic": "%b", "group": "g", "owner": "o", "messages": [%b, %b]}' % (
        v2.topic.encode(),
        b'{"partition": 0, "offset": 0, "delay_ms": %d}' % delay_ms,
        b'{"partition": 0, "offset": 1, "delay_ms": 0}',
    )
    answer = v2.call("POST", "/v2/nack", body)
    assert (answer["nacked"], [failure["error"] for failure in answer["failed"]]) == (1, ["INVALID_ARGUMENT"])
    leased, released = v2.group()["messages"]
    assert (leased["state"], leased["last_error"], released["state"]) == ("leased", "", "ready")
    assert v2.ack(first)["failed"] == []


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize("place", ['"partition": 0, "offset": %d', '"partition": %d, "offset": 0'])
def test_a_place_that_no_answer_can_name_is_refused_and_changes_nothing(v2: V2, verb: str, place: str) -> None:
    """What cannot be settled is listed by its place, and MessagePack has no such number: 500, with the rest settled."""
    v2.produce("a")
    v2.fetch()
    bad = place % 2**64
    messages = f'[{{"partition": 0, "offset": 0}}, {{{bad}}}]'
    body = f'{{"topic": "{v2.topic}", "group": "g", "owner": "o", "messages": {messages}}}'.encode()
    response = v2.respond("POST", f"/v2/{verb}", body, headers={"Accept": MSGPACK})
    assert response.status_code == 400
    assert msgspec.msgpack.decode(response.content)["error"] == "INVALID_ARGUMENT"
    assert v2.group()["in_flight"] == 1


def test_nothing_is_due_after_the_year_9999(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"config": {"retention_ms": 0}})
    for delay_ms in (2**53, 2**63, 10**30):
        body = b'{"topic": "%b", "messages": [{"value": "v", "delay_ms": %d}]}' % (v2.topic.encode(), delay_ms)
        assert "9999" in v2.call("POST", "/v2/produce", body, 400)["message"]
    assert v2.read()["messages"] == []


@pytest.mark.parametrize("form", ["json", "ndjson", "msgpack"])
def test_far_too_many_messages_are_refused_before_they_are_decoded(v2: V2, form: str) -> None:
    if form == "msgpack":
        body = msgspec.msgpack.encode([{"value": b""}] * 200_000)
    else:
        body = (b"[" + b",".join([b'{"value":""}'] * 200_000) + b"]") if form == "json" else b'{"value":""}\n' * 200_000
    media = {"json": "application/json", "ndjson": "application/x-ndjson", "msgpack": MSGPACK}[form]
    response = v2.respond("POST", f"/v2/produce?topic={v2.topic}", body, headers={"Content-Type": media})
    assert response.status_code == 400
    assert "max_batch_messages" in response.text
