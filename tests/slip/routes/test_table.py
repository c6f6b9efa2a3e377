"""Which steps an event takes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.slip import hints
from slipstream.slip.event import Envelope, Event, RoutingStep, Status, decode, encode
from slipstream.slip.routes.condition import ConditionFailed
from slipstream.slip.routes.problems import RouteTableInvalid
from slipstream.slip.routes.table import NoRoute, RouteTable

YAML = """\
version: 1
routes:
  chat.message.v1:
    timeout: 5m
    steps:
      - router
      - intent
      - id: retrieval
        when: {and: [{var: payload.memory.enabled}, {var: payload.userId}]}
        topic: internal.memory.v1
        max_attempts: 5
        timeout: 10s
        optional: true
        unless: {"==": [{var: payload.channel}, "#quiet"]}
        attributes: {priority: high, weight: 3}
        version: "2"
      - id: enrich
        parallel:
          geo: [geo-lookup]
          credit: [{id: credit-check, when: {var: payload.userId}}, score]
        join: any
        deadline: 30s
      - id: boss
        wait: approval
        deadline: 2d
        on_deadline: skip
"""


def event(event_type: str = "chat.message.v1", **payload: Any) -> Event:
    return Event(Envelope("1", "ingress.twitch", "c-123"), event_type, payload)


def pending(step_id: str, **fields: Any) -> RoutingStep:
    return RoutingStep(step_id, Status.PENDING, **fields)


def ids(steps: tuple[RoutingStep, ...]) -> list[str]:
    return [step.id for step in steps]


@pytest.fixture
def table(tmp_path: Path) -> RouteTable:
    path = tmp_path / "routes.yaml"
    path.write_text(YAML)
    return RouteTable.load(path)


def one_route(*steps: object, **route: object) -> RouteTable:
    return RouteTable.of({"routes": {"chat.message.v1": {"steps": list(steps), **route}}})


def branches(step: RoutingStep) -> dict[str, list[RoutingStep]]:
    return msgspec.json.decode(step.attributes[hints.BRANCHES], type=dict[str, list[RoutingStep]])


def test_a_step_becomes_what_the_table_says_of_it(table: RouteTable) -> None:
    intent, retrieval, enrich, boss = table.plan(event(memory={"enabled": True}, userId="u-77"))
    assert intent == pending("intent")
    assert retrieval == pending(
        "retrieval",
        v="2",
        next_topic="internal.memory.v1",
        max_attempts=5,
        attributes={
            "priority": "high",
            "weight": "3",
            hints.TIMEOUT_MS: "10000",
            hints.OPTIONAL: "true",
            hints.UNLESS: '{"==":[{"var":"payload.channel"},"#quiet"]}',
        },
    )
    assert enrich.attributes[hints.JOIN] == "any"
    assert enrich.attributes[hints.DEADLINE_MS] == "30000"
    assert branches(enrich) == {
        "geo": [pending("geo-lookup")],
        "credit": [pending("credit-check"), pending("score")],
    }
    assert boss == pending(
        "boss",
        attributes={hints.WAIT: "approval", hints.DEADLINE_MS: str(2 * 86_400_000), hints.ON_DEADLINE: "skip"},
    )


def test_a_step_whose_condition_does_not_hold_is_left_out_also_of_a_branch(table: RouteTable) -> None:
    steps = table.plan(event(memory={"enabled": True}))
    assert ids(steps) == ["intent", "enrich", "boss"]
    assert branches(steps[1]) == {"geo": [pending("geo-lookup")], "credit": [pending("score")]}


def test_a_branch_without_steps_is_not_waited_for() -> None:
    never = {"id": "c", "when": {"var": "payload.c"}}
    table = one_route({"id": "p", "parallel": {"a": ["a"], "b": ["b"], "c": [never]}, "join": 3})
    (step,) = table.plan(event())
    assert (set(branches(step)), step.attributes[hints.JOIN]) == ({"a", "b"}, "2")
    (step,) = table.plan(event(c=True))
    assert (set(branches(step)), step.attributes[hints.JOIN]) == ({"a", "b", "c"}, "3")
    assert one_route({"id": "p", "parallel": {"c": [never]}}).plan(event()) == ()


def test_the_timeout_of_a_message_is_that_of_its_route(table: RouteTable) -> None:
    assert table.timeout("chat.message.v1") == dt.timedelta(minutes=5)
    assert one_route("a").timeout("chat.message.v1") is None


def test_an_unknown_type_has_no_route(table: RouteTable) -> None:
    with pytest.raises(NoRoute, match=r"chat\.mesage\.v1.*did you mean chat\.message\.v1") as caught:
        table.plan(event("chat.mesage.v1"))
    assert caught.value.event_type == "chat.mesage.v1"
    with pytest.raises(NoRoute):
        table.timeout("other")


@pytest.mark.parametrize(
    ("event_type", "step"),
    [("chat.message.v1", "exact"), ("chat.message.v2", "message"), ("chat.x", "chat"), ("chat", "any"), ("x", "any")],
)
def test_the_exact_type_wins_over_the_longest_beginning(event_type: str, step: str) -> None:
    types = {"*": "any", "chat.*": "chat", "chat.message.v1": "exact", "chat.message.*": "message"}
    table = RouteTable.of({"routes": {name: {"steps": [step]} for name, step in types.items()}})
    assert ids(table.plan(event(event_type))) == [step]


def test_a_condition_that_cannot_be_decided_says_which() -> None:
    table = one_route({"id": "a", "when": {">": [{"+": [{"var": "payload.total"}, 1]}, 5]}})
    assert ids(table.plan(event(total=7))) == ["a"]
    with pytest.raises(ConditionFailed, match=r'^step a, when: .*"\+" was given something that is no number'):
        table.plan(event(total="seven"))


def test_a_mapping_is_refused_like_a_file_without_lines() -> None:
    with pytest.raises(RouteTableInvalid) as caught:
        one_route("a", {"id": "b", "tpoic": "x"})
    assert str(caught.value) == 'routes.chat.message.v1.steps[1].tpoic: unknown key "tpoic" (did you mean topic?)'


RULES = st.sampled_from([True, False, {"var": "payload"}, {"+": [{"var": "type"}, 1]}])
NAMES = st.text("abcdefgh", min_size=1, max_size=2)
ANYTHING = st.sampled_from(
    [None, True, 0, -1, 2.5, 10**400, float("inf"), "", "router", "a b", [], {}, {"nope": 1}, object()]
)
DURATIONS = st.sampled_from(["10s", "250ms", 2, 0.5])
COMMON = {"when": RULES, "unless": RULES, "optional": st.booleans(), "version": st.sampled_from(["2", 3])}
WORK = {"topic": NAMES, "max_attempts": st.integers(1, 9), "timeout": DURATIONS}
WAITING = {"deadline": DURATIONS, "on_deadline": st.sampled_from(["fail", "skip", "go on"])}
ATTRIBUTES = {"attributes": st.dictionaries(NAMES, st.sampled_from(["x", 1, True, 2.5]), max_size=2)}
SIMPLE_STEPS: st.SearchStrategy[Any] = NAMES | st.fixed_dictionaries(
    {"id": NAMES}, optional={**COMMON, **WORK, **ATTRIBUTES}
)
WAIT_STEPS = st.fixed_dictionaries(
    {"id": NAMES, "wait": st.sampled_from(["approval", "signal"])}, optional={**COMMON, **WAITING}
)
BRANCHES = st.dictionaries(NAMES, st.lists(SIMPLE_STEPS | WAIT_STEPS, min_size=1, max_size=2), min_size=1, max_size=2)
PARALLEL_STEPS = st.fixed_dictionaries(
    {"id": NAMES, "parallel": BRANCHES}, optional={**COMMON, **WAITING, "join": st.sampled_from(["all", "any", 1, 2])}
)
ROUTES = st.lists(SIMPLE_STEPS | WAIT_STEPS | PARALLEL_STEPS, min_size=1, max_size=3)


@st.composite
def spoiled_routes(draw: st.DrawFn) -> list[Any]:
    """A route in which one thing, somewhere, is something else."""
    steps = draw(ROUTES)
    index = draw(st.integers(0, len(steps) - 1))
    if isinstance(steps[index], str):
        steps[index] = draw(ANYTHING)
    else:
        steps[index][draw(st.sampled_from([*steps[index], "x", "a\nb", 1]))] = draw(ANYTHING)
    return steps


@given(ROUTES | spoiled_routes())
def test_whatever_stands_there_it_is_a_table_or_refused_line_by_line(steps: list[Any]) -> None:
    try:
        table = RouteTable.of({"routes": {"chat.message.v1": {"steps": steps}}})
    except RouteTableInvalid as error:
        assert error.problems
        assert len(str(error).splitlines()) == len(error.problems)
        return
    try:
        slip = table.plan(event())
    except ConditionFailed:
        return
    planned = Event(Envelope("1", "s", "c", routing_slip=slip), "t")
    assert decode(encode(planned)) == planned
    assert len(ids(slip)) == len(set(ids(slip)))
