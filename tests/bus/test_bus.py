"""Publishing, groups, names: what holds on every engine."""

from __future__ import annotations

import asyncio
import re

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import (
    BusClosed,
    BusError,
    BusUnavailable,
    Draft,
    InvalidArgument,
    Message,
    PublishFailed,
    TopicMissing,
    Unsupported,
    open_bus,
)
from tests.bus.conftest import OpenBus
from tests.bus.recorder import Recorder
from tests.bus.sites.site import Site
from tests.client.loop import in_loop


@in_loop
async def test_what_is_published_arrives_as_it_was(new_bus: OpenBus, topic: str) -> None:
    binary = bytes(range(256)) * 4
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        published = await bus.publish(topic, binary, {"customerId": "C-17", "retryCount": 3, "isTest": True}, "user:1")
        (message,) = await handler.have(1)
    assert message.data == binary
    assert message.key == "user:1"
    assert message.attempt == 1
    assert message.topic == topic
    assert message.id == published
    attributes = dict(message.attributes)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", attributes.pop("traceparent"))
    assert attributes.pop("correlationId")
    assert attributes == {"customerId": "C-17", "retryCount": "3", "isTest": "true"}


@in_loop
async def test_attributes_that_no_header_could_carry_arrive_as_they_were(new_bus: OpenBus, topic: str) -> None:
    odd = {
        "camelCase": "stays",
        "CamelCase": "is another",
        "lines": "one\r\ntwo\nthree",
        "spaces": "  around  ",
        "unicode": "naïve ✓ 日本",
        "ключ": "значение",
        "with space": "x",
        "colon:name": "a: b",
        "Nats-Rollup": "all",
        "Nats-Expected-Stream": "another",
        "Nats-Msg-Id": "mine",
        "Slipstream-Key": "not the key",
        "empty": "",
    }
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"", {"traceparent": "mine", "correlationId": "also mine", **odd}, key="the key")
        (message,) = await handler.have(1)
    assert message.attributes == {"traceparent": "mine", "correlationId": "also mine", **odd}
    assert message.key == "the key"
    assert message.data == b""


@in_loop
async def test_messages_keep_their_order(site: Site, new_bus: OpenBus, topic: str) -> None:
    if not site.orders:
        pytest.skip(f"the server for tests of {site.driver} keeps no order: see its site")
    async with new_bus() as bus:
        sent = [str(number).encode() for number in range(200)]
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, max_in_flight=1)
        for data in sent:
            await bus.send(topic, data, key="user:1")
        await bus.flush()
        await handler.have(len(sent))
    assert handler.data == sent


@in_loop
async def test_handlers_begin_in_order_even_side_by_side(site: Site, new_bus: OpenBus, topic: str) -> None:
    if not site.orders:
        pytest.skip(f"the server for tests of {site.driver} keeps no order: see its site")
    async with new_bus() as bus:
        sent = [str(number).encode() for number in range(200)]
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, max_in_flight=16)
        await asyncio.gather(*(bus.publish(topic, data, key="user:1") for data in sent))
        await handler.have(len(sent))
    assert handler.data == sent


