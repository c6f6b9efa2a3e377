"""Topics of steps that no worker subscribes to: the log, the metric, the store and `slip show` name them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import open_bus
from slipstream.bus.opening import Opening
from slipstream.slip import Control, Work, Worker, open_store
from slipstream.slip.metrics import metrics_in
from slipstream.slip.oversight import Oversight
from slipstream.slip.unserved import UnservedTopics, unserved_topics
from tests.bus.sites.site import Site
from tests.client.loop import in_loop
from tests.slip.lab import Lab, fast, lab, table

OpenBus = Callable[[], Opening]

ELSEWHERE = {"id": "reply", "topic": "internal.bot.requests.v1"}


def replying(topic: str | None = None) -> Worker:
    worker = Worker("bot")

    @worker.step("reply", topic=topic)
    async def reply(work: Work) -> dict[str, str]:
        return {"reply": "hello"}

    return worker


async def until_reported(seen: Lab) -> None:
    while not await unserved_topics(seen.store):
        await asyncio.sleep(0)


@in_loop
async def test_a_topic_that_no_worker_serves_is_reported_on_every_engine(
    site: Site, any_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    async with any_bus() as bus, lab(bus, table(ELSEWHERE), replying()) as seen:
        await seen.submit()
        await until_reported(seen)
        assert {topic: each.step for topic, each in (await unserved_topics(seen.store)).items()} == {
            "internal.bot.requests.v1": "reply"
        }
        (warning,) = [each.getMessage() for each in caplog.records if "has never had a consumer group" in each.message]
        assert "internal.bot.requests.v1" in warning
        async with replying("internal.bot.requests.v1").running(bus, seen.store, seen.settings):
            while await unserved_topics(seen.store):
                await asyncio.sleep(0)
            if site.keeps_before_subscribed:
                await seen.ended()


@in_loop
async def test_slip_show_and_the_metric_name_the_topic_and_the_worker_that_takes_from_another() -> None:
    registry = CollectorRegistry()
    labels = {"topic": "internal.bot.requests.v1", "step": "reply"}
    async with open_bus(driver="memory", registry=registry) as bus, lab(bus, table(ELSEWHERE), replying()) as seen:
        await seen.submit()
        await until_reported(seen)
        while not registry.get_sample_value("step_topic_unserved", labels):
            await asyncio.sleep(0)
        while (standing := (await Oversight(seen.store, seen.settings).timeline("c-1")).standing).going != "no worker":
            await asyncio.sleep(0)
        assert (standing.step, standing.topic) == ("reply", "internal.bot.requests.v1")
        assert standing.reason.startswith("no worker has ever subscribed to internal.bot.requests.v1; the worker bot@")
        assert standing.reason.endswith("does reply from internal.reply.v1")
        async with replying("internal.bot.requests.v1").running(bus, seen.store, seen.settings):
            await seen.ended()
            while registry.get_sample_value("step_topic_unserved", labels) is not None:
                await asyncio.sleep(0)


@in_loop
async def test_another_router_withdraws_what_a_dead_one_has_reported(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table(ELSEWHERE)) as first:
        await first.submit()
        await until_reported(first)
        async with lab(bus, table("other"), replying("internal.bot.requests.v1"), store=first.store):
            while await unserved_topics(first.store):
                await asyncio.sleep(0)


@in_loop
async def test_a_paused_step_is_no_step_without_a_worker(memory_bus: OpenBus, registry: CollectorRegistry) -> None:
    """A worker that finds its step paused when it starts does not subscribe before the step is resumed."""
    async with memory_bus() as bus, open_store(":memory:") as store:
        watch = UnservedTopics(bus, store, fast(), metrics_in(registry))
        await Control(store, fast()).pause("reply", "the model is away")
        watch.sent("internal.bot.requests.v1", "reply")
        for _ in range(3):
            await watch.look()
        assert await unserved_topics(store) == {}
        await Control(store, fast()).resume("reply")
        await watch.look()
        assert list(await unserved_topics(store)) == ["internal.bot.requests.v1"]


@in_loop
async def test_a_worker_that_sends_a_message_on_itself_reports_too(memory_bus: OpenBus) -> None:
    settings = fast(decentralised=True)
    worker = replying("internal.reply.v1")
    steps = ["reply", {"id": "ship", "topic": "shipping.v1"}]
    async with memory_bus() as bus, lab(bus, table(*steps), worker, settings=settings) as seen:
        await seen.submit()
        await until_reported(seen)
        assert list(await unserved_topics(seen.store)) == ["shipping.v1"]
