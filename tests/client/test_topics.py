"""Topics, against a server."""

from __future__ import annotations

import pytest

from slipstream.api import RetryPolicyFields, TopicConfigFields
from slipstream.client import AsyncClient, BrokerFull, InvalidArgument, NotFound
from slipstream.testing import MemoryBroker
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@in_loop
async def test_the_life_of_a_topic() -> None:
    with MemoryBroker() as broker:
        async with broker.async_client() as client:
            config = TopicConfigFields(retention_ms=1_000_000, retry=RetryPolicyFields(max_attempts=3))
            made = await client.create_topic("orders", 2, config=config)
            assert (made.created, made.topic.config.retention_ms) == (True, 1_000_000)
            assert not (await client.create_topic("orders", 7)).created
            assert [(topic.name, topic.partitions) for topic in await client.topics()] == [("orders", 2)]
            changed = await client.change_topic(
                "orders", config=TopicConfigFields(max_in_flight=5), reset=["retention_ms"], partitions=3
            )
            assert (changed.overrides.max_in_flight, changed.overrides.retention_ms) == (5, None)
            assert len((await client.topic("orders")).partitions) == 3
            await client.delete_topic("orders")
            assert await client.topics() == []


@in_loop
async def test_a_topic_that_is_not_there(shared: ServerProcess) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(NotFound, match="nowhere"):
            await client.topic("nowhere")
        with pytest.raises(NotFound):
            await client.delete_topic("nowhere")


@pytest.mark.parametrize("name", ["a/b", "a b", "a?b=c", "ä", "%2e", "", "x" * 201])
@in_loop
async def test_a_name_that_is_none_leads_nowhere_else(shared: ServerProcess, name: str) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(InvalidArgument):
            await client.create_topic(name)
        if name:
            with pytest.raises(NotFound):
                await client.topic(name)


@in_loop
async def test_a_full_server_is_not_asked_again_and_again() -> None:
    with MemoryBroker(max_topics=1) as broker:
        async with broker.async_client() as client:
            await client.create_topic("orders")
            with pytest.raises(BrokerFull, match="max_topics") as full:
                await client.create_topic("invoices")
            assert (full.value.status, full.value.code) == (507, "RESOURCE_EXHAUSTED")