@in_loop
async def test_every_group_sees_every_message(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        shipping, billing = Recorder(), Recorder()
        await bus.subscribe(topic, "shipping", shipping)
        await bus.subscribe(topic, "billing.v1", billing)
        sent = {str(number).encode() for number in range(50)}
        for data in sent:
            await bus.send(topic, data)
        await shipping.have(50)
        await billing.have(50)
    assert set(shipping.data) == set(billing.data) == sent


@in_loop
async def test_those_of_a_group_compete(new_bus: OpenBus, topic: str) -> None:
    """Each holds on to its first message until the other has one, so neither can take all of them."""
    both = asyncio.Barrier(2)
    firsts: set[int] = set()

    def competitor(number: int) -> Recorder:
        async def act(message: Message) -> None:
            if number not in firsts:
                firsts.add(number)
                await both.wait()

        return Recorder(act)

    one, other = competitor(1), competitor(2)
    async with new_bus() as here, new_bus() as there:
        await here.subscribe(topic, "shipping", one, max_in_flight=1)
        await there.subscribe(topic, "shipping", other, max_in_flight=1)
        sent = sorted(str(number).encode() for number in range(40))
        for data in sent:
            await here.send(topic, data)
        while len(one.messages) + len(other.messages) < 40:
            await asyncio.sleep(0.01)
    assert sorted(one.data + other.data) == sent, "each message went to one of them, once"
    assert one.messages and other.messages


@in_loop
async def test_a_group_that_is_new_sees_what_was_published_before(site: Site, new_bus: OpenBus, topic: str) -> None:
    if not site.keeps_before_subscribed:
        pytest.skip(f"{site.driver} has no history before a subscription")
    async with new_bus() as bus:
        await bus.publish(topic, b"early")
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await handler.have(1)
    assert handler.data == [b"early"]


@in_loop
async def test_buses_with_different_prefixes_do_not_hear_each_other(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as dev, new_bus(prefix="stage.") as stage, new_bus() as plain:
        heard = {name: Recorder() for name in ("dev", "stage", "plain", "dev by its whole name")}
        await dev.subscribe(topic, "shipping", heard["dev"])
        await stage.subscribe(topic, "shipping", heard["stage"])
        await plain.subscribe(topic, "shipping", heard["plain"])
        await plain.subscribe(f"dev.{topic}", "watching", heard["dev by its whole name"])
        for name, bus in (("dev", dev), ("stage", stage), ("plain", plain)):
            await bus.publish(topic, name)
        for handler in heard.values():
            await handler.have(1)
        assert heard["dev"].messages[0].topic == topic, "the application does not see the prefix"
    assert {name: handler.data for name, handler in heard.items()} == {
        "dev": [b"dev"],
        "stage": [b"stage"],
        "plain": [b"plain"],
        "dev by its whole name": [b"dev"],
    }


@in_loop
async def test_a_message_id_is_stored_once(site: Site, new_bus: OpenBus, topic: str) -> None:
    if not site.dedupes:
        pytest.skip(f"{site.driver} cannot tell")
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        first = await bus.publish(topic, b"once", message_id="order-17")
        again = await bus.publish(topic, b"once", message_id="order-17")
        await bus.publish(topic, b"last")
        await handler.have(2)
    assert first == again
    assert handler.data == [b"once", b"last"]


@in_loop
async def test_what_a_handler_publishes_continues_its_trace(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:

        async def pass_on(message: Message) -> None:
            await bus.publish(f"{topic}.next", message.data)

        second = Recorder()
        await bus.subscribe(f"{topic}.next", "shipping", second)
        first = Recorder(pass_on)
        await bus.subscribe(topic, "shipping", first)
        await bus.publish(topic, b"", {"correlationId": "c-123"})
        (following,) = await second.have(1)
    before = first.messages[0].attributes["traceparent"].split("-")
    after = following.attributes["traceparent"].split("-")
    assert following.attributes["correlationId"] == "c-123"
    assert before[1] == after[1], "the same trace"
    assert before[2] != after[2], "another span"


@in_loop
async def test_flush_returns_when_all_is_stored(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(max_buffered_messages=10) as bus:
        await bus.subscribe(topic, "shipping", Recorder())
        futures = [await bus.send(topic, str(number)) for number in range(100)]
        assert sum(not future.done() for future in futures) <= 10, "send waits while too many are under way"
        await bus.flush()
        ids = [future.result() for future in futures]
    assert len(set(ids)) == 100


@in_loop
async def test_large_messages_arrive(new_bus: OpenBus, topic: str) -> None:
    large = bytes(range(256)) * 2_500
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        for _ in range(5):
            await bus.send(topic, large)
        await handler.have(5)
    assert handler.data == [large] * 5


@in_loop
async def test_the_log_can_be_read(site: Site, new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        if not site.reads:
            with pytest.raises(Unsupported):
                await anext(aiter(bus.read(topic)))
            return
        await bus.ensure_topic(topic, partitions=1, retention=3600)
        for number in range(10):
            await bus.publish(topic, str(number), {"number": number}, "user:1")
        everything = [stored async for stored in bus.read(topic)]
        assert [stored.data for stored in everything] == [str(number).encode() for number in range(10)]
        assert everything[3].attributes["number"] == "3"
        assert everything[3].key == "user:1"
        assert everything[3].topic == topic
        some = [stored async for stored in bus.read(topic, 0, everything[2].offset, everything[5].offset)]
        assert some == everything[2:5]


@in_loop
async def test_a_tap_sees_what_passes_and_takes_it_from_nobody(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        passing = bus.tap(f"{topic.removesuffix('.v1')}*")
        first = asyncio.ensure_future(anext(passing))
        while not first.done():  # it sees what passes from when it listens, and nobody else knows when that is
            await bus.publish(topic, b"before")
            await bus.publish("elsewhere", b"unseen")
            await asyncio.wait({first}, timeout=0.05)
        await bus.publish(topic, b"seen", {"orderId": "17"}, "user:1")
        seen = first.result()
        while seen.data == b"before":
            assert seen.topic == topic
            seen = await anext(passing)
        await passing.aclose()
        await handler.until(lambda: b"seen" in handler.data)
    assert seen.data == b"seen"
    assert seen.attributes["orderId"] == "17"
    assert seen.key == "user:1"


@in_loop
async def test_a_tap_sees_each_message_once_though_it_is_handed_out_as_well(new_bus: OpenBus, topic: str) -> None:
    """On NATS that goes over the same connection, and what is handed out has the subject of the topic."""
    async with new_bus() as bus, new_bus() as other:
        handlers = [Recorder(), Recorder()]
        for number, handler in enumerate(handlers):
            await bus.subscribe(topic, f"group-{number}", handler)
        seen: list[bytes] = []
        listening = asyncio.Event()

        async def look() -> None:
            async for stored in other.tap(listening=listening):
                if stored.topic == topic:
                    seen.append(stored.data)
                    if stored.data == b"last":
                        return

        looking = asyncio.create_task(look())
        await listening.wait()
        await bus.publish(topic, b"first")
        for handler in handlers:
            await handler.have(1)
        await bus.publish(topic, b"last")
        await looking
    assert seen == [b"first", b"last"]


@in_loop
async def test_without_ensure_a_missing_topic_is_an_error(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(ensure=False) as bus:
        with pytest.raises(TopicMissing, match=re.escape(topic)):
            await bus.publish(topic, b"")
        with pytest.raises(TopicMissing, match=re.escape(topic)):
            await bus.subscribe(topic, "shipping", Recorder())


@in_loop
async def test_what_cannot_be_right_is_refused(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        for name in ("", "two words", "double..dot", ".first", "last.", "wild.*", "all.>", "x" * 201):
            with pytest.raises(InvalidArgument):
                await bus.publish(name, b"")
        with pytest.raises(InvalidArgument):
            await bus.publish(topic, {"not": "bytes"})  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            await bus.publish(topic, b"", {"list": [1]})  # type: ignore[dict-item]
        with pytest.raises(InvalidArgument):
            await bus.publish(topic, "\ud800")
        with pytest.raises(InvalidArgument):
            await bus.publish(topic, b"", key="\ud800")
        with pytest.raises(InvalidArgument):
            await bus.publish(topic, b"", message_id="\ud800")
        with pytest.raises(InvalidArgument):
            await bus.subscribe(topic, "two words", Recorder())
        with pytest.raises(InvalidArgument):
            await bus.subscribe(topic, "shipping", lambda: None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            await bus.subscribe(topic, "shipping", Recorder(), max_in_flight=0)
        with pytest.raises(InvalidArgument, match="there are max_in_flight"):
            await bus.subscribe(topic, "shipping", Recorder(), max_inflight=1)  # type: ignore[call-arg]
    with pytest.raises(BusClosed):
        await bus.publish(topic, b"")


@in_loop
async def test_a_handler_can_publish_while_the_bus_is_closed(new_bus: OpenBus, topic: str) -> None:
    """Handlers may finish, and what they pass on belongs to that."""
    go_on = asyncio.Event()
    bus = await new_bus()

    async def pass_on(message: Message) -> None:
        await go_on.wait()
        await bus.publish(f"{topic}.next", message.data)

    handler = Recorder(pass_on)
    await bus.subscribe(f"{topic}.next", "shipping", Recorder())  # Pub/Sub keeps nothing for a group that is not there
    await bus.subscribe(topic, "shipping", handler, max_deliver=1)
    await bus.publish(topic, b"x")
    await handler.have(1)
    closing = asyncio.create_task(bus.close())
    await asyncio.wait({closing}, timeout=0.05)
    with pytest.raises(BusClosed):
        await bus.subscribe(topic, "billing", Recorder())
    go_on.set()
    await closing
    async with new_bus() as after:
        dead = Recorder()
        await after.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await after.publish(f"{topic}.DLQ", b"last")
        await dead.have(1)
    assert dead.data == [b"last"], "the handler did not fail"


@in_loop
async def test_who_waits_for_room_when_the_bus_is_closed_is_told(registry: CollectorRegistry) -> None:
    bus = await open_bus(driver="memory", registry=registry, max_buffered_messages=1)
    await bus.ensure_topic("orders")
    outcomes = await asyncio.gather(
        *(bus.publish("orders", b"x") for _ in range(5)), bus.close(), return_exceptions=True
    )
    assert all(outcome is None or isinstance(outcome, str | BusClosed) for outcome in outcomes), outcomes


@in_loop
async def test_who_subscribes_when_the_bus_is_closed_is_told(registry: CollectorRegistry) -> None:
    bus = await open_bus(driver="memory", registry=registry)
    subscribing = asyncio.create_task(bus.subscribe("orders", "shipping", Recorder()))
    await asyncio.sleep(0)
    await bus.close()
    with pytest.raises(BusClosed):
        await subscribing
    assert len(asyncio.all_tasks()) == 1, "nothing is left behind"


@in_loop
async def test_a_bus_is_opened_once(registry: CollectorRegistry) -> None:
    opening = open_bus(driver="memory", registry=registry)
    async with opening:
        with pytest.raises(BusError, match="before"):
            await opening
    with pytest.raises(BusError, match="before"):
        await opening


@in_loop
async def test_a_function_in_a_thread_publishes_through_the_bus(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:

        def pass_on(message: Message) -> None:
            with pytest.raises(InvalidArgument, match=r"bus\.from_thread"):
                asyncio.run(bus.publish(f"{topic}.next", b"from a loop of its own"))
            bus.from_thread(bus.publish(f"{topic}.next", message.data))

        second = Recorder()
        await bus.subscribe(f"{topic}.next", "shipping", second)
        await bus.subscribe(topic, "shipping", pass_on)
        await bus.publish(topic, b"x", {"correlationId": "c-1"})
        (message,) = await second.have(1)
        with pytest.raises(InvalidArgument, match="await it"):
            bus.from_thread(bus.publish(topic, b"y"))
    assert message.data == b"x"
    assert message.correlation_id == "c-1"


@in_loop
async def test_ensure_topic_makes_it_even_where_nothing_is_made_by_itself(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(ensure=False) as bus:
        await bus.ensure_topic(topic)
        await bus.publish(topic, b"x")


def test_a_bus_that_is_not_open_says_what_to_write() -> None:
    with pytest.raises(AttributeError, match="await open_bus"):
        open_bus(driver="memory").publish  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        open_bus(driver="memory").nothing  # noqa: B018


@in_loop
async def test_close_waits_for_what_is_under_way() -> None:
    bus = await open_bus(driver="memory", registry=CollectorRegistry())
    slow: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def post(message: object) -> asyncio.Future[str]:
        return slow

    bus._driver.post = post  # type: ignore[method-assign]
    await bus.send("orders", b"x")
    closing = asyncio.create_task(bus.close())
    await asyncio.wait({closing}, timeout=0.1)
    assert not closing.done()
    slow.set_exception(BusUnavailable("the engine is away"))
    with pytest.raises(PublishFailed, match="1 messages were not stored: the engine is away"):
        await closing


@in_loop
async def test_a_handler_that_closes_its_own_bus_is_told_that_it_cannot(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        told: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

        async def act(message: Message) -> None:
            for close in (bus.close, subscription.close):
                with pytest.raises(InvalidArgument, match="handler"):
                    await close()
            told.set_result(InvalidArgument())

        subscription = await bus.subscribe(topic, "shipping", Recorder(act))
        await bus.publish(topic, b"x")
        await told


@in_loop
async def test_many_are_published_at_once(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "all", handler)
        attributes = {"city": "Bremen"}
        await bus.publish_all(topic, [Draft(f"n{number}", attributes, key="k") for number in range(50)])
        await bus.publish_all(topic, [])
        messages = await handler.have(50)
    assert sorted(message.text for message in messages) == sorted(f"n{number}" for number in range(50))
    assert {message.attributes["city"] for message in messages} == {"Bremen"}
    assert all(message.attributes["correlationId"] for message in messages)
    assert {message.key for message in messages} == {"k"}
