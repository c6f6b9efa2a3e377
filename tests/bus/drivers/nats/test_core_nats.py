"""Core NATS: at most once, and it says so."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import NO_OFFSET, Message, TopicInfo, Unsupported
from slipstream.bus.opening import Opening, open_bus
from tests.bus.recorder import Recorder, failing
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop


def bus_on(site: NatsSite) -> Opening:
    return open_bus(registry=CollectorRegistry(), nats_jetstream=False, **site.settings())


@in_loop
async def test_it_says_loudly_what_it_is(nats: NatsSite, caplog: pytest.LogCaptureFixture) -> None:
    async with bus_on(nats):
        pass
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "AT MOST ONCE" in warning.getMessage()


@in_loop
async def test_groups_compete_and_everything_is_handled_once(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as here, bus_on(nats) as there:
        one, other, billing = Recorder(), Recorder(), Recorder()
        await here.subscribe(topic, "shipping", one, max_in_flight=2)
        await there.subscribe(topic, "shipping", other, max_in_flight=2)
        await there.subscribe(topic, "billing", billing)
        sent = sorted(str(number).encode() for number in range(500))
        for data in sent:
            await here.send(topic, data, {"camelCase": "stays"}, key="user:1")
        await here.flush()
        await billing.have(500)
    assert sorted(one.data + other.data) == sent, "close has let them finish what had come"
    assert sorted(billing.data) == sent
    assert billing.messages[0].attributes["camelCase"] == "stays"
    assert billing.messages[0].key == "user:1"


@in_loop
async def test_retries_and_dead_letters_are_kept_in_the_process(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        dead, handler = Recorder(), Recorder(failing(99))
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await bus.subscribe(topic, "shipping", handler, max_deliver=3, backoff=[0.02])
        await bus.publish(topic, b"bad")
        (letter,) = await dead.have(1)
    assert [message.attempt for message in handler.messages] == [1, 2, 3]
    assert letter.attributes["deadLetterAttempts"] == "3"


@in_loop
async def test_what_waits_for_its_retry_is_lost_with_the_process_and_that_is_said(
    nats: NatsSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with bus_on(nats) as bus:
        handler = Recorder(failing(99))
        await bus.subscribe(topic, "shipping", handler, backoff=[3600])
        await bus.publish(topic, b"bad")
        await handler.have(1)
    assert "is lost: core NATS delivers at most once" in caplog.text


@in_loop
async def test_no_more_run_than_there_are_slots(nats: NatsSite, topic: str) -> None:
    running = most = 0

    async def act(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await bus.publish(f"{topic}.done", message.data)
        running -= 1

    async with bus_on(nats) as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, max_in_flight=3)
        for number in range(100):
            await bus.send(topic, str(number))
        await handler.have(100)
    assert most == 3


@in_loop
async def test_there_is_no_log_to_read(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        with pytest.raises(Unsupported, match="NATS_JETSTREAM"):
            await anext(bus.read(topic))


@in_loop
async def test_every_topic_is_there_and_keeps_nothing(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        nothing_kept = TopicInfo(topic, 1, None, None)
        assert await bus.topic(topic) == nothing_kept
        await bus.ensure_topic(topic, 8, 3600, 1 << 20)
        assert await bus.adjust_topic(topic, partitions=8, retention=3600) == nothing_kept
        await bus.ensure_group(topic, "shipping")
        with pytest.raises(Unsupported, match="NATS_JETSTREAM"):
            await anext(bus.follow(topic))
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"x")
        (message,) = await handler.have(1)
    assert (message.partition, message.offset) == (0, NO_OFFSET)
