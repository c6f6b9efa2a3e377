"""Whatever planners and workers ask for, what is done stays as it was, and no step is lost or there twice."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.slip import Envelope, Event, InvalidSlip, Itinerary, RoutingStep, Status, hints

NOW = dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC)


def event(*steps: RoutingStep) -> Event:
    return Event(Envelope("1", "test", "c-1", routing_slip=steps), "order.v1")


def step(step_id: str, status: str = "PENDING") -> RoutingStep:
    return RoutingStep(step_id, Status(status))


def itinerary(text: str, at_hand: str | None = None) -> Itinerary:
    """Of `router OK, charge, ship`."""
    steps = [step(*part.split()) for part in text.split(", ")]
    return Itinerary(event(*steps), NOW, at_hand=at_hand)


def shown(made: Itinerary) -> str:
    return ", ".join(one.id if one.status is Status.PENDING else f"{one.id} {one.status}" for one in made.steps)


ASKED: dict[str, tuple[Callable[[Itinerary], None], str]] = {
    "a step is next, unless it is said where": (lambda it: it.insert(step("x")), "router OK, x, a, b, c"),
    "before one": (lambda it: it.insert(step("x"), before="b"), "router OK, a, x, b, c"),
    "after one": (lambda it: it.insert(step("x"), after="b"), "router OK, a, b, x, c"),
    "after what is done is next": (lambda it: it.insert(step("x"), after="router"), "router OK, x, a, b, c"),
    "last": (lambda it: it.append(step("x")), "router OK, a, b, c, x"),
    "these first": (lambda it: it.reorder("c", "b"), "router OK, c, b, a"),
    "not this one": (lambda it: it.skip("b", "no need"), "router OK, a, b SKIP, c"),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_lies_ahead_can_be_changed(case: str) -> None:
    ask, after = ASKED[case]
    made = itinerary("router OK, a, b, c")
    ask(made)
    assert shown(made) == after


SKIPPED: dict[str, tuple[Callable[[Itinerary], None], str]] = {
    "last, where the last is skipped": (lambda it: it.append(step("x")), "router OK, a, b SKIP, x"),
    "before one that is skipped": (lambda it: it.insert(step("x"), before="b"), "router OK, a, x, b SKIP"),
    "after one that is skipped": (lambda it: it.insert(step("x"), after="b"), "router OK, a, b SKIP, x"),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_a_step_that_is_skipped_still_says_where(case: str) -> None:
    ask, after = SKIPPED[case]
    made = itinerary("router OK, a, b")
    made.skip("b")
    ask(made)
    assert shown(made) == after


REFUSED: dict[str, tuple[Callable[[Itinerary], None], str]] = {
    "before what is done": (lambda it: it.insert(step("x"), before="router"), "does not lie ahead any more"),
    "what is done": (lambda it: it.skip("router"), "does not lie ahead any more"),
    "the step at hand": (lambda it: it.skip("a"), "does not lie ahead any more"),
    "an order of what is done": (lambda it: it.reorder("b", "router"), "does not lie ahead any more"),
    "an order with one twice": (lambda it: it.reorder("b", "b"), "named twice"),
    "a step that is there": (lambda it: it.insert(step("b")), "there is a step b already"),
    "a step that is done already": (lambda it: it.insert(step("x", "OK")), "only what is PENDING"),
    "a step nobody knows": (lambda it: it.skip("x"), "there is no step x; ahead are b, c"),
    "both before and after": (lambda it: it.insert(step("x"), before="b", after="b"), "not both"),
    "the router's ids": (lambda it: it.insert(step("undo:a")), "the router's"),
    "a step without an id": (lambda it: it.insert(step("")), "needs an id"),
    "a step that cannot be sent": (lambda it: it.insert(step("two words")), "cannot be used"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(case: str) -> None:
    ask, reason = REFUSED[case]
    made = itinerary("router OK, a, b, c", at_hand="a")
    with pytest.raises(InvalidSlip, match=reason):
        ask(made)
    assert shown(made) == "router OK, a, b, c"
    assert not made.changed


def test_nothing_lies_ahead_of_a_message_that_is_undone() -> None:
    undoing = RoutingStep("undo:a", Status.PENDING, attributes={hints.UNDOES: "a"})
    made = Itinerary(event(step("router", "OK"), step("a", "OK"), step("b", "ERROR"), undoing), NOW)
    assert made.ahead == ()


IDS = st.sampled_from(["router", "a", "b", "c", "d", "x", "y", "undo:a", "", "two words"])
STATUSES = st.sampled_from(Status)
ASKS = st.one_of(
    st.tuples(st.just("insert"), st.tuples(IDS, st.none() | IDS, st.none() | IDS)),
    st.tuples(st.just("append"), st.tuples(IDS)),
    st.tuples(st.just("skip"), st.tuples(IDS)),
    st.tuples(st.just("reorder"), st.lists(IDS, max_size=3).map(tuple)),
)


def ask(made: Itinerary, verb: str, arguments: tuple[str, ...]) -> None:
    match verb, arguments:
        case "insert", (step_id, before, after):
            made.insert(step(step_id), before=before, after=after)
        case "append", (step_id,):
            made.append(step(step_id))
        case "skip", (step_id,):
            made.skip(step_id)
        case _:
            made.reorder(*arguments)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), STATUSES), unique_by=lambda pair: pair[0]),
    st.none() | st.sampled_from("abcd"),
    st.lists(ASKS, max_size=8),
)
def test_what_is_done_is_never_touched(
    steps: list[tuple[str, Status]], at_hand: str | None, asked: list[tuple[str, tuple[str, ...]]]
) -> None:
    before = event(step("router", "OK"), *(RoutingStep(*pair) for pair in steps))
    made = Itinerary(before, NOW, at_hand=at_hand)
    behind = made.behind
    over = [one for one in before.envelope.routing_slip if one.status in {Status.OK, Status.ERROR}]
    for verb, arguments in asked:
        was = made.steps
        try:
            ask(made, verb, arguments)
        except InvalidSlip:
            assert made.steps == was, "what is refused changes nothing"
    after = made.apply(before).envelope.routing_slip
    ids = [one.id for one in after]
    assert after[: len(behind)] == behind
    assert [one for one in after if one.status in {Status.OK, Status.ERROR}] == over
    assert len(set(ids)) == len(ids), "no step is there twice"
    assert {one.id for one in before.envelope.routing_slip} <= set(ids), "no step is lost"
    assert {one.id for one in before.envelope.routing_slip if one.status is Status.SKIP} <= {
        one.id for one in after if one.status is Status.SKIP
    }
