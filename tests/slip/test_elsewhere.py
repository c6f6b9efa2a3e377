"""A service in another language, which knows the seed's contract and nothing else: JSON in, JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus import Bus, Message
from slipstream.bus.bus import Opening
from slipstream.slip import Control, Work, Worker
from slipstream.slip.lookup import look_up
from slipstream.slip.topics import INGRESS, ROUTER
from tests.client.loop import in_loop
from tests.slip.lab import lab, table

OpenBus = Callable[[], Opening]

NEW = {
    "envelope": {"v": "1", "source": "ingress.twitch", "correlationId": "c-1", "traceId": "t-abc"},
    "type": "order.v1",
    "payload": {"text": "!hello"},
}


async def serve(bus: Bus, step_id: str, *outcomes: dict[str, Any], times: int = 1) -> list[dict[str, Any]]:
    """Each time it is asked, the next outcome; the last again and again."""
    asked: list[dict[str, Any]] = []

    async def work(message: Message) -> None:
        event = json.loads(message.data)
        (step,) = [one for one in event["envelope"]["routingSlip"] if one["id"] == step_id]
        asked.append(dict(step))
        step |= {"endedAt": "2099-01-01T00:00:00.000Z"} | outcomes[min(len(asked), len(outcomes)) - 1]
        event["payload"]["reply"] = f"from {step_id}"
        for _ in range(times):
            await bus.publish(ROUTER, json.dumps(event))

    await bus.subscribe(f"internal.{step_id}.v1", "elsewhere", work)
    return asked


def ours() -> Worker:
    worker = Worker()

    @worker.step("ship")
    async def ship(work: Work) -> None:
        """Does nothing, well."""

    return worker


@in_loop
async def test_a_step_done_elsewhere_is_seen_like_any_other(any_bus: OpenBus) -> None:
    async with any_bus() as bus, lab(bus, table("bot", "ship"), ours()) as seen:
        asked = await serve(bus, "bot", {"status": "OK", "notes": "anything: {not json"})
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.ended()
        await seen.until(lambda: bool(seen.delivered))
    assert asked[0]["status"] == "PENDING"
    assert seen.delivered[0]["payload"]["reply"] == "from bot"
    assert seen.delivered[0]["envelope"]["traceId"] == "t-abc"
    assert set(seen.kinds()) == {"planned", "finished bot", "started ship", "finished ship", "completed"}


@in_loop
async def test_the_first_outcome_from_elsewhere_counts(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("bot", "ship"), ours()) as seen:
        await serve(bus, "bot", {"status": "OK"}, times=3)
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.ended()
        await seen.until(lambda: bool(seen.delivered))
    assert seen.kinds().count("finished ship") == 1
    assert len(seen.delivered) == 1


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ({"status": "ERROR"}, "unknown"),
        ({"status": "ERROR", "error": {"code": "broken"}}, "broken"),
        ({"status": "ERROR", "error": {"code": "busy", "retryable": True}}, "busy"),
    ],
)
@in_loop
async def test_a_failure_elsewhere_is_a_dead_letter_after_its_attempts(
    memory_bus: OpenBus, outcome: dict[str, Any], code: str
) -> None:
    async with memory_bus() as bus, lab(bus, table("bot", "ship"), ours()) as seen:
        asked = await serve(bus, "bot", outcome)
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.ended()
        await seen.until(lambda: bool(seen.dead))
    assert seen.dead[0]["error"]["code"] == code
    tries = 3 if code == "busy" else 1
    assert [one.get("attempt") for one in asked] == list(range(tries))
    assert seen.kinds().count("retried bot") == tries - 1
    assert seen.kinds().count("failed bot") == 1


@in_loop
async def test_a_message_can_be_run_again_from_where_another_service_left_it(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("bot", "nobody")) as seen:
        await serve(bus, "bot", {"status": "OK"})
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.told("finished bot")
        await Control(seen.store, seen.settings).rerun("c-1", "nobody")
        await seen.told("rerun")
        known = await look_up(seen.store, "c-1")
    assert known is not None
    assert {step.id: step.status for step in known.newest[0].envelope.routing_slip}["bot"] == "OK"
