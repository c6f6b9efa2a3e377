"""Topics and groups on a real NATS server, as the console's process shows them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, Draft, Message, load_settings, open_bus
from slipstream.bus.drivers.nats.survey import GroupSurvey, TopicSurvey
from slipstream.client import AsyncClient, SlipstreamError
from slipstream.console import Sources, create_console, nats
from slipstream.console.nats import NatsTopics, NotOnNats, to_stats
from slipstream.console.sources import Away
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop
from tests.console.site import ask, listening


@pytest.fixture
def site() -> Iterator[NatsSite]:
    made = NatsSite()
    yield made
    made.close()


@contextlib.asynccontextmanager
async def looking(site: NatsSite, prefix: str = "") -> AsyncIterator[tuple[str, Bus]]:
    settings = load_settings({**site.settings(), "prefix": prefix}, {})
    topics = NatsTopics(settings)
    console = create_console(Sources(topics, more=[topics], rest=NotOnNats()))
    async with open_bus(settings, registry=CollectorRegistry()) as bus:
        await console.open()
        try:
            async with listening(console) as url:
                yield url, bus
                console.stop()
        finally:
            await console.close()


async def nothing(message: Message) -> None:
    """Done at once."""


async def a_later_millisecond() -> None:
    """What is stored from here on has another time than what was stored before."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= now:
        await asyncio.sleep(0)


@in_loop
async def test_topics_and_groups_are_told_in_the_words_of_v2(site: NatsSite) -> None:
    async with looking(site) as (url, bus):
        await bus.publish_all("orders", [Draft(f"order {n}", key=f"user:{n}") for n in range(10)])
        done = await bus.subscribe("orders", "billing", nothing)
        await bus.publish("parcels", b"\xff\x00")
        while (await ask(f"{url}/v2/topics/orders/groups/billing"))[1].get("lag") != 0:
            await asyncio.sleep(0.01)
        await done.close()
        await bus.publish("orders", "one more")
        while (await ask(f"{url}/v2/topics/orders/groups/billing"))[1].get("lag") != 1:
            pass  # the server counts it after it has answered
        _, answer, _ = await ask(f"{url}/v2/topics")
        orders, dead, parcels = answer["topics"]
        assert dead["name"] == "orders.DLQ", "made by who subscribes"
        assert (orders["name"], orders["partitions"], orders["messages"]) == ("orders", 1, 11)
        assert (orders["groups"], orders["lag"], parcels["name"]) == (1, 1, "parcels")
        _, topic, _ = await ask(f"{url}/v2/topics/orders")
        assert topic["partitions"][0]["first_offset"] == 1
        assert topic["partitions"][0]["next_offset"] == topic["next_offset"] == 12
        assert topic["config"]["retention_ms"] == 7 * 86_400_000
        (group,) = (await ask(f"{url}/v2/topics/orders/groups"))[1]["groups"]
        assert (group["group"], group["lag"], group["in_flight"], group["paused"]) == ("billing", 1, 0, False)
        assert group["partitions"][0]["watermark"] == 10
        assert group["partitions"][0]["oldest_unfinished_ms"] is not None
        _, server, _ = await ask(f"{url}/v2/server")
        assert (server["bus"], server["durability"], server["writable"]) == ("nats", "jetstream", True)


@in_loop
async def test_messages_are_read_from_where_one_likes(site: NatsSite) -> None:
    async with looking(site) as (url, bus):
        await bus.publish("orders", "early", {"tenant": "acme"}, key="user:1")
        await a_later_millisecond()
        for n in range(5):
            await bus.publish("orders", f"order {n}")
        await bus.publish("orders", b"\xff\x00")

        async def read(**query: Any) -> Any:
            status, answer, _ = await ask(f"{url}/v2/topics/orders/messages", params=query)
            assert status == 200, answer
            return answer

        everything = await read()
        assert [each["offset"] for each in everything["messages"]] == [1, 2, 3, 4, 5, 6, 7]
        first, last = everything["messages"][0], everything["messages"][-1]
        assert (first["key"], first["value"], first["attributes"]["tenant"]) == ("user:1", "early", "acme")
        assert (last["value"], last["encoding"]) == ("/wA=", "base64")
        assert (everything["first_offset"], everything["end_offset"], everything["next_offset"]) == (1, 8, 8)
        assert [each["offset"] for each in (await read(last=2))["messages"]] == [6, 7]
        assert [each["offset"] for each in (await read(**{"from": 3, "to": 5}))["messages"]] == [3, 4]
        page = await read(limit=2)
        assert ([each["offset"] for each in page["messages"]], page["next_offset"]) == ([1, 2], 3)
        stored = {each["offset"]: each["timestamp_ms"] for each in everything["messages"]}
        at = dt.datetime.fromtimestamp(stored[4] / 1000, dt.UTC)
        since = await read(since=at.isoformat().replace("+00:00", "Z"))
        assert [each["offset"] for each in since["messages"]] == [o for o, ms in stored.items() if ms >= stored[4]]
        assert since["messages"][0]["offset"] > 1
        never = await read(since="2099-01-01T00:00:00Z")
        assert (never["messages"], never["next_offset"]) == ([], 8)
        for query in ({"partition": "1"}, {"odd": "1"}):
            assert (await ask(f"{url}/v2/topics/orders/messages", params=query))[0] == 400


