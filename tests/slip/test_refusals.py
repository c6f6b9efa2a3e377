"""What makes no sense is refused where it is asked for, with a reason that says what would."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus.errors import InvalidArgument
from slipstream.bus.opening import Opening
from slipstream.slip import (
    Control,
    InvalidSlip,
    Pause,
    Retries,
    Router,
    Signal,
    Worker,
    load_settings,
    open_store,
    serving,
    submit,
)
from tests.client.loop import in_loop
from tests.slip.lab import table

OpenBus = Callable[[], Opening]

ENDLESS: dict[str, Any] = {}
ENDLESS["again"] = ENDLESS

SUBMITTED: dict[str, tuple[dict[str, Any], str]] = {
    "no type": ({"event_type": ""}, "type"),
    "a type that is no text": ({"event_type": 5}, "type"),
    "a payload of objects": ({"payload": {"x": object()}}, "payload cannot be sent as JSON"),
    "a payload with half a character": ({"payload": {"x": "\ud800"}}, "payload cannot be sent as JSON"),
    "a payload without end": ({"payload": ENDLESS}, "payload cannot be sent as JSON"),
    "a payload whose names are no text": ({"payload": {(1, 2): 3}}, "payload cannot be sent as JSON"),
    "a time-out in the past": ({"timeout": -1}, "timeout=-1"),
    "no time at all": ({"timeout": dt.timedelta()}, "timeout="),
    "a time-out that is no number": ({"timeout": float("nan")}, "timeout=nan"),
    "a time-out that never comes": ({"timeout": float("inf")}, "timeout=inf"),
    "a time-out in words": ({"timeout": "soon"}, "number of seconds"),
    "a source that is no text": ({"source": 5}, "source"),
    "an id that is no text": ({"correlation_id": 5}, "correlationId"),
    "a trace that is no text": ({"trace_id": 5}, "traceId"),
    "a reply to nowhere": ({"reply_to": "two words"}, "replyTo: topic 'two words'"),
}


@pytest.mark.parametrize("case", SUBMITTED)
@in_loop
async def test_an_event_that_nobody_could_route_is_not_taken(memory_bus: OpenBus, case: str) -> None:
    wrong, reason = SUBMITTED[case]
    async with memory_bus() as bus:
        with pytest.raises(InvalidSlip, match=reason):
            await submit(bus, **{"event_type": "order.v1", "payload": {}, "source": "test", **wrong})


async def work(work: object) -> None:
    """A step that does nothing."""


STEPS: dict[str, tuple[Callable[[Worker], Any], str]] = {
    "a decorator without its id": (lambda worker: worker.step(work), "Write @worker.step"),  # type: ignore[arg-type]
    "no id": (lambda worker: worker.step(""), "a step has an id"),
    "an id that is none": (lambda worker: worker.step(None), "a step has an id"),  # type: ignore[arg-type]
    "the router's step": (lambda worker: worker.step("router"), "the router's"),
    "an undoing as a step": (lambda worker: worker.step("undo:charge"), r"@worker.undo\('charge'\)"),
    "no time": (lambda worker: worker.step("charge", timeout=0), "timeout=0"),
    "time that is over": (lambda worker: worker.step("charge", timeout=-1), "timeout=-1"),
    "no time to undo": (lambda worker: worker.undo("charge", timeout=0), "timeout=0"),
    "nothing at a time": (lambda worker: worker.step("charge", max_in_flight=0), "at least one"),
    "pauses that are over": (lambda worker: worker.step("charge", retries=Retries(-1)), "0 ms or longer"),
    "a function without work": (lambda worker: worker.step("charge")(lambda: None), "is called with"),
    "no function": (lambda worker: worker.step("charge")(None), "a handler is a function"),  # type: ignore[type-var]
    "an aggregator without time": (lambda worker: worker.aggregator(timeout=-1), "timeout=-1"),
    "an aggregator without id": (lambda worker: worker.aggregator(""), "a step has an id"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_that_cannot_be_done_is_not_registered(case: str) -> None:
    register, reason = STEPS[case]
    with pytest.raises(InvalidSlip, match=reason):
        register(Worker())


def test_an_id_that_makes_no_topic_is_refused_by_the_bus() -> None:
    with pytest.raises(InvalidArgument, match="cannot be used"):
        Worker().step("two words")(work)


def test_one_function_a_topic() -> None:
    worker = Worker()
    worker.step("charge")(work)
    with pytest.raises(InvalidSlip, match="already"):
        worker.step("charge")(work)


def plan(event: object, itinerary: object) -> None:
    """A planner that plans nothing."""


PLANNERS: dict[str, tuple[Callable[[Router], Any], str]] = {
    "a decorator without its type": (lambda router: router.planner(plan), "Write @router.planner"),  # type: ignore[arg-type]
    "no type": (lambda router: router.planner(""), "Write @router.planner"),
    "a function of one thing": (lambda router: router.planner("order.*")(work), "event and itinerary"),
    "no function": (lambda router: router.planner("order.*")(None), "event and itinerary"),  # type: ignore[type-var]
}


@pytest.mark.parametrize("case", PLANNERS)
def test_a_planner_that_could_not_be_asked_is_not_registered(case: str) -> None:
    register, reason = PLANNERS[case]
    with pytest.raises(InvalidSlip, match=reason):
        register(Router(table("charge")))


@pytest.mark.parametrize("routes", [None, {"routes": {}}, 5])
def test_a_router_needs_routes(routes: Any) -> None:
    with pytest.raises(InvalidSlip, match=r"RouteTable\.of"):
        Router(routes)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_pause_has_a_length_and_an_end(seconds: float) -> None:
    with pytest.raises(InvalidSlip, match="seconds="):
        Pause("the bank is away", seconds=seconds)


CONTROLS: dict[str, tuple[Callable[[Control], Any], str]] = {
    "no message": (lambda control: control.approve("", "manager"), "correlationId"),
    "no step": (lambda control: control.deny("c-1", ""), "id of the step"),
    "neither yes nor no": (lambda control: control.signal(Signal("c-1", "manager", "maybe")), "maybe"),  # type: ignore[arg-type]
    "data that cannot be kept": (lambda control: control.approve("c-1", "manager", data=object()), "as JSON"),
    "a pause of nothing": (lambda control: control.pause(""), "which step"),
    "a pause that is over": (lambda control: control.pause("charge", seconds=-1), "seconds=-1"),
    "a pause of no length": (lambda control: control.pause("charge", seconds=float("nan")), "seconds=nan"),
    "a message that is not known": (lambda control: control.rerun("c-1", "charge"), "nothing is kept of c-1"),
    "a copy of nothing": (lambda control: control.copy("c-1", "charge"), "nothing is kept of c-1"),
}


@pytest.mark.parametrize("case", CONTROLS)
@in_loop
async def test_what_cannot_be_done_with_a_message_is_refused(case: str) -> None:
    act, reason = CONTROLS[case]
    async with open_store(":memory:") as store:
        with pytest.raises(InvalidSlip, match=reason):
            await act(Control(store, load_settings({}, {})))
        assert await store.due("router", 2**53, limit=1, lease_ms=1) == []


@in_loop
async def test_a_service_of_nothing_does_not_start() -> None:
    with pytest.raises(InvalidSlip, match="a router, workers, or both"):
        async with serving(driver="memory"):
            raise AssertionError("it has started")


@in_loop
async def test_a_worker_without_a_step_does_not_start(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, open_store(":memory:") as store:
        with pytest.raises(InvalidSlip, match="no step"):
            async with Worker().running(bus, store, load_settings({}, {})):
                raise AssertionError("it has started")


@pytest.mark.parametrize(
    ("given", "environment", "reason"),
    [
        ({"max_atempts": 3}, {}, "no setting 'max_atempts'"),
        ({"max_attempts": 0}, {}, "max_attempts=0"),
        ({}, {"SLIP_MAX_ATTEMPTS": "x"}, "SLIP_MAX_ATTEMPTS='x'"),
        ({}, {"SLIP_DECENTRALISED": "maybe"}, "true or false"),
        ({}, {"SLIP_POLL_MS": "0"}, "SLIP_POLL_MS"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: Any, environment: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSlip, match=reason):
        load_settings(given, environment)
