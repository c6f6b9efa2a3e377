"""Subscriptions as they are made, and what is said where they are not."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from google.api_core.exceptions import PermissionDenied
from google.pubsub_v1.types import UpdateTopicRequest

from slipstream.bus import InvalidArgument, Reject, TopicMissing
from slipstream.bus.settings import DAY_MS
from tests.bus.conftest import OpenBus
from tests.bus.drivers.pubsub.engine import Engine
from tests.bus.recorder import Recorder, failing
from tests.client.loop import in_loop

MINUTES_10 = timedelta(minutes=10)


@in_loop
async def test_a_group_has_a_subscription_with_its_options(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.", retention_ms=DAY_MS) as bus:
        await bus.subscribe(topic, "shipping", Recorder(), ack_deadline=45.5, max_deliver=7)
        made = await Engine(bus).subscription(f"dev.{topic}.shipping")
        project = bus.native.project
    assert made.topic == f"projects/{project}/topics/dev.{topic}"
    assert made.enable_message_ordering
    assert made.ack_deadline_seconds == 46
    assert made.message_retention_duration == timedelta(days=1)
    assert "expiration_policy" in made and not made.expiration_policy.ttl, "it never expires"
    assert made.dead_letter_policy.dead_letter_topic == f"projects/{project}/topics/dev.{topic}.DLQ"
    assert made.dead_letter_policy.max_delivery_attempts == 12


@pytest.mark.parametrize(
    ("given", "options", "deadline_s", "retention", "attempts"),
    [
        ({"retention_ms": 1}, {"ack_deadline": 0.5, "max_deliver": 0}, 10, timedelta(minutes=10), 0),
        ({"retention_ms": 0}, {"ack_deadline": 3600, "max_deliver": 99}, 600, timedelta(days=7), 100),
        ({"retention_ms": 30 * DAY_MS}, {"max_deliver": 1}, 30, timedelta(days=7), 6),
    ],
)
@in_loop
async def test_what_pubsub_does_not_take_is_what_comes_next_to_it(
    new_bus: OpenBus,
    topic: str,
    given: dict[str, Any],
    options: dict[str, Any],
    deadline_s: int,
    retention: timedelta,
    attempts: int,
) -> None:
    async with new_bus(**given) as bus:
        await bus.subscribe(topic, "shipping", Recorder(), **options)
        made = await Engine(bus).subscription(f"{topic}.shipping")
    assert made.ack_deadline_seconds == deadline_s
    assert made.message_retention_duration == retention
    assert made.dead_letter_policy.max_delivery_attempts == attempts


@in_loop
async def test_a_policy_that_is_refused_is_done_without(
    new_bus: OpenBus, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_bus() as bus:
        client = bus.native.subscriber
        create = client.create_subscription

        def refusing(request: dict[str, Any], **more: Any) -> Any:
            if "dead_letter_policy" in request:
                raise PermissionDenied("not for you")
            return create(request=request, **more)

        monkeypatch.setattr(client, "create_subscription", refusing)
        with caplog.at_level(logging.WARNING):
            await bus.subscribe(topic, "shipping", Recorder())
        made = await Engine(bus).subscription(f"{topic}.shipping")
    assert "dead_letter_policy" not in made
    assert "no dead-letter policy of its own" in caplog.text


@in_loop
async def test_one_that_exists_is_used_as_it_is(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        engine = Engine(bus)
        await engine.create_topic(topic)
        await engine.create_subscription(topic, f"{topic}.shipping")
        await bus.publish(topic, b"before")
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, ack_deadline=60)
        await handler.have(1)
        assert (await engine.subscription(f"{topic}.shipping")).ack_deadline_seconds == 10


@in_loop
async def test_one_of_another_topic_is_refused(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        engine = Engine(bus)
        await engine.create_topic(f"{topic}.other")
        await engine.create_subscription(f"{topic}.other", f"{topic}.shipping")
        with pytest.raises(InvalidArgument, match=rf"{re.escape(topic)}\.other and not of {re.escape(topic)}"):
            await bus.subscribe(topic, "shipping", Recorder())


@in_loop
async def test_one_whose_topic_was_deleted_is_refused(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        engine = Engine(bus)
        await engine.create_topic(topic)
        await engine.create_subscription(topic, f"{topic}.shipping")
        await engine.delete_topic(topic)
        with pytest.raises(InvalidArgument, match="belongs to a topic that was deleted"):
            await bus.subscribe(topic, "shipping", Recorder())


@in_loop
async def test_without_ensure_it_is_said_what_to_create(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(ensure=False) as bus:
        engine = Engine(bus)
        with pytest.raises(TopicMissing, match=rf"no topic {re.escape(topic)} .* create it"):
            await bus.publish(topic, b"")
        with pytest.raises(TopicMissing, match=rf"dead-letter topic {re.escape(topic)}\.DLQ is missing"):
            await bus.subscribe(topic, "shipping", Recorder())
        await engine.create_topic(f"{topic}.DLQ")
        with pytest.raises(TopicMissing, match=rf"no subscription, .* such as {re.escape(topic)}\.DLQ\.keep"):
            await bus.subscribe(topic, "shipping", Recorder())
        await engine.create_subscription(f"{topic}.DLQ", f"{topic}.DLQ.somebody")
        with pytest.raises(TopicMissing, match=rf"{re.escape(topic)}\.shipping, .* for topic {re.escape(topic)} in"):
            await bus.subscribe(topic, "shipping", Recorder())
        await engine.create_topic(topic)
        await engine.create_subscription(topic, f"{topic}.shipping")
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"two books")
        await handler.have(1)


@in_loop
async def test_dead_letters_are_kept_until_somebody_looks(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        handler = Recorder(failing(99, Reject("cannot be read")))
        await bus.subscribe(topic, "shipping", handler)
        assert f"{topic}.DLQ.keep" in await Engine(bus).subscriptions()
        await bus.publish(topic, b"bad")
        await handler.have(1)
    async with new_bus() as bus:
        letters = Recorder()
        await bus.subscribe(f"{topic}.DLQ", "keep", letters)
        (letter,) = await letters.have(1)
    assert letter.data == b"bad"
    assert letter.attributes["deadLetterReason"] == "cannot be read"


@in_loop
async def test_dead_letters_have_no_dead_letters(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bus.subscribe(f"{topic}.DLQ", "undertaker", Recorder())
        made = await Engine(bus).subscription(f"{topic}.DLQ.undertaker")
        assert not await Engine(bus).has_topic(f"{topic}.DLQ.DLQ")
    assert "dead_letter_policy" not in made


@pytest.mark.parametrize(
    ("retention", "asked_for"),
    [(60 * 60, timedelta(hours=1)), (90 * 24 * 3600, timedelta(days=31)), (0, timedelta(days=31)), (1, MINUTES_10)],
)
@in_loop
async def test_a_topic_keeps_messages_for_as_long_as_pubsub_can(
    new_bus: OpenBus, topic: str, monkeypatch: pytest.MonkeyPatch, retention: int, asked_for: timedelta
) -> None:
    """The server of the tests refuses the change, so that it is made up for here."""
    async with new_bus(prefix="dev.") as bus:
        await bus.ensure_topic(topic, retention=2 * 60 * 60)
        before = await bus.topic(topic)
        requests: list[UpdateTopicRequest] = []
        publisher = bus.native.publisher

        def update(request: dict[str, Any], **more: Any) -> None:
            requests.append(UpdateTopicRequest(request))

        monkeypatch.setattr(publisher, "update_topic", update)
        assert await bus.adjust_topic(topic, partitions=3, retention_bytes=7) == before
        assert not requests, "it can do neither"
        await bus.adjust_topic(topic, retention=retention)
        (request,) = requests
        path = bus.native.topic_path(f"dev.{topic}")
    assert request.topic.name == path
    assert request.topic.message_retention_duration == asked_for
    assert list(request.update_mask.paths) == ["message_retention_duration"]


@in_loop
async def test_a_change_that_is_refused_leaves_the_topic_as_it_was(
    new_bus: OpenBus, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_bus() as bus:
        await bus.ensure_topic(topic)
        info = await bus.adjust_topic(topic, retention=60 * 60)
    assert info.retention_ms is None, "it was made without any"
    assert "stays as it is" in caplog.text


@in_loop
async def test_a_group_that_is_made_has_the_subscription_its_subscribers_will_use(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bus.ensure_group(topic, "shipping", ack_deadline=45, max_deliver=0)
        made = await Engine(bus).subscription(f"{topic}.shipping")
    assert made.ack_deadline_seconds == 45
    assert "dead_letter_policy" not in made, "it would end what is to be tried for ever"