@in_loop
async def test_an_answer_has_its_limits_whatever_is_asked_for(site: NatsSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats, "MESSAGES_MAX", 5)
    monkeypatch.setattr(nats, "BYTES_MAX", 30_000)
    async with looking(site) as (url, bus):
        await bus.publish_all("small", [Draft("x") for _ in range(10)])
        await bus.publish_all("large", [Draft("x" * 10_000) for _ in range(10)])

        async def offsets(topic: str, query: str) -> list[int]:
            _, answer, _ = await ask(f"{url}/v2/topics/{topic}/messages?{query}")
            return [each["offset"] for each in answer["messages"]]

        assert await offsets("small", "limit=100") == [1, 2, 3, 4, 5]
        assert await offsets("small", "limit=100&last=100") == [6, 7, 8, 9, 10]
        assert await offsets("large", "max_bytes=1000000") == [1, 2, 3]
        assert await offsets("large", "max_bytes=1000000&last=10") == [8, 9, 10], "the newest that fit"
        assert await offsets("large", "max_bytes=1&last=10") == [10], "one at least"


@in_loop
async def test_the_client_reads_there_what_a_browser_does(site: NatsSite) -> None:
    async with looking(site) as (url, bus), AsyncClient(url) as client:
        await bus.publish("orders", b"\xff\x00", {"tenant": "acme"}, key="user:1")
        await bus.ensure_group("orders", "billing")
        assert [topic.name for topic in await client.topics()] == ["orders", "orders.DLQ"]
        assert (await client.topic("orders")).next_offset == 2
        assert [(group.group, group.lag) for group in await client.groups("orders")] == [("billing", 1)]
        (message,) = (await client.read("orders")).messages
        assert (message.key, message.value) == (b"user:1", b"\xff\x00")
        assert message.attributes is not None
        assert message.attributes["tenant"] == "acme"
        with pytest.raises(SlipstreamError, match="on NATS the console looks at topics"):
            await client.create_topic("parcels")


@in_loop
async def test_the_overview_has_rates_lag_and_dead_letters(site: NatsSite) -> None:
    async with looking(site) as (url, bus):
        await bus.ensure_topic("orders")
        await bus.ensure_group("orders", "billing")
        await bus.publish_all("orders", [Draft(f"order {n}") for n in range(10)])
        await bus.publish("orders.DLQ", "one that failed")

        async def overview() -> Any:
            return (await ask(f"{url}/v2/overview"))[1]["overview"]

        while ((found := await overview())["lag"], found["dead_letters"]) != (10, 1):
            await asyncio.sleep(0.01)
        orders = next(topic for topic in found["topics"] if topic["topic"] == "orders")
        assert (orders["messages"], orders["dead_letters"]) == (10, 1)
        assert (orders["groups"][0]["group"], orders["groups"][0]["lag"]) == ("billing", 10)
        assert found["oldest_ms"] > 0
        hits = (await ask(f"{url}/v2/search?q=bill"))[1]["hits"]
        assert hits == [{"kind": "group", "text": "orders/billing", "link": "#/groups/orders/billing"}]


@in_loop
async def test_what_only_a_broker_can_do_is_refused_with_what_to_use(site: NatsSite) -> None:
    async with looking(site) as (url, bus):
        await bus.ensure_topic("orders")
        for method, path in (
            ("POST", "/v2/topics/orders/groups/billing/pause"),
            ("GET", "/v2/topics/orders/dead-letters"),
            ("GET", "/v1/topics"),
        ):
            status, answer, _ = await ask(f"{url}{path}", method)
            assert (status, answer["error"]) == (501, "UNIMPLEMENTED"), path
            assert "the nats command" in answer["message"]
        status, answer, _ = await ask(f"{url}/v2/topics/nothing")
        assert (status, answer["error"]) == (404, "NOT_FOUND")
        status, answer, _ = await ask(f"{url}/v2/topics/orders/groups/nobody")
        assert "there are none" in answer["message"]


