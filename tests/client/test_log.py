"""Reading the log, against a server."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from slipstream.api import ARROW, MSGPACK, ReadQuery
from slipstream.client import AsyncClient, InvalidArgument, OffsetOutOfRange, SlipstreamError, compose, log
from slipstream.client.retry import Repeat
from slipstream.testing import MemoryBroker
from tests.client.between import answer, between
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@in_loop
async def test_a_page_says_where_to_read_on(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, ["a", "b", "c"])
        page = await client.read(topic, limit=2)
        assert ([message.value for message in page.messages], page.next_offset) == ([b"a", b"b"], 2)
        page = await client.read(topic, 0, from_=page.next_offset)
        assert ([message.value for message in page.messages], page.next_offset) == ([b"c"], page.end_offset)
        assert [message.value for message in (await client.read(topic, last=1)).messages] == [b"c"]
        now = dt.datetime.now(dt.UTC)
        assert (await client.read(topic, since=now + dt.timedelta(hours=1))).messages == []
        assert len((await client.read(topic, until=now + dt.timedelta(hours=1))).messages) == 3


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, range(25)),
        ({"from_": 20}, range(20, 25)),
        ({"to": 3}, range(3)),
        ({"from_": 5, "to": 8}, range(5, 8)),
        ({"last": 12}, range(13, 25)),
        ({"last": 12, "to": 20}, range(8, 20)),
        ({"from_": 25}, range(0)),
    ],
)
@pytest.mark.parametrize("max_bytes", [1, 40, 1 << 20])
@in_loop
async def test_a_scan_and_a_table_have_the_whole_selection_whatever_the_size_of_a_page(
    shared: ServerProcess, topic: str, selection: log.Selection, expected: range, max_bytes: int
) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, [str(n) for n in range(25)])
        selection = {**selection, "max_bytes": max_bytes}
        assert [int(message.value) async for message in client.scan(topic, **selection)] == [*expected]
        table = await client.read_arrow(topic, **selection)
        assert [int(value) for value in table.column("value").to_pylist()] == [*expected]


@in_loop
async def test_a_scan_comes_to_an_end_though_somebody_produces_on(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, ["a", "b"])
        values = []
        async for message in client.scan(topic, max_bytes=1):
            values.append(message.value)
            await client.produce(topic, "more")
        assert values == [b"a", b"b"]


@in_loop
async def test_a_scan_can_follow(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        values = []
        await client.produce(topic, "0")
        scan = client.scan(topic, follow=True)
        async for message in scan:
            values.append(message.value)
            if len(values) == 4:
                break
            await client.produce(topic, str(len(values)))
        await scan.aclose()
        assert values == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_a_partition_must_be_named_where_there_are_several(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.change_topic(topic, partitions=2)
        with pytest.raises(InvalidArgument, match="partition"):
            await client.read(topic)
        await client.produce_batch(topic, [compose("a", partition_override=0), compose("b", partition_override=1)])
        assert [message.value async for message in client.scan(topic, 1)] == [b"b"]


@in_loop
async def test_what_retention_removed_is_an_error_that_says_where_to_go_on() -> None:
    with MemoryBroker(retention_ms=60_000) as broker:
        async with broker.async_client() as client:
            await client.create_topic("t")
            await client.produce("t", "old")
            await asyncio.to_thread(broker.advance, hours=1)
            while (await client.topic("t")).partitions[0].first_offset == 0:
                await client.produce("t", "new")
            with pytest.raises(OffsetOutOfRange) as caught:
                await client.read("t", from_=0)
            assert caught.value.earliest_offset > 0
            await client.read("t", from_=caught.value.earliest_offset)


@in_loop
async def test_a_read_can_wait_for_something_new(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client, asyncio.TaskGroup() as group:
        page = group.create_task(client.read(topic, from_=0, wait_ms=30_000))
        await client.produce(topic, "at last")
        assert [message.value for message in (await page).messages] == [b"at last"]


@in_loop
async def test_pages_that_lead_nowhere_are_said_to_make_no_sense(shared: ServerProcess, topic: str) -> None:
    """Whoever turned them on would never come to an end."""
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        await client.produce_batch(topic, ["a", "b", "c"])
        path = f"/v2/topics/{topic}/messages"
        for accept in (MSGPACK, ARROW):
            middle.always.clear()
            first = await client._transport.ask("GET", path, Repeat.SAFE, query=ReadQuery(limit=1), accept=accept)
            kept = {name: text for name, text in first.headers.items() if name.startswith(("Slip", "Content-Type"))}
            middle.always[path] = answer(200, first.body, **kept)
            with pytest.raises(SlipstreamError, match="makes no sense"):
                if accept == ARROW:
                    await client.read_arrow(topic)
                else:
                    _ = [message async for message in client.scan(topic)]


@in_loop
async def test_the_offsets_of_topics_and_what_has_changed(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, ["a", "b"])
        answer = await client.offsets([topic, "nowhere"], since=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
        (found,) = answer.topics
        assert (found.name, answer.missing) == (topic, ["nowhere"])
        (partition,) = found.partitions
        assert (partition.first_offset, partition.end_offset, partition.since_offset) == (0, 2, 0)
        waiting = asyncio.create_task(client.offsets([topic], known={topic: [2]}, wait_ms=20_000))
        await client.produce(topic, "c")
        assert (await waiting).topics[0].partitions[0].end_offset == 3
        assert topic in {each.name for each in (await client.offsets()).topics}


@in_loop
async def test_the_files_of_a_partition(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        listed = await client.segments(topic, 0, from_=0, to=5)
        assert listed.directory == str(shared.data.absolute())
        assert (listed.segments, listed.next_offset) == ([], 0)


@in_loop
async def test_a_broker_in_memory_has_no_files() -> None:
    with MemoryBroker() as broker:
        async with broker.async_client() as client:
            await client.create_topic("t")
            await client.produce("t", "a")
            listed = await client.segments("t")
            assert (listed.directory, listed.token, listed.segments, listed.next_offset) == ("", "", [], 0)
