"""Producing, against a server."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.api import EnvelopeFields, Placed, ProduceMessage, RetryPolicyFields
from slipstream.client import AsyncClient, Conflict, InvalidArgument, NotFound, Overloaded, TooLarge, compose
from slipstream.client.produce import Outgoing
from slipstream.testing import MemoryBroker
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@in_loop
async def test_any_bytes_travel(shared: ServerProcess, topic: str) -> None:
    every = bytes(range(256))
    async with AsyncClient(shared.base) as client:
        await client.produce(topic, every, key=every)
        (message,) = await client.fetch(topic, "g")
        assert (message.key, message.value) == (every, every)


@in_loop
async def test_text_travels_as_utf_8(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        assert await client.produce(topic, "grüße", key="ключ") == Placed(0, 0)
        (message,) = await client.fetch(topic, "g")
        assert (message.key.decode(), message.text) == ("ключ", "grüße")


@in_loop
async def test_everything_a_message_may_have_arrives(shared: ServerProcess, topic: str) -> None:
    deadline = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(hours=1)
    async with AsyncClient(shared.base) as client:
        await client.produce(
            topic,
            "v",
            key="k",
            attributes={"traceparent": "00-1"},
            idempotency_key="i",
            tenant_id="t",
            run_id="r",
            step_id="s",
            parent_step_id="p",
            deadline=deadline,
            retry_policy=RetryPolicyFields(max_attempts=3, backoff_ms=5),
            partition_override=0,
            labels={"a": "b"},
        )
        (message,) = await client.fetch(topic, "g")
    envelope = message.envelope
    assert message.attributes == {"traceparent": "00-1"}
    assert (envelope.idempotency_key, envelope.tenant_id, envelope.run_id) == ("i", "t", "r")
    assert (envelope.step_id, envelope.parent_step_id, envelope.labels) == ("s", "p", {"a": "b"})
    assert (envelope.deadline, envelope.partition_override) == (deadline, 0)
    assert envelope.retry_policy is not None
    assert (envelope.retry_policy.max_attempts, envelope.retry_policy.backoff_ms) == (3, 5)


@in_loop
async def test_a_message_can_be_for_later(shared: ServerProcess, topic: str) -> None:
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(
            topic, [compose("in an hour", deliver_at=later), compose("in a moment", delay_ms=3_000), "now"]
        )
        (now,) = await client.fetch(topic, "g", wait_ms=20_000)
        (soon,) = await client.fetch(topic, "g", wait_ms=20_000)
        assert (now.text, soon.text) == ("now", "in a moment")
        assert (await client.group(topic, "g")).delayed == 1


@in_loop
async def test_a_message_may_go_to_another_topic(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.create_topic(topic + ".large")
        assert await client.produce(topic, "v", target_topic=topic + ".large") == Placed(0, 0, topic=topic + ".large")


@in_loop
async def test_a_batch_is_stored_as_a_whole_or_not_at_all(shared: ServerProcess, topic: str) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    async with AsyncClient(shared.base) as client:
        with pytest.raises(InvalidArgument, match="message 1"):
            await client.produce_batch(topic, ["good", compose("late", deadline=past)])
        assert (await client.read(topic)).messages == []
        whole: list[Outgoing] = [ProduceMessage(value=b"a", envelope=EnvelopeFields(run_id="r")), b"b", "c"]
        assert [placed.offset for placed in await client.produce_batch(topic, whole)] == [0, 1, 2]
        assert await client.produce_batch(topic, []) == []


@in_loop
async def test_a_batch_with_a_key_is_stored_once_and_cannot_become_another(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base, backoff_ms=500) as client:
        first = await client.produce_batch(topic, ["a", "b"], idempotency_key="import-7")
        again = await client.produce_batch(topic, ["a", "b"], idempotency_key="import-7")
        assert [(placed.offset, placed.deduplicated) for placed in first] == [(0, False), (1, False)]
        assert [(placed.offset, placed.deduplicated) for placed in again] == [(0, True), (1, True)]
        with pytest.raises(Conflict, match="batch of 2"):
            await client.produce_batch(topic, ["a", "b", "c"], idempotency_key="import-7")


@in_loop
async def test_what_is_wrong_is_said_by_name(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(NotFound, match="nowhere"):
            await client.produce("nowhere", "v")
        with pytest.raises(InvalidArgument, match="timezone"):
            await client.produce(topic, "v", deadline=dt.datetime(2030, 1, 1))
        with pytest.raises(InvalidArgument, match="cannot be sent"):
            await client.produce(topic, "v", attributes={"a": {1, object()}})  # type: ignore[dict-item]
        with pytest.raises(InvalidArgument, match="typo"):
            await client.produce(topic, "v", typo="x")  # type: ignore[call-arg]


@in_loop
async def test_what_is_too_large_or_too_much() -> None:
    with MemoryBroker(max_batch_bytes=10_000, max_waiting_messages=2) as broker:
        async with broker.async_client(retry_for_ms=0) as client:
            await client.create_topic("t")
            with pytest.raises(TooLarge):
                await client.produce("t", b"x" * 20_000)
            await client.fetch("t", "g")  # somebody has to be behind
            await client.produce_batch("t", ["a", "b"])
            with pytest.raises(Overloaded) as caught:
                await client.produce("t", "c")
            assert caught.value.retry_after_ms == 1_000
