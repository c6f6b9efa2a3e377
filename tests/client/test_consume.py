"""Fetching and settling, against a server."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from slipstream.client import AsyncClient, LeaseLost, NotFound, consume
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@in_loop
async def test_a_fetch_waits_for_a_message_but_not_for_ever(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        assert await client.fetch(topic, "g", wait_ms=1) == []
        async with asyncio.TaskGroup() as group:
            fetch = group.create_task(client.fetch(topic, "g", wait_ms=30_000))
            await client.produce(topic, "at last")
        assert [message.text for message in fetch.result()] == ["at last"]


@in_loop
async def test_a_message_knows_where_it_stands(shared: ServerProcess, topic: str) -> None:
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    async with AsyncClient(shared.base, owner="me") as client:
        await client.produce(topic, '{"total": 3}', key="k")
        (message,) = await client.fetch(topic, "g")
    assert (message.topic, message.group, message.owner) == (topic, "g", "me")
    assert (message.partition, message.offset, message.attempts) == (0, 0, 1)
    assert (message.json(), message.json(dict[str, int])) == ({"total": 3}, {"total": 3})
    assert (message.attributes, message.envelope.run_id, message.routing) == ({}, "", None)
    assert before < message.timestamp < before + dt.timedelta(seconds=60)
    assert repr(message) == f"<AsyncMessage {topic}/0/0 attempt 1>"


@in_loop
async def test_ack_nack_and_extend_say_what_became_of_it(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, ["done", "again", "never", "slow"])
        done, again, never, slow = await client.fetch(topic, "g", lease_ms=60_000)
        await done.ack()
        await again.nack("not yet", delay_ms=0)
        await never.nack("no such customer", retryable=False)
        until_ms = await slow.extend(3_600_000)
        assert until_ms > dt.datetime.now(dt.UTC).timestamp() * 1000 + 3_000_000
        (second,) = await client.fetch(topic, "g", wait_ms=20_000)
        assert (second.text, second.attempts, second.last_error) == ("again", 2, "not yet")
        (letter,) = [letter async for letter in client.dead_letters(topic)]
        assert letter.value == b"never"
        assert (await client.group(topic, "g")).in_flight == 2


@in_loop
async def test_what_is_no_longer_ours_is_named_and_the_rest_counts(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base, owner="a") as one, AsyncClient(shared.base, owner="b") as two:
        await one.produce_batch(topic, ["x", "y"])
        x, y = await one.fetch(topic, "g", lease_ms=1)
        (x_again,) = await two.fetch(topic, "g", max_messages=1, wait_ms=20_000)
        assert x_again.offset == x.offset
        for settle in (one.ack(x, y), one.nack(x), one.extend(x)):
            with pytest.raises(LeaseLost, match="not owner") as caught:
                await settle
            assert [(failure.partition, failure.offset) for failure in caught.value.failures] == [x.place]
        info = await one.group(topic, "g")
        assert [message.offset for message in info.messages] == [x.offset], "y is done"


@in_loop
async def test_messages_of_several_topics_are_acked_together(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.create_topic(topic + ".b")
        await client.produce(topic, "a")
        await client.produce(topic + ".b", "b")
        await client.ack(*await client.fetch(topic, "g"), *await client.fetch(topic + ".b", "h"))
        assert (await client.group(topic, "g")).lag == (await client.group(topic + ".b", "h")).lag == 0


@in_loop
async def test_more_messages_than_fit_into_a_request_are_settled(
    shared: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "PLACES", 3)
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, [str(n) for n in range(10)])
        messages = await client.fetch(topic, "g")
        await client.extend(*messages)
        await client.ack(*messages)
        assert (await client.group(topic, "g")).lag == 0


@in_loop
async def test_an_ack_counts_after_the_server_was_killed(server: ServerProcess, own_topic: str) -> None:
    async with AsyncClient(server.base) as client:
        await client.produce_batch(own_topic, ["a", "b"])
        a, b = await client.fetch(own_topic, "g")
        await a.ack()
        await asyncio.to_thread(server.restart)
        await b.ack()
        await asyncio.to_thread(server.restart)
        await client.ack(a, b)
        info = await client.group(own_topic, "g")
        assert (info.lag, info.in_flight) == (0, 0)


@in_loop
async def test_a_topic_that_is_not_there(shared: ServerProcess) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(NotFound):
            await client.fetch("nowhere", "g")
