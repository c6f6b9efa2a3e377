"""Limits of streams: those that others rely on, and those that the server has no room for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.js.api import StreamConfig
from prometheus_client import CollectorRegistry

from slipstream.bus import TopicInfo
from slipstream.bus.opening import Opening, open_bus
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsSite]:
    """A server with little room."""
    config: Path = tmp_path_factory.mktemp("nats") / "nats.conf"
    config.write_text("jetstream { max_file_store: 10MB }")
    site = NatsSite("-c", str(config))
    yield site
    site.close()


def bus_on(site: NatsSite, **given: object) -> Opening:
    return open_bus(registry=CollectorRegistry(), **{**site.settings(), **given})


@in_loop
async def test_a_limit_the_server_has_no_room_for_is_left_out_when_a_stream_is_made(
    small: NatsSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with bus_on(small) as bus:
        await bus.ensure_topic(topic, retention=60 * 60, retention_bytes=1 << 30)
        assert await bus.topic(topic) == TopicInfo(topic, 1, HOUR_MS, 0)
        await bus.publish(topic, b"x")
    assert "would reserve them" in caplog.text
    assert topic.replace(".", "=") in caplog.text


@in_loop
async def test_and_when_it_is_changed_the_age_is_set_all_the_same(small: NatsSite, topic: str) -> None:
    async with bus_on(small) as bus:
        await bus.ensure_topic(topic, retention=60 * 60, retention_bytes=1 << 20)
        changed = await bus.adjust_topic(topic, retention=2 * 60 * 60, retention_bytes=1 << 30)
        assert changed == TopicInfo(topic, 1, 2 * HOUR_MS, 1 << 20)
        unchanged = await bus.adjust_topic(topic, retention_bytes=1 << 30)
        assert unchanged == changed
        larger = await bus.adjust_topic(topic, retention_bytes=2 << 20)
        assert larger.retention_bytes == 2 << 20


@in_loop
async def test_a_stream_that_others_use_is_not_changed(small: NatsSite, topic: str) -> None:
    async with bus_on(small) as bus:
        await bus.native.add_stream(StreamConfig(name=topic.replace(".", "_"), subjects=[f"{topic}.>"], max_age=60))
        before = await bus.topic(f"{topic}.orders")
        assert before == TopicInfo(f"{topic}.orders", 1, 60_000, 0)
        assert await bus.adjust_topic(f"{topic}.orders", retention=3600, retention_bytes=1 << 20) == before


@in_loop
async def test_ages_shorter_than_anything_the_server_takes_are_its_shortest(small: NatsSite, topic: str) -> None:
    async with bus_on(small) as bus:
        await bus.ensure_topic(topic, retention=0.001)
        assert (await bus.adjust_topic(topic, retention=60)).retention_ms == 60_000
        assert (await bus.adjust_topic(topic, retention=0.001)).retention_ms == 100
        assert (await bus.adjust_topic(topic, retention=0)).retention_ms == 0


@in_loop
async def test_a_group_that_is_made_has_the_consumer_its_subscribers_will_use(small: NatsSite, topic: str) -> None:
    async with bus_on(small) as bus:
        await bus.ensure_group(topic, "shipping.v1", ack_deadline=7)
        info = await bus.native.consumer_info(topic.replace(".", "="), "shipping=v1")
        assert info.config.ack_wait == 7
        assert info.config.filter_subject == topic
        assert await bus.topic(f"{topic}.DLQ") is not None