@in_loop
async def test_only_topics_with_the_prefix_of_the_bus_are_shown(site: NatsSite) -> None:
    async with looking(site, "dev.") as (url, bus):
        await bus.publish("orders", "ours")
        async with open_bus(**site.settings(), registry=CollectorRegistry()) as other:
            await other.publish("orders", "theirs")
        _, answer, _ = await ask(f"{url}/v2/topics")
        assert [topic["name"] for topic in answer["topics"]] == ["dev.orders"]
        _, answer, _ = await ask(f"{url}/v2/topics/dev.orders/messages")
        assert [each["value"] for each in answer["messages"]] == ["ours"]


@in_loop
async def test_topics_that_share_a_stream_are_told_apart(site: NatsSite) -> None:
    async with looking(site) as (url, bus):
        await bus.native.add_stream(name="all", subjects=["shop.*"])
        for n in range(3):
            await bus.publish("shop.orders", f"order {n}")
            await bus.publish("shop.parcels", f"parcel {n}")
        await bus.ensure_group("shop.orders", "billing")
        _, answer, _ = await ask(f"{url}/v2/topics")
        found = {topic["name"]: (topic["messages"], topic["groups"]) for topic in answer["topics"]}
        assert found["shop.orders"] == (3, 1)
        assert found["shop.parcels"] == (3, 0)
        _, answer, _ = await ask(f"{url}/v2/topics/shop.parcels/messages?last=2")
        assert [each["value"] for each in answer["messages"]] == ["parcel 1", "parcel 2"]


@in_loop
async def test_of_a_group_that_is_gone_nothing_is_kept(site: NatsSite) -> None:
    settings = load_settings(site.settings(), {})
    topics = NatsTopics(settings)
    samples = topics.samples(1)
    async with open_bus(settings, registry=CollectorRegistry()) as bus:
        worker = await bus.subscribe("orders", "billing", nothing)
        await worker.close()
        await bus.publish("orders", "one")
        while not topics._oldest:  # the server counts what waits after it has answered
            await anext(samples)
        assert list(topics._oldest) == [("orders", "billing")]
        await bus.native.delete_consumer("orders", "billing")
        await anext(samples)
        assert topics._oldest == {}
    await samples.aclose()
    await topics.close()


@in_loop
async def test_a_server_that_is_away_is_said_and_found_again(site: NatsSite) -> None:
    topics = NatsTopics(load_settings({**site.settings(), "connect_timeout_ms": 2_000}, {}))
    site.stop_server()
    with pytest.raises(Away):
        await anext(topics.samples(10))
    console = create_console(Sources(topics, more=[topics]))
    async with listening(console) as url:
        status, answer, _ = await ask(f"{url}/v2/topics")
        assert (status, answer["error"]) == (503, "UNAVAILABLE")
        _, server, _ = await ask(f"{url}/v2/server")
        assert server["writable"] is False
        site.start_server()
        assert (await anext(topics.samples(10))).topics == []
    await console.close()


# Rates


def surveyed(next_offset: int, group: GroupSurvey, **fields: Any) -> TopicSurvey:
    usual: dict[str, Any] = {
        "topic": "orders",
        "stream": "orders",
        "messages": next_offset - 1,
        "bytes": 0,
        "first_offset": 1,
        "created_ms": 5,
        "retention_ms": 0,
        "retention_bytes": 0,
        "is_alone": True,
    }
    return TopicSurvey(**{**usual, **fields}, next_offset=next_offset, groups=(group,))


def billing(waiting: int, in_flight: int = 0, delivered: int = 0) -> GroupSurvey:
    return GroupSurvey(
        group="billing",
        waiting=waiting,
        in_flight=in_flight,
        listening=0,
        delivered=delivered,
        done_below=0,
        done=delivered - in_flight,
        paused=False,
    )


def test_what_came_and_is_not_there_any_more_was_finished() -> None:
    before = {"orders": surveyed(11, billing(waiting=10))}
    now = surveyed(31, billing(waiting=12, in_flight=4, delivered=14))
    found = to_stats([now], before, 2_000, 2_000, {("orders", "billing"): 700})
    assert (found.produced_per_s, found.acked_per_s, found.delivered_per_s) == (10.0, 7.0, 7.0)
    assert (found.lag, found.in_flight, found.oldest_unfinished_age_ms) == (16, 4, 700)
    (group,) = found.topics[0].groups
    assert group.consumers == 1, "whose hands are full asks for nothing"


def test_of_what_was_not_there_before_no_rate_is_told() -> None:
    now = surveyed(31, billing(waiting=12))
    for before in ({}, {"orders": surveyed(11, billing(waiting=10), created_ms=4)}):
        found = to_stats([now], before, 2_000, 1_000, {})
        assert found.produced_per_s == 0.0, "it was made meanwhile, or is another of the same name"
