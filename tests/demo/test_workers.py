"""The steps of the demonstration, along its own route table."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Message, open_bus
from slipstream.demo.workers import worker
from slipstream.slip import Progress, Router, load_settings, open_store, submit
from slipstream.up.ports import free_port
from tests.client.loop import in_loop

ENDS = {"completed", "dead-lettered", "waiting"}


async def travel(event_type: str, payload: dict[str, Any]) -> tuple[list[str], str]:
    """What was told of it, and the reply it ended with."""
    settings = load_settings({"retry_base_ms": 1, "poll_ms": 20})
    told: list[Progress] = []
    replies: list[str] = []
    at_rest = asyncio.Event()

    async def hear(message: Message) -> None:
        told.extend(message.json(list[Progress]))
        if any(progress.kind in ENDS for progress in told):
            at_rest.set()

    async def deliver(message: Message) -> None:
        replies.append(message.json()["payload"]["reply"])

    routes = str(files("slipstream.demo") / "routes.yaml")
    async with (
        open_bus(driver="memory", registry=CollectorRegistry()) as bus,
        open_store(":memory:") as store,
    ):
        await bus.subscribe("slip.events", "test", hear)
        await bus.subscribe("egress.deliver.v1", "test", deliver)
        async with Router(routes).running(bus, store, settings), worker.running(bus, store, settings):
            await submit(bus, event_type, payload, source="test", correlation_id="c-1")
            await at_rest.wait()
    kinds = [f"{progress.kind} {progress.step}".strip() for progress in sorted(told, key=lambda each: each.at)]
    return kinds, replies[0] if replies else ""


@in_loop
async def test_a_question_is_answered_after_as_many_failures_as_it_says() -> None:
    told, reply = await travel("chat.message.v1", {"text": "how do I reset it?", "failures": 2})
    assert told.count("retried reply") == 2
    assert told[-1] == "completed"
    assert reply == "To reset Brindle, hold the round button for ten seconds until the ring turns white. (see: Reset)"


@in_loop
async def test_a_greeting_needs_no_documents() -> None:
    told, reply = await travel("chat.message.v1", {"text": "hello", "failures": 0})
    assert "skipped retrieval" in told
    assert reply == "Hello. Ask me about Brindle."


@in_loop
async def test_what_nobody_knows_is_said_to_be() -> None:
    _, reply = await travel("chat.message.v1", {"text": "xyzzy?", "failures": 0})
    assert reply.startswith("I do not know.")


@in_loop
async def test_a_message_without_words_is_a_dead_letter() -> None:
    for text in ("", 17, None):
        told, _ = await travel("chat.message.v1", {"text": text})
        assert told[-1] == "dead-lettered intent"


@in_loop
async def test_an_attachment_that_no_service_takes_is_tried_again_and_then_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBS_URL", f"http://127.0.0.1:{free_port()}")
    told, reply = await travel("chat.message.v1", {"text": "hello", "failures": 0, "attachment": "ftp://no"})
    assert told.count("retried fetch") == 2, "as often as a step is tried where nobody says"
    assert "skipped fetch" in told
    assert reply == "Hello. Ask me about Brindle."


@in_loop
async def test_a_small_refund_is_paid() -> None:
    assert (await travel("refund.requested.v1", {"amount": 20, "account": "ada"}))[1] == "20 paid to ada"


@in_loop
async def test_a_large_refund_waits_for_somebody() -> None:
    told, _ = await travel("refund.requested.v1", {"amount": 480, "account": "grace"})
    assert told[-1] == "waiting manager"


@in_loop
async def test_what_was_reserved_is_released_when_the_account_is_closed() -> None:
    told, _ = await travel("refund.requested.v1", {"amount": 35, "account": "closed"})
    assert "compensated undo:reserve" in told
    assert told[-1] == "dead-lettered pay"


@in_loop
async def test_a_refund_of_nothing_is_refused() -> None:
    told, _ = await travel("refund.requested.v1", {"amount": -3})
    assert told[-1] == "dead-lettered reserve"
