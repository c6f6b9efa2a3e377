"""Single messages that an operator helps, over `/v2` and without a lease."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.server.conftest import StartMemory
from tests.server.v2.wire import V2, values

HOUR_MS = 3_600_000


def place(message: Any) -> dict[str, int]:
    return {"partition": message["partition"], "offset": message["offset"]}


def operate(v2: V2, operation: str, *messages: Any, expect: int = 200, group: str = "g", **fields: Any) -> Any:
    body = {"messages": [place(each) for each in messages], **fields}
    return v2.call("POST", v2.path("groups", group, "messages", operation), body, expect)


def test_a_waiting_message_is_shown_with_its_history_and_retried_now(v2: V2) -> None:
    v2.produce("a")
    (message,) = v2.fetch()
    path = v2.path("groups", "g", "messages", 0, 0)
    assert v2.call("GET", path)["state"] == "leased"
    v2.nack(message | {"reason": "boom", "delay_ms": HOUR_MS, "traceback": "line 1"})
    shown = v2.call("GET", path)
    assert (shown["state"], shown["attempts"], shown["owner"]) == ("waiting", 1, "o")
    assert [(each["error"], each["traceback"]) for each in shown["history"]] == [("boom", "line 1")]
    assert operate(v2, "retry", message) == {"done": 1, "failed": []}
    (again,) = v2.fetch()
    assert again["attempts"] == 2
    v2.ack(again)
    assert "finished" in v2.call("GET", path, expect=409)["message"]


def test_states_of_messages_that_were_never_delivered(v2: V2) -> None:
    v2.produce("a", {"value": "later", "delay_ms": HOUR_MS}, "b")
    assert values(v2.fetch(max_messages=2)) == ["a", "b"]
    v2.produce("c")
    states = [v2.call("GET", v2.path("groups", "g", "messages", 0, offset))["state"] for offset in range(4)]
    assert states == ["leased", "delayed", "leased", "undelivered"]
    v2.call("GET", v2.path("groups", "g", "messages", 0, 9), expect=404)


def test_a_rejected_message_is_a_dead_letter_and_a_discarded_one_is_none(v2: V2) -> None:
    v2.produce("a", "b")
    first, second = v2.fetch()
    assert operate(v2, "reject", first, reason="no such customer")["done"] == 1
    assert operate(v2, "discard", second)["done"] == 1
    (letter,) = v2.call("GET", "/v2/dead-letters", params={"topic": v2.topic})["dead_letters"]
    died = letter["envelope"]["dlq"]
    assert (died["reason"], died["last_error"]) == (
        "rejected_by_operator",
        "rejected by an operator: no such customer",
    )
    assert v2.group()["lag"] == 0
    answer = operate(v2, "discard", first, {"partition": 0, "offset": 9})
    assert [(each["offset"], each["error"]) for each in answer["failed"]] == [
        (0, "FAILED_PRECONDITION"),
        (9, "NOT_FOUND"),
    ]


def test_leases_are_extended_and_released_without_owning_them(v2: V2) -> None:
    v2.produce("a")
    (message,) = v2.fetch(owner="crashed", lease_ms=HOUR_MS)
    before = v2.group()["messages"][0]["until_ms"]
    assert operate(v2, "extend", message, lease_ms=2 * HOUR_MS)["done"] == 1
    assert v2.group()["messages"][0]["until_ms"] > before
    assert operate(v2, "release", message)["done"] == 1
    (again,) = v2.fetch(owner="healthy")
    assert again["attempts"] == 2, "deliveries are counted, but this one does not use up an attempt"


def test_all_leases_of_an_owner_are_released(v2: V2) -> None:
    owner = f"crashed-{v2.topic}"
    v2.produce("a", "b")
    v2.fetch(owner=owner, lease_ms=HOUR_MS)
    v2.fetch("h", owner=owner, lease_ms=HOUR_MS)
    path = f"/v2/owners/{owner}/release"
    one = v2.call("POST", path, {"topic": v2.topic, "group": "g"})
    assert one == {"owner": owner, "released": 2, "groups": [{"topic": v2.topic, "group": "g", "released": 2}]}
    assert v2.call("POST", path, {})["released"] == 2
    assert v2.call("POST", path, {})["groups"] == []
    assert values(v2.fetch(owner="healthy")) == ["a", "b"]
    assert "name the topic too" in v2.call("POST", path, {"group": "g"}, 400)["message"]


@pytest.mark.parametrize(("operation", "outcome"), [("retry", ["a"]), ("release", ["a"]), ("discard", [])])
def test_what_an_operator_did_survives_a_crash(start_server: StartServer, operation: str, outcome: list[str]) -> None:
    server = start_server()
    server.create("t")
    v2 = V2(server, "t")
    v2.produce("a")
    (message,) = v2.fetch(lease_ms=HOUR_MS)
    if operation == "retry":
        v2.nack(message | {"delay_ms": HOUR_MS})
    assert operate(v2, operation, message)["done"] == 1
    server.restart()
    assert values(v2.fetch()) == outcome


def test_it_is_logged_and_counted(start_memory: StartMemory, caplog: pytest.LogCaptureFixture) -> None:
    server = start_memory()
    v2 = V2(server, "t")
    server.create("t")
    v2.produce(*map(str, range(12)))
    messages = v2.fetch()
    with caplog.at_level(logging.WARNING, "slipstream.server.v2.operations"):
        operate(v2, "reject", messages[0], reason="gone")
        operate(v2, "release", *messages[1:])
        v2.call("POST", "/v2/owners/nobody/release", {})
    assert caplog.messages == [
        "operator: reject of 0/0 of t for group g: gone",
        "operator: release of 0/1, 0/2, 0/3, 0/4, 0/5, 0/6, 0/7, 0/8, 0/9, 0/10 and 1 more of t for group g",
    ]
    assert server.metric("slipstream_operations_total", operation="release") == 11


def test_a_request_that_names_none_is_refused(v2: V2) -> None:
    v2.fetch()
    assert "1 to" in operate(v2, "discard", expect=400)["message"]
    operate(v2, "discard", {"partition": 0, "offset": 0}, group="nowhere", expect=404)
