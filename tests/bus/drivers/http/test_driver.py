"""What is special about a bus on a Slipstream server; what is the same on every driver is tested above."""

from __future__ import annotations

import asyncio
import time

import pytest

from slipstream.bus import (
    BusUnavailable,
    InvalidArgument,
    PublishFailed,
    TopicMissing,
    open_bus,
)
from slipstream.client import AsyncClient
from slipstream.testing import MemoryBroker
from tests.bus.recorder import Recorder
from tests.bus.sites.http import HttpSite
from tests.client.between import answer, between, cut_after, hold, overloaded
from tests.client.loop import in_loop

# Opening


@in_loop
async def test_where_nothing_answers_opening_ends_in_time_and_says_what_to_do() -> None:
    began = time.monotonic()
    with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1:9 .* slipstream serve.* SLIPSTREAM_URL"):
        await open_bus(driver="http", url="http://127.0.0.1:9", connect_timeout_ms=500)
    assert time.monotonic() - began < 8, "it took the ten seconds that are usual, whatever it was told"


@in_loop
async def test_a_server_that_takes_the_connection_and_says_nothing_is_not_waited_for(shared_site: HttpSite) -> None:
    async with between(shared_site.server.base, hold) as middle:
        with pytest.raises(BusUnavailable, match=r"no answer from .* in 0\.3 s; start one with: slipstream serve"):
            await open_bus(driver="http", url=middle.url, connect_timeout_ms=300)


@in_loop
async def test_opening_waits_for_a_server_that_is_on_its_way(shared_site: HttpSite) -> None:
    async with (
        between(shared_site.server.base, answer(503), answer(502)) as middle,
        open_bus(driver="http", url=middle.url) as bus,
    ):
        assert isinstance(bus.native, AsyncClient)
        assert middle.seen == ["/v2/topics"] * 3


@in_loop
async def test_what_is_no_slipstream_server_is_told_apart_from_none(shared_site: HttpSite) -> None:
    async with between(shared_site.server.base, answer(200, b"<html>hello</html>")) as middle:
        with pytest.raises(BusUnavailable) as refused:
            await open_bus(driver="http", url=middle.url)
        assert str(refused.value) == (
            f"{middle.url} is no Slipstream server: it answered GET /v2/topics with 200; "
            "start one with: slipstream serve, or set SLIPSTREAM_URL"
        )


def test_an_address_that_is_none_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(InvalidArgument, match="is no address of a server"):
        open_bus(driver="http", url="localhost:8080")


# Publishing


