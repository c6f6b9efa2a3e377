"""Following a topic of a server whose messages, or which itself, may go."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from slipstream.bus import TopicMissing, open_bus
from slipstream.bus.drivers.http.follow import read_on
from slipstream.client import AsyncClient
from slipstream.testing import MemoryBroker
from tests.bus.sites.http import HttpSite
from tests.client.loop import in_loop, until


@in_loop
async def test_a_start_that_retention_has_removed_is_the_oldest_there_is() -> None:
    with MemoryBroker() as broker:
        async with open_bus(driver="http", url=broker.url) as bus:
            await bus.ensure_topic("orders", retention=3600)
            for number in range(10):
                await bus.publish("orders", str(number))
            await asyncio.to_thread(broker.advance, hours=2)

            async def all_are_gone() -> bool:
                return not (await bus.native.topic("orders")).partitions[0].messages

            await until(all_are_gone)
            await bus.publish("orders", "last")
            async with contextlib.aclosing(bus.follow("orders", start=3)) as batches:
                assert [(one.offset, one.data) for one in await anext(batches)] == [(10, b"last")]


@in_loop
async def test_one_whose_topic_is_deleted_is_told(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        await bus.ensure_topic("follow1")
        waiting = asyncio.ensure_future(anext(bus.follow("follow1")))
        await asyncio.wait({waiting}, timeout=0.2)
        await bus.native.delete_topic("follow1")
        with pytest.raises(TopicMissing):
            await waiting


@in_loop
async def test_it_waits_for_its_server_longer_than_a_client_repeats_a_request(
    own_site: HttpSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    own_site.server.create(topic)
    async with (
        AsyncClient(own_site.server.base, retry_for_ms=0) as client,
        contextlib.aclosing(read_on(client, topic, 0, None)) as pages,
    ):
        coming = asyncio.ensure_future(anext(pages))
        await asyncio.wait({coming}, timeout=0.2)
        own_site.stop_server()
        with caplog.at_level(logging.INFO):
            while "cannot be followed" not in caplog.text:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(own_site.start_server)
            own_site.server.produce(topic, "a")
            assert [one.data for one in await coming] == [b"a"]
    told = [record.getMessage() for record in caplog.records if record.name == "slipstream.bus.drivers.http.follow"]
    assert [line.split(":")[0] for line in told] == [
        f"{topic}/0 cannot be followed for now",
        f"{topic}/0 is followed again",
    ]
