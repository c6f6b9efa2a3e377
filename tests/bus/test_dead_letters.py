"""Dead letters listed, looked at, sent back and discarded, on every engine that keeps a log."""

from __future__ import annotations

import pytest

from slipstream.bus import Bus, DeadLetter, DeadLetterMissing, Selection, Unsupported
from slipstream.bus.drivers.nats.names import stream_name
from tests.bus.conftest import OpenBus
from tests.bus.recorder import Recorder, failing
from tests.bus.sites.site import Site
from tests.client.loop import in_loop


@pytest.fixture(autouse=True)
def with_a_log(request: pytest.FixtureRequest, site: Site) -> None:
    if not site.reads and "log" not in request.node.name:
        pytest.skip(f"{site.driver} keeps no log")


async def bury(bus: Bus, topic: str, *bodies: bytes, group: str = "shipping", reason: str = "no customer") -> None:
    dead = Recorder()
    watching = await bus.subscribe(f"{topic}.DLQ", f"watch-{group}", dead)
    failed = await bus.subscribe(topic, group, Recorder(failing(99, ValueError(reason))), max_deliver=1)
    for body in bodies:
        await bus.publish(topic, body, {"customerId": "C-17"}, "user:1")
    await dead.until(lambda: {*bodies} <= {each.data for each in dead.messages})
    await failed.close()
    await watching.close()


async def listed(bus: Bus, topic: str = "", **selection: object) -> list[DeadLetter]:
    chosen = Selection(**selection)  # type: ignore[arg-type]
    return [letter async for letter in bus.dead_letters.list(topic, chosen)]