@in_loop
async def test_a_message_id_is_stored_once_in_one_batch_or_in_several(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        together = await asyncio.gather(*(bus.publish("dedupe", "a", message_id="a") for _ in range(3)))
        later = await bus.publish("dedupe", "a", message_id="a")
        other = await bus.publish("dedupe", "b", message_id="b")
        assert [*together, later, other] == ["0/0", "0/0", "0/0", "0/0", "0/1"]
        assert [stored.data async for stored in bus.read("dedupe")] == [b"a", b"b"]


@in_loop
async def test_a_message_whose_answer_got_lost_is_stored_once(shared_site: HttpSite) -> None:
    async with (
        between(shared_site.server.base) as middle,
        open_bus(driver="http", url=middle.url) as bus,
    ):
        await bus.ensure_topic("lost-answer")
        middle.acts = [cut_after]
        assert await bus.publish("lost-answer", "a") == "0/0"
        assert [stored.data async for stored in bus.read("lost-answer")] == [b"a"]


@in_loop
async def test_publishing_makes_the_topic_as_the_settings_say_and_again_when_it_is_deleted(
    shared_site: HttpSite,
) -> None:
    async with open_bus(**shared_site.settings(), partitions=3, retention_ms=60_000) as bus:
        client: AsyncClient = bus.native
        await bus.publish("made", "a", key="k")
        info = await client.topic("made")
        assert (len(info.partitions), info.overrides.retention_ms) == (3, 60_000)
        await client.delete_topic("made")
        await asyncio.gather(*(bus.publish("made", str(n), key="k") for n in range(100)))
        found = [[stored.data async for stored in bus.read("made", number)] for number in range(3)]
        assert max(found) == [str(n).encode() for n in range(100)], "none is lost, and none is overtaken"


@in_loop
async def test_with_ensure_off_a_missing_topic_is_refused_and_not_made(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings(), ensure=False) as bus:
        with pytest.raises(TopicMissing, match="BUS_ENSURE"):
            await bus.publish("nowhere", "a")
        with pytest.raises(TopicMissing, match="BUS_ENSURE"):
            await bus.subscribe("nowhere", "g", Recorder())
        assert "nowhere" not in shared_site.server.topics()


@in_loop
async def test_only_the_message_that_is_too_large_fails_and_closing_says_nothing_about_it_again() -> None:
    with MemoryBroker(max_batch_bytes=50_000) as broker:
        async with open_bus(driver="http", url=broker.url) as bus:
            publishing = [bus.publish("large", data) for data in ("a", "x" * 50_000, "b")]
            outcomes = await asyncio.gather(*publishing, return_exceptions=True)
            assert isinstance(outcomes[1], InvalidArgument)
            assert [outcomes[0], outcomes[2]] == ["0/0", "0/1"]


@in_loop
async def test_a_publish_ends_in_its_time_while_the_server_is_away(own_site: HttpSite, topic: str) -> None:
    async with open_bus(**own_site.settings(), publish_timeout_ms=1_000) as bus:
        await bus.ensure_topic(topic)
        own_site.stop_server()
        began = time.monotonic()
        futures = [await bus.send(topic, "a")]
        await asyncio.sleep(0)  # it is under way: the others are behind it
        futures += [await bus.send(topic, str(n)) for n in range(20_000)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {PublishFailed}
        assert time.monotonic() - began < 15, "no batch begins to count when the one before has failed"
        with pytest.raises(PublishFailed, match="20001 messages were not stored"):
            await bus.flush()


@in_loop
async def test_a_publish_ends_in_its_time_when_the_server_hangs(shared_site: HttpSite) -> None:
    async with (
        between(shared_site.server.base) as middle,
        open_bus(driver="http", url=middle.url, publish_timeout_ms=100) as bus,
    ):
        middle.acts = [hold]
        with pytest.raises(PublishFailed, match=r"no answer from .* in time"):
            await bus.publish("orders", "a")


@in_loop
async def test_a_publish_waits_for_a_server_that_comes_back(own_site: HttpSite, topic: str) -> None:
    async with open_bus(**own_site.settings()) as bus:
        await bus.publish(topic, "before")
        own_site.stop_server()
        under_way = [await bus.send(topic, str(n)) for n in range(50)]
        await asyncio.to_thread(own_site.start_server)
        await asyncio.gather(*under_way)
        found = [stored.data.decode() async for stored in bus.read(topic)]
        assert found == ["before", *map(str, range(50))]


@in_loop
async def test_a_server_that_asks_to_wait_is_waited_for(shared_site: HttpSite) -> None:
    async with (
        between(shared_site.server.base) as middle,
        open_bus(driver="http", url=middle.url) as bus,
    ):
        middle.acts = [overloaded(1)]
        assert await bus.publish("busy", "a") == "0/0"


# Reading


@in_loop
async def test_reading_is_by_offset_and_ends_where_the_log_does(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        for n in range(5):
            await bus.publish("log", str(n), {"n": n}, key="k")
        found = [stored async for stored in bus.read("log", start=1, end=4)]
        assert [stored.data for stored in found] == [b"1", b"2", b"3"]
        assert (found[0].topic, found[0].partition, found[0].offset, found[0].key) == ("log", 0, 1, "k")
        assert found[0].attributes["n"] == "1"
        assert [stored.offset async for stored in bus.read("log", start=3)] == [3, 4]
        assert [stored.offset async for stored in bus.read("log", start=5)] == []
        assert [stored.offset async for stored in bus.read("log", start=2, end=2)] == []
        with pytest.raises(TopicMissing):
            [stored async for stored in bus.read("no-log")]
        with pytest.raises(InvalidArgument, match="partitions 0 to 0"):
            [stored async for stored in bus.read("log", 1)]
