"""Conditions about events."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from slipstream.slip.event import Envelope, Event, RoutingStep, Status
from slipstream.slip.routes import condition as conditions
from slipstream.slip.routes.condition import RULE_CHARS_MAX, Condition, ConditionFailed, ConditionInvalid
from tests.slip.events import events


def event(payload: object = None) -> Event:
    steps = (RoutingStep("router", Status.OK), RoutingStep("intent", Status.PENDING, next_topic="internal.intent.v1"))
    until = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    envelope = Envelope("1", "ingress.twitch", "c-123", timeout_at=until, routing_slip=steps)
    return Event(envelope, "chat.message.v1", payload)


@pytest.mark.parametrize(
    ("rule", "payload", "expected"),
    [
        ({"var": "payload.memory.enabled"}, {"memory": {"enabled": True}}, True),
        ({"var": "payload.memory.enabled"}, {"memory": {"enabled": False}}, False),
        ({"var": "payload.memory.enabled"}, {}, False),
        ({"var": "payload.memory.enabled"}, None, False),
        ({"and": [{"var": "payload.a"}, {"var": "payload.b"}]}, {"a": 1, "b": "x"}, True),
        ({"and": [{"var": "payload.a"}, {"var": "payload.b"}]}, {"a": 1, "b": ""}, False),
        ({"==": [{"var": "type"}, "chat.message.v1"]}, None, True),
        ({"==": [{"var": "envelope.correlationId"}, "c-123"]}, None, True),
        ({"==": [{"var": "envelope.timeoutAt"}, "2030-01-01T00:00:00Z"]}, None, True),
        ({"==": [{"var": "envelope.routingSlip.1.nextTopic"}, "internal.intent.v1"]}, None, True),
        ({"==": [{"var": "envelope.correlation_id"}, None]}, None, True),
        ({"some": [{"var": "payload.items"}, {">": [{"var": "quantity"}, 10]}]}, {"items": [{"quantity": 11}]}, True),
        ({"missing": ["payload.userId"]}, {}, True),
        ({"missing": ["payload.userId"]}, {"userId": "u"}, False),
        # Computed: nobody can tell beforehand which part is read.
        ({"var": {"var": "payload.where"}}, {"where": "envelope.source"}, True),
        ({"==": [{"var": "payload.big"}, 2**70]}, {"big": 2**70}, True),
        # Things of different kinds are not equal, and nothing to fail about.
        ({"==": [{"var": "payload.channel"}, "#quiet"]}, {"channel": 7}, False),
        ({"==": [{"var": "payload.channel"}, "#quiet"]}, {"channel": ["#quiet"]}, False),
        ({"!=": [{"var": "payload.channel"}, "#quiet"]}, {"channel": {"name": "#quiet"}}, True),
        ({"in": ["#quiet", {"var": "payload.channels"}]}, {"channels": 7}, False),
        (True, None, True),
        (False, None, False),
        # Text is true if there is any of it, and is never read as JSON.
        ({"var": "payload.x"}, {"x": "[]"}, True),
        ({"var": "payload.x"}, {"x": "false"}, True),
        ({"var": "payload.x"}, {"x": "0"}, True),
        ({"var": "payload.x"}, {"x": ""}, False),
        ({"var": "payload.x"}, {"x": []}, False),
        ({"var": "payload.x"}, {"x": 0}, False),
    ],
)
def test_a_condition_holds_or_does_not(rule: object, payload: object, expected: bool) -> None:
    condition = Condition(rule)
    assert condition.holds(event(payload)) is expected
    assert Condition.of_text(condition.text).holds(event(payload)) is expected


@settings(max_examples=50)
@given(events())
def test_every_event_can_be_asked_about(given_event: Event) -> None:
    rule = {"and": [{"==": [{"var": "envelope.source"}, given_event.envelope.source]}, {"var": "type"}]}
    assert Condition(rule).holds(given_event)
    assert not Condition({"!": rule}).holds(given_event)


@pytest.mark.parametrize(
    ("rule", "read"),
    [
        ({"var": "payload.x"}, ("payload",)),
        ({"==": [{"var": "type"}, {"val": ["payload", "x"]}]}, ("type", "payload")),
        ({"var": "envelope.source"}, ("envelope",)),
        ({"missing": ["envelope.replyTo"]}, ("envelope",)),
        ({"var": ""}, ("type", "payload", "envelope")),
        ({"var": {"var": "payload.where"}}, ("type", "payload", "envelope")),
        ({"map": [{"var": "payload.x"}, {"val": [[2], "envelope"]}]}, ("payload", "envelope")),
        (True, ()),
    ],
)
def test_only_what_a_rule_reads_is_encoded(
    rule: object, read: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def encode(parts: dict[str, Any]) -> bytes:
        seen.append(parts)
        return genuine(parts)

    genuine = msgspec.json.encode
    monkeypatch.setattr(msgspec.json, "encode", encode)
    Condition(rule).holds(event({"x": [1]}))
    assert [tuple(parts) for parts in seen] == [read]


@pytest.mark.parametrize(
    ("rule", "path", "said"),
    [
        ({"fooo": [1]}, (), 'unknown operator "fooo" (did you mean floor?)'),
        ({"and": [{"var": "a"}, {"!": [{"vra": "a"}]}]}, ("and", 1, "!", 0), 'unknown operator "vra"'),
        ({"!": {"vra": "a"}}, ("!",), 'unknown operator "vra"'),
        ({"a/b~c": 1}, (), 'unknown operator "a/b~c"'),
        ({"and": [{"var": "a"}, {"==": [1]}]}, ("and", 1), '"==" takes at least 2 arguments, not 1'),
        ({"var": "a", "==": [1, 2]}, (), "this is no operator, which would be a map with one key"),
        ({"zeros": [1_000_000_000]}, (), 'unknown operator "zeros"'),
        ({}, (), "a rule is true, false or an operator"),
        ("payload.x", (), "a rule is true, false or an operator"),
        (1, (), "a rule is true, false or an operator"),
        (None, (), "a rule is true, false or an operator"),
        ([{"var": "a"}], (), "a rule is true, false or an operator"),
        ({"var": dt.date(2030, 1, 1)}, (), "this cannot be written as JSON"),
        ({"==": [{"var": "a"}, float("nan")]}, (), "this cannot be written as JSON"),
        ({"var": "\ud800"}, (), "this cannot be written as JSON"),
        ({"var": "x" * RULE_CHARS_MAX}, (), "a rule of 65546 characters is too long: 65536 at most"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_its_place(rule: object, path: tuple[str | int, ...], said: str) -> None:
    with pytest.raises(ConditionInvalid) as caught:
        Condition(rule)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert problem.text.startswith(said)
    assert str(caught.value) == problem.text


def test_all_that_is_wrong_with_a_rule_is_said() -> None:
    with pytest.raises(ConditionInvalid, match=r'unknown operator "aaa"; unknown operator "bbb"'):
        Condition({"and": [{"aaa": 1}, {"bbb": 1}]})


@pytest.mark.parametrize("text", ["", "{", "not json", "[" * 100_000, "x" * (RULE_CHARS_MAX + 1), "{}", '{"fooo": 1}'])
def test_text_that_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConditionInvalid):
        Condition.of_text(text)


def deep_rule(depth: int) -> dict[str, Any]:
    rule: dict[str, Any] = {"var": "payload"}
    for _ in range(depth):
        rule = {"!": [rule]}
    return rule


def test_a_rule_that_is_nested_too_deeply_is_refused() -> None:
    for depth in (500, 100_000):
        with pytest.raises(ConditionInvalid):
            Condition(deep_rule(depth))
    assert Condition(deep_rule(20)).holds(event("x"))


DOUBLING = {"reduce": [list(range(60)), {"cat": [{"var": "accumulator"}, {"var": "accumulator"}]}, "x"]}
NESTED = {"map": [{"var": "payload"}, {"map": [{"val": [[2], "payload"]}, {"+": [{"var": ""}, 1]}]}]}


@pytest.mark.parametrize(
    ("rule", "payload", "reason"),
    [
        ({">": [{"+": [{"var": "payload.x"}, 1]}, 2]}, {"x": "abc"}, r'"\+" was given something that is no number'),
        ({">": [{"var": "payload.x"}, 1]}, {"x": {"a": 1}}, '">" was given something that is no number'),
        ({"/": [1, {"var": "payload.x"}]}, {"x": 0}, '"/" was given'),
        ({"throw": "no"}, None, "no"),
        (DOUBLING, None, "budget"),
        (NESTED, list(range(1_000)), "budget"),
        ({"var": "payload"}, object(), "unsupported"),
        ({"var": "payload"}, "\ud800", "surrogates"),
    ],
)
def test_a_rule_that_cannot_be_decided_says_why(rule: object, payload: object, reason: str) -> None:
    with pytest.raises(ConditionFailed, match=f"cannot be decided: .*{reason}"):
        Condition(rule).holds(event(payload))


def test_a_payload_that_is_nested_too_deeply_for_the_engine_is_a_failure_and_no_crash() -> None:
    payload: list[Any] = []
    for _ in range(900):
        payload = [payload]
    with pytest.raises(ConditionFailed):
        Condition({"var": "payload"}).holds(event(payload))


def test_text_is_compiled_where_it_is_met_first() -> None:
    text = '{"==": [{"var": "payload.compiled"}, "once"]}'
    assert Condition.of_text(text) is Condition.of_text(text)
    cached = conditions._of_text.cache_info()
    assert cached.maxsize == 1_024, "rules come out of messages: there is no end of them"


@pytest.fixture
def nothing_imported() -> Iterator[None]:
    conditions._engine.cache_clear()
    yield
    conditions._engine.cache_clear()


@pytest.mark.usefixtures("nothing_imported")
def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def refusing(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "datalogic_py":
            raise ImportError("No module named 'datalogic_py'")
        return genuine(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(ImportError, match=r"datalogic_py.*pip install 'slipstream\[slip\]'"):
        Condition({"var": "payload"})


def test_a_variable_that_is_never_there_is_refused() -> None:
    with pytest.raises(ConditionInvalid, match=r"no paylod\.total: a variable begins .* \(did you mean payload\?\)"):
        Condition({">": [{"var": "paylod.total"}, 3]})
    Condition({"some": [{"var": "payload.items"}, {">": [{"var": "price"}, 3]}]})  # inside, it is one of the items