@in_loop
async def test_a_dead_letter_is_listed_with_where_it_died_and_why(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as bus:
        assert await listed(bus, topic) == []
        await bury(bus, topic, b"one", b"two")
        first, second = await listed(bus, topic)
        assert await listed(bus, f"{topic}.DLQ") == [first, second], "either name will do"
        assert [each for each in await listed(bus) if each.origin == topic] == [first, second]
        assert f"{topic}.DLQ" in await bus.dead_letters.topics()
        assert await bus.dead_letters.get(first.topic, first.partition, first.offset) == first
    assert (first.data, first.key, first.attributes["customerId"]) == (b"one", "user:1", "C-17")
    assert (first.topic, first.origin, first.group) == (f"{topic}.DLQ", topic, "shipping")
    assert (first.reason, first.attempts) == ("ValueError: no customer", 1)
    assert not any(name.startswith("deadLetter") for name in first.attributes)
    assert second.data == b"two"


@in_loop
async def test_they_are_chosen_by_group_reason_and_time(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bury(bus, topic, b"one", reason="no customer")
        await bury(bus, topic, b"two", group="billing", reason="no address")
        billed = await listed(bus, topic, group="billing")
        assert {each.data for each in billed} == {b"one", b"two"}, "every group of a topic sees all of its messages"
        assert [each.data for each in await listed(bus, topic, error="NO CUSTOMER")] == [b"one"]
        died_ms = billed[0].died_ms
        assert billed[0] in await listed(bus, topic, since_ms=died_ms, until_ms=died_ms + 1)
        assert billed[0] not in await listed(bus, topic, since_ms=died_ms + 1)


@in_loop
async def test_one_that_is_sent_back_is_the_message_as_it_was_and_not_listed_any_more(
    new_bus: OpenBus, topic: str
) -> None:
    async with new_bus() as bus:
        await bury(bus, topic, b"one", b"two")
        first, second = await listed(bus, topic)
        handler = Recorder()
        await bus.dead_letters.redrive(first)
        assert await listed(bus, topic) == [second]
        await bus.subscribe(topic, "shipping", handler)
        (message,) = await handler.have(1)
        assert (message.data, message.key, message.attributes["customerId"]) == (b"one", "user:1", "C-17")
        assert "deadLetterReason" not in message.attributes
        await bus.dead_letters.redrive(first)  # by somebody who had listed it before: the same message again
        await bus.dead_letters.redrive(second, to=f"{topic}.later")
        later = Recorder()
        await bus.subscribe(f"{topic}.later", "shipping", later)
        await later.have(1)
        assert later.data == [b"two"]
        assert await listed(bus, topic) == []
    assert handler.data == [b"one"]


@in_loop
async def test_one_that_died_again_is_another(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bury(bus, topic, b"one")
        (first,) = await listed(bus, topic)
        await bus.dead_letters.redrive(first)
        dead = Recorder()
        await bus.subscribe(f"{topic}.DLQ", "watch-again", dead)
        await bus.subscribe(topic, "shipping", Recorder(failing(99, ValueError("still nobody"))), max_deliver=1)
        await dead.until(lambda: any("still" in each.attributes["deadLetterReason"] for each in dead.messages))
        (again,) = await listed(bus, topic)
    assert again.reason == "ValueError: still nobody"
    assert again.place != first.place


@in_loop
async def test_one_that_is_discarded_is_gone(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bury(bus, topic, b"one", b"two")
        first, second = await listed(bus, topic)
        await bus.dead_letters.discard(first)
        await bus.dead_letters.discard(first)
        assert await listed(bus, topic) == [second]
        with pytest.raises(DeadLetterMissing, match="was sent back or discarded"):
            await bus.dead_letters.get(first.topic, first.partition, first.offset)
        for place in ((0, 999_999), (77, 0)):
            with pytest.raises(DeadLetterMissing):
                await bus.dead_letters.get(first.topic, *place)
        with pytest.raises(DeadLetterMissing):
            await bus.dead_letters.get(f"{topic}.nothing", 0, 1)
    async with new_bus() as bus:
        assert await listed(bus, topic) == [second], "and stays so"


async def delete(bus: Bus, topic: str) -> None:
    if bus.driver == "nats":
        await bus.native.delete_stream(stream_name(topic))
    else:
        await bus.native.delete_topic(topic)


@in_loop
async def test_one_at_the_place_of_another_that_was_handled_is_listed(new_bus: OpenBus, topic: str) -> None:
    """The dead-letter topic was deleted and made again, so its offsets begin again."""
    async with new_bus() as bus:
        for body in (b"one", b"two"):
            await bus.publish(f"{topic}.DLQ", body)
            (letter,) = await listed(bus, topic)
            assert letter.data == body
            await bus.dead_letters.discard(letter)
            assert await listed(bus, topic) == []
            await delete(bus, f"{topic}.DLQ")


@in_loop
async def test_that_one_was_handled_is_remembered_for_longer_than_it_is_kept(
    site: Site, new_bus: OpenBus, topic: str
) -> None:
    if site.driver == "nats":
        pytest.skip("what was handled is removed from the stream")
    day_s = 24 * 3600
    async with new_bus(retention_ms=1_000) as bus:
        for kept_s, remembered_ms in ((7 * day_s, 8 * day_s * 1000), (9 * day_s, 10 * day_s * 1000), (0, 0)):
            await bus.ensure_topic(f"{topic}.DLQ")
            await bus.adjust_topic(f"{topic}.DLQ", retention=kept_s)
            await bus.publish(f"{topic}.DLQ", b"one")
            for letter in await listed(bus, topic):
                await bus.dead_letters.discard(letter)
            handled = await bus.topic(f"{topic}.DLQ.handled")
            assert handled is not None
            assert (handled.retention_ms, handled.retention_bytes) == (remembered_ms, 0)


@in_loop
async def test_those_in_a_topic_of_another_name_are_found_by_it(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        failed = await bus.subscribe(
            topic, "shipping", Recorder(failing(99)), max_deliver=1, dead_letter_topic=f"{topic}.failures"
        )
        dead = Recorder()
        await bus.subscribe(f"{topic}.failures", "watch", dead)
        await bus.publish(topic, b"one")
        await dead.have(1)
        await failed.close()
        (letter,) = await listed(bus, f"{topic}.failures")
        assert (letter.topic, letter.origin, letter.data) == (f"{topic}.failures", topic, b"one")
        assert await bus.dead_letters.get(letter.topic, letter.partition, letter.offset) == letter
        await bus.dead_letters.redrive(letter)
        assert await listed(bus, f"{topic}.failures") == []
        assert await listed(bus, topic) == [], "an ordinary topic has no dead letters in it"


@in_loop
async def test_what_something_else_has_put_there_is_listed_too(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bus.publish(f"{topic}.DLQ", b"foreign", {"deadLetterAttempts": "many", "deadLetterTime": "yesterday"})
        (letter,) = await listed(bus, topic)
        assert (letter.origin, letter.reason, letter.attempts, letter.group) == (topic, "", 0, "")
        assert letter.died_ms > 0


@in_loop
async def test_an_engine_without_a_log_says_so(site: Site, new_bus: OpenBus, topic: str) -> None:
    if site.reads:
        pytest.skip(f"{site.driver} keeps a log")
    async with new_bus() as bus:
        await bus.ensure_topic(f"{topic}.DLQ")
        for name in (topic, ""):
            with pytest.raises(Unsupported):
                await listed(bus, name)
