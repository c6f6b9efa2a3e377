"""What becomes of messages that nobody can handle, on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Backoff, BusUnavailable, Message, Reject, open_bus
from slipstream.bus.drivers import Delivery
from slipstream.bus.opening import Opening
from tests.bus.conftest import OpenBus
from tests.bus.consumer_process import consuming
from tests.bus.recorder import Recorder, failing
from tests.bus.sites.site import Site
from tests.client.loop import in_loop

SOON = Backoff(first=0.02, longest=0.1)


@in_loop
async def test_after_max_deliver_it_is_a_dead_letter_with_the_reason(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        dead, handler = Recorder(), Recorder(failing(99, ValueError("no such customer")))
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await bus.subscribe(topic, "shipping", handler, max_deliver=3, backoff=SOON)
        await bus.publish(topic, b"\xff\x00", {"customerId": "C-17", "correlationId": "c-1"}, "user:1")
        (letter,) = await dead.have(1)
        await bus.publish(topic, b"next")
        await handler.until(lambda: handler.data[-1] == b"next")
    assert [message.attempt for message in handler.messages if message.data != b"next"] == [1, 2, 3]
    assert letter.data == b"\xff\x00"
    assert letter.key == "user:1"
    assert letter.attributes["customerId"] == "C-17"
    assert letter.attributes["correlationId"] == "c-1"
    assert letter.attributes["deadLetterReason"] == "ValueError: no such customer"
    assert letter.attributes["deadLetterTopic"] == topic
    assert letter.attributes["deadLetterGroup"] == "shipping"
    assert letter.attributes["deadLetterAttempts"] == "3"
    assert letter.attributes["deadLetterId"] == handler.messages[0].id
    assert letter.attributes["deadLetterTime"].endswith("+00:00")


@in_loop
async def test_it_is_finished_for_its_group(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        dead = Recorder()
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await bus.subscribe(topic, "shipping", Recorder(failing(99)), max_deliver=1)
        await bus.publish(topic, b"bad")
        await dead.have(1)
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"next")
        await handler.have(1)
    assert handler.data == [b"next"]


@in_loop
async def test_what_is_rejected_is_one_at_once(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        dead, handler = Recorder(), Recorder(failing(99, Reject("cannot be read")))
        await bus.subscribe("graveyard.v1", f"undertaker-{topic}", dead)
        await bus.subscribe(topic, "shipping", handler, dead_letter_topic="graveyard.v1")
        await bus.publish(topic, topic)
        await dead.until(lambda: topic.encode() in dead.data)
        (letter,) = [message for message in dead.messages if message.text == topic]
    assert len(handler.messages) == 1
    assert letter.attributes["deadLetterReason"] == "cannot be read"


@in_loop
async def test_it_is_under_the_prefix(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as dev, new_bus() as plain:
        dead = Recorder()
        await plain.subscribe(f"dev.{topic}.DLQ", "undertaker", dead)
        await dev.subscribe(topic, "shipping", Recorder(failing(99)), max_deliver=1)
        await dev.publish(topic, b"bad")
        (letter,) = await dead.have(1)
    assert letter.attributes["deadLetterTopic"] == topic


@in_loop
async def test_a_dead_letter_is_never_buried_again(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        undertaker = Recorder(failing(4))
        await bus.subscribe(f"{topic}.DLQ", "undertaker", undertaker, max_deliver=2, backoff=SOON)
        await bus.subscribe(topic, "shipping", Recorder(failing(99)), max_deliver=1)
        await bus.publish(topic, b"bad")
        messages = await undertaker.have(5)
    assert [message.attempt for message in messages] == [1, 2, 3, 4, 5]


@in_loop
async def test_without_a_limit_it_is_tried_on(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        handler = Recorder(failing(9))
        await bus.subscribe(topic, "shipping", handler, max_deliver=0, backoff=[0])
        await bus.publish(topic, b"x")
        await handler.have(10)


@in_loop
async def test_a_message_that_kills_its_consumers_is_one_without_being_tried_once_more(
    site: Site, new_bus: OpenBus, topic: str
) -> None:
    if not site.counts_across_processes:
        pytest.skip(f"the server for tests of {site.driver} does not count them: see its site")
    async with new_bus() as bus:
        await bus.publish(topic, b"poison")
    for attempt in (1, 2):
        async with consuming(site, topic, "shipping", ack_deadline=1, max_deliver=2) as doomed:
            assert await doomed.line() == f"{attempt} poison"
    async with new_bus() as bus:
        dead, handler = Recorder(), Recorder()
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await bus.subscribe(topic, "shipping", handler, ack_deadline=1, max_deliver=2)
        (letter,) = await dead.have(1)
    assert letter.data == b"poison"
    assert "handed out 2 times" in letter.attributes["deadLetterReason"]
    assert handler.messages == []


@in_loop
async def test_nothing_is_lost_while_dead_letters_cannot_be_published(site: Site, new_bus: OpenBus, topic: str) -> None:
    """The engine refuses them here; the message is kept, and buried when it does not. On one engine that takes longer
    than the lease."""
    times = 4 if site.driver == "http" else 2
    async with new_bus() as bus:
        refusals = 0
        acked_after: list[int] = []
        post = bus._driver.post

        async def refuse_at_first(message: object) -> object:
            nonlocal refusals
            if message.topic.endswith(".DLQ") and refusals < times:  # type: ignore[attr-defined]
                refusals += 1
                raise BusUnavailable("no room for the dead")
            return await post(message)  # type: ignore[arg-type]

        bus._driver.post = refuse_at_first  # type: ignore[assignment, method-assign]
        dead, handler = Recorder(), Recorder(failing(99))
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        subscription = await bus.subscribe(topic, "shipping", handler, max_deliver=1, ack_deadline=2.5)
        ack = subscription._source.ack

        async def noted(delivery: Delivery) -> None:
            acked_after.append(refusals)
            await ack(delivery)

        subscription._source.ack = noted  # type: ignore[method-assign]
        await bus.publish(topic, b"bad")
        await dead.have(1)
    assert refusals == times
    assert acked_after == [times], "it is finished only when its dead letter is safe"
    assert len(handler.messages) == 1, "it was on lease all the time"


@in_loop
async def test_what_a_handler_does_to_the_attributes_is_not_in_the_dead_letter(new_bus: OpenBus, topic: str) -> None:
    async def act(message: Message) -> None:
        message.attributes.clear()
        message.attributes["count"] = 1  # type: ignore[assignment]
        raise Reject("no")

    async with new_bus() as bus:
        dead = Recorder()
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await bus.subscribe(topic, "shipping", Recorder(act))
        await bus.publish(topic, b"x", {"customerId": "C-17"})
        (letter,) = await dead.have(1)
    assert letter.attributes["customerId"] == "C-17"
    assert "count" not in letter.attributes


@in_loop
async def test_the_message_of_a_topic_that_was_made_again_has_its_own(tmp_path: Path) -> None:
    """It has the place of another that was buried a moment ago, and is not the same dead letter."""

    def reopened() -> Opening:
        return open_bus(driver="embedded", data=str(tmp_path / "data"), registry=CollectorRegistry())

    for data in (b"old", b"new"):
        async with reopened() as bus:
            dead = Recorder()
            await bus.subscribe("orders.DLQ", f"undertaker of {data.decode()}".replace(" ", "-"), dead)
            await bus.subscribe("orders", "shipping", Recorder(failing(99)), max_deliver=1)
            await bus.publish("orders", data)
            await dead.until(lambda dead=dead, data=data: data in dead.data)  # type: ignore[misc]
            await bus.native.delete_topic("orders")


@in_loop
async def test_nor_is_one_in_a_topic_of_another_name(new_bus: OpenBus, topic: str) -> None:
    grave = f"{topic}.grave"
    async with new_bus() as bus:
        undertaker = Recorder(failing(3))
        await bus.subscribe(grave, "undertaker", undertaker, max_deliver=1, backoff=SOON)
        await bus.subscribe(topic, "shipping", Recorder(failing(99)), max_deliver=1, dead_letter_topic=grave)
        await bus.publish(topic, b"bad")
        messages = await undertaker.have(4)
    assert [message.attempt for message in messages] == [1, 2, 3, 4]


@in_loop
async def test_one_that_is_published_again_can_die_again(new_bus: OpenBus, topic: str) -> None:
    """Even with the attributes it had as a dead letter."""
    async with new_bus() as bus:

        async def revive(message: Message) -> None:
            if len(dead.messages) == 1:
                await bus.publish(topic, message.data, message.attributes)

        dead = Recorder(revive)
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await bus.subscribe(topic, "shipping", Recorder(failing(99)), max_deliver=1)
        await bus.publish(topic, b"bad")
        await dead.have(2)
