"""One message is one trace, whoever handles it, however often, and however long it waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from slipstream import spans as spans_module
from slipstream.bus import Bus, Message
from slipstream.bus.opening import Opening
from slipstream.slip import Control, StepFailed, Work, Worker, submit
from slipstream.slip.topics import INGRESS, ROUTER
from slipstream.spans import continued, look_again, trace_id
from tests.client.loop import in_loop
from tests.slip.lab import Lab, fast, lab, table

OpenBus = Callable[[], Opening]

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    look_again()
    yield exporter
    monkeypatch.undo()
    look_again()


def new_event(**envelope: Any) -> bytes:
    fields = {"v": "1", "source": "elsewhere", "correlationId": "c-1", **envelope}
    return json.dumps({"envelope": fields, "type": "order.v1", "payload": {}}).encode()


def worker_of(*steps: str, failing: int = 0) -> Worker:
    worker = Worker()
    for step_id in steps:

        @worker.step(step_id)
        async def do(work: Work) -> dict[str, Any]:
            if work.attempt < failing:
                raise StepFailed("busy", "later")
            return {"reply": "done"}

    return worker


async def delivered(seen: Lab) -> Any:
    await seen.ended()
    await seen.until(lambda: bool(seen.delivered))
    return seen.delivered[0]["envelope"]


def story(exporter: InMemorySpanExporter) -> list[tuple[str, str]]:
    """Each span with the name of its parent, in the order in which they began."""
    found: list[ReadableSpan] = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    names = {span.context.span_id: span.name for span in found if span.context is not None}
    return [(span.name, names.get(span.parent.span_id, "elsewhere") if span.parent else "") for span in found]


def traces(exporter: InMemorySpanExporter) -> set[str]:
    return {f"{span.context.trace_id:032x}" for span in exporter.get_finished_spans() if span.context is not None}


@in_loop
async def test_the_spans_of_a_message_follow_each_other_also_across_retries(
    memory_bus: OpenBus, spans: InMemorySpanExporter
) -> None:
    worker = worker_of("charge", "ship", failing=1)
    async with memory_bus() as bus, lab(bus, table("charge", "ship"), worker) as seen:
        with trace.get_tracer("test").start_as_current_span("client"):
            await seen.submit()
        envelope = await delivered(seen)
    assert story(spans) == [
        ("client", ""),
        ("submit", "client"),
        ("route", "submit"),
        ("step charge", "route"),
        ("step charge", "step charge"),
        ("route", "step charge"),
        ("step ship", "route"),
        ("step ship", "step ship"),
        ("route", "step ship"),
        ("deliver", "route"),
    ]
    assert traces(spans) == {envelope["traceId"]}
    assert {one.trace_id for one in seen.progress} == {envelope["traceId"]}
    failed = [span for span in spans.get_finished_spans() if span.status.status_code is trace.StatusCode.ERROR]
    assert [(span.name, dict(span.attributes or {})["slip.attempt"]) for span in failed] == [
        ("step charge", 0),
        ("step ship", 0),
    ]


@pytest.mark.parametrize("traceparent", ["", "junk", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"])
@in_loop
async def test_a_message_that_comes_without_a_trace_has_one_from_then_on(
    memory_bus: OpenBus, spans: InMemorySpanExporter, traceparent: str
) -> None:
    async with memory_bus() as bus, lab(bus, table("charge"), worker_of("charge")) as seen:
        await bus.publish(INGRESS, new_event(), {"traceparent": traceparent})
        envelope = await delivered(seen)
    assert traces(spans) == {envelope["traceId"]}
    assert int(envelope["traceId"], 16)


@in_loop
async def test_the_trace_that_the_envelope_names_is_the_one(memory_bus: OpenBus, spans: InMemorySpanExporter) -> None:
    async with memory_bus() as bus, lab(bus, table("charge"), worker_of("charge")) as seen:
        await submit(bus, "order.v1", {}, source="test", correlation_id="c-1", trace_id=TRACE)
        envelope = await delivered(seen)
    assert traces(spans) == {TRACE} == {envelope["traceId"]}


@in_loop
async def test_a_trace_id_of_another_kind_stays_on_the_envelope(
    memory_bus: OpenBus, spans: InMemorySpanExporter
) -> None:
    async with memory_bus() as bus, lab(bus, table("charge"), worker_of("charge")) as seen:
        await bus.publish(INGRESS, new_event(traceId="t-abc"), {"traceparent": f"00-{TRACE}-{SPAN}-01"})
        envelope = await delivered(seen)
    assert envelope["traceId"] == "t-abc"
    assert traces(spans) == {TRACE}


async def answer_for(bus: Bus, topic: str) -> None:
    """A service in another language, which sends no attributes."""

    async def work(message: Message) -> None:
        event = message.json()
        step = next(step for step in event["envelope"]["routingSlip"] if step["status"] == "PENDING")
        step["status"] = "OK"
        await bus.publish(ROUTER, json.dumps(event), {"traceparent": ""})

    await bus.subscribe(topic, "elsewhere", work)


@in_loop
async def test_a_service_that_sends_no_attributes_does_not_break_the_trace(
    memory_bus: OpenBus, spans: InMemorySpanExporter
) -> None:
    async with memory_bus() as bus, lab(bus, table("foreign", "ship"), worker_of("ship")) as seen:
        await answer_for(bus, "internal.foreign.v1")
        await seen.submit()
        envelope = await delivered(seen)
    assert len(spans.get_finished_spans()) == 6
    assert traces(spans) == {envelope["traceId"]}


@pytest.mark.parametrize("by", ["control", "signal"])
@in_loop
async def test_a_message_that_has_waited_goes_on_in_its_trace(
    memory_bus: OpenBus, spans: InMemorySpanExporter, by: str
) -> None:
    waits = {"id": "manager", "wait": "approval"}
    async with memory_bus() as bus, lab(bus, table(waits, "ship"), worker_of("ship")) as seen:
        await seen.submit()
        await seen.told("waiting manager")
        if by == "control":
            await Control(seen.store, seen.settings).approve("c-1", "manager")
        else:
            await bus.publish("slip.signals", '{"type": "signal", "correlationId": "c-1", "step": "manager"}')
        envelope = await delivered(seen)
    assert "step ship" in [name for name, _ in story(spans)]
    assert traces(spans) == {envelope["traceId"]}


@in_loop
async def test_without_opentelemetry_a_message_stays_in_its_trace(
    memory_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans_module, "_trace", None)
    came: list[str] = []
    waits = {"id": "manager", "wait": "approval"}
    worker = Worker()

    @worker.step("ship")
    async def ship(work: Work) -> dict[str, Any]:
        came.append(work.message.attributes["traceparent"])
        return {"reply": "done"}

    async with memory_bus() as bus, lab(bus, table("foreign", waits, "ship"), worker, settings=fast()) as seen:
        await answer_for(bus, "internal.foreign.v1")
        await bus.publish(INGRESS, new_event(), {"traceparent": ""})
        await Control(seen.store, seen.settings).approve("c-1", "manager")
        envelope = await delivered(seen)
    assert [trace_id(one) for one in came] == [envelope["traceId"]]


def test_where_a_message_goes_on() -> None:
    inside = f"00-{TRACE}-{SPAN}-00"
    other = f"00-{'a' * 32}-{SPAN}-01"
    assert continued(inside, None) == continued(inside, TRACE) == continued(inside, "t-abc") == inside
    assert trace_id(continued(other, TRACE)) == trace_id(continued("", TRACE)) == TRACE
    assert trace_id(continued("", None)) is not None
    assert trace_id(continued("", "t-abc")) is not None
