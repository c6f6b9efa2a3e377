"""What is special to JetStream: streams and consumers, made or found, deleted under us, or not ours to touch."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError
from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, BusError, BusUnavailable, InvalidArgument, Message, Retry, TopicMissing, Unauthorized
from slipstream.bus.drivers.nats import jetstream, source
from slipstream.bus.drivers.nats.context import NoAnswer
from slipstream.bus.drivers.nats.errors import Denied
from slipstream.bus.drivers.nats.names import stream_name
from slipstream.bus.drivers.nats.source import JetStreamSource
from slipstream.bus.opening import Opening, open_bus
from tests.bus.recorder import Recorder, failing
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop


def bus_on(site: NatsSite, **given: object) -> Opening:
    return open_bus(registry=CollectorRegistry(), **{**site.settings(), **given})


@pytest.mark.parametrize("prefix", ["", "dev."])
@in_loop
async def test_a_stream_is_made_for_a_topic_with_and_without_prefix(nats: NatsSite, topic: str, prefix: str) -> None:
    async with bus_on(nats, prefix=prefix, retention_ms=3_600_000) as bus:
        await bus.publish(topic, b"x")
        js = bus.native
        name = await js.find_stream_name_by_subject(prefix + topic)
        config = (await js.stream_info(name)).config
    assert name == (prefix + topic).replace(".", "=")
    assert config.subjects == [prefix + topic]
    assert config.max_age == 3600
    assert config.storage == "file"


@in_loop
async def test_a_stream_that_covers_the_topic_is_used_as_it_is(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        js = bus.native
        stream = topic.replace(".", "_")
        await js.add_stream(StreamConfig(name=stream, subjects=[f"{topic}.>"]))
        await bus.publish(f"{topic}.sub", b"other")
        handler = Recorder()
        await bus.subscribe(f"{topic}.orders", "shipping", handler)
        await bus.publish(f"{topic}.orders", b"x")
        await handler.have(1)
        read = [stored.data async for stored in bus.read(f"{topic}.orders")]
        assert await js.find_stream_name_by_subject(f"{topic}.orders") == stream
    assert handler.data == [b"x"], "of the stream's subjects, only the topic's"
    assert read == [b"x"]


@in_loop
async def test_the_durable_of_a_group_is_pulled_and_acked_explicitly(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.subscribe(topic, "shipping.v2", Recorder(), ack_deadline=7)
        info = await bus.native.consumer_info(topic.replace(".", "="), "shipping=v2")
    assert info.config.ack_policy == "explicit"
    assert info.config.deliver_subject is None
    assert info.config.ack_wait == 7
    assert info.config.max_deliver == -1
    assert info.config.backoff is None


@in_loop
async def test_another_ack_deadline_changes_the_durable(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        handler = Recorder()
        first = await bus.subscribe(topic, "shipping", handler, ack_deadline=7)
        await bus.publish(topic, b"x")
        await handler.have(1)
        await first.close()
        await bus.subscribe(topic, "shipping", Recorder(), ack_deadline=9)
        info = await bus.native.consumer_info(topic.replace(".", "="), "shipping")
    assert info.config.ack_wait == 9
    assert info.delivered.consumer_seq == 1, "it was changed, and not made again"


@in_loop
async def test_what_an_operator_chose_for_a_durable_stays_when_its_deadline_changes(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.ensure_topic(topic)
        chosen = ConsumerConfig(
            durable_name="shipping",
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.NEW,
            filter_subject=topic,
            max_ack_pending=7,
        )
        await bus.native.add_consumer(stream_name(topic), chosen)
        await bus.subscribe(topic, "shipping", Recorder(), ack_deadline=60)
        config = (await bus.native.consumer_info(stream_name(topic), "shipping")).config
    assert (config.deliver_policy, config.max_ack_pending, config.ack_wait) == (DeliverPolicy.NEW, 7, 60)


@in_loop
async def test_a_shorter_ack_deadline_leaves_the_durable_to_those_who_are_at_work(nats: NatsSite, topic: str) -> None:
    """One who extends its leases every ten seconds would lose them all to somebody who comes with two."""
    async with bus_on(nats) as bus:
        await bus.subscribe(topic, "shipping", Recorder(), ack_deadline=30)
        await bus.subscribe(topic, "shipping", Recorder(), ack_deadline=2)
        info = await bus.native.consumer_info(topic.replace(".", "="), "shipping")
    assert info.config.ack_wait == 30


@in_loop
async def test_a_consumer_that_is_not_ours_is_left_alone(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.ensure_topic(topic)
        js, stream = bus.native, topic.replace(".", "=")
        await js.add_consumer(stream, ConsumerConfig(durable_name="pushed", deliver_subject="somewhere"))
        await js.add_consumer(stream, ConsumerConfig(durable_name="careless", ack_policy=AckPolicy.NONE))
        with pytest.raises(BusError, match="push consumer"):
            await bus.subscribe(topic, "pushed", Recorder())
        with pytest.raises(BusError, match="must be explicit"):
            await bus.subscribe(topic, "careless", Recorder())


@in_loop
async def test_without_ensure_the_consumer_must_be_there(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.ensure_topic(topic)
        await bus.ensure_topic(f"{topic}.DLQ")
    async with bus_on(nats, ensure=False) as bus:
        with pytest.raises(TopicMissing, match="nats consumer add"):
            await bus.subscribe(topic, "shipping", Recorder())


@in_loop
async def test_a_consumer_that_is_deleted_is_made_again(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"before")
        await handler.have(1)
        await bus.native.delete_consumer(topic.replace(".", "="), "shipping")
        await bus.publish(topic, b"after")
        await handler.until(lambda: b"after" in handler.data)


@in_loop
async def test_a_stream_that_is_deleted_is_made_again(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"before")
        await handler.have(1)
        await bus.native.delete_stream(topic.replace(".", "="))
        await bus.publish(topic, b"after")
        await handler.until(lambda: b"after" in handler.data)


@in_loop
async def test_a_stream_that_is_made_again_has_other_messages(nats: NatsSite, topic: str) -> None:
    """They have the same numbers, and the handler of an old one must not settle a new one."""
    gate, failed = asyncio.Event(), asyncio.Event()

    async def act(message: Message) -> None:
        if message.data == b"before":
            await gate.wait()
        elif not failed.is_set():
            failed.set()
            raise Retry("after the old one is done", delay_ms=100)

    async with bus_on(nats) as bus:
        handler = Recorder(act)
        subscription = await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"before")
        await handler.have(1)
        await bus.native.delete_stream(stream_name(topic))
        while not await _has_stream(bus, stream_name(topic)):
            await asyncio.sleep(0.02)
        await bus.publish(topic, b"after")
        await asyncio.wait_for(failed.wait(), 20)
        gate.set()
        await handler.have(3)
        while subscription.in_flight:
            await asyncio.sleep(0.01)
    assert handler.data == [b"before", b"after", b"after"]
    assert handler.messages[0].id != handler.messages[1].id


@pytest.mark.parametrize("failures", [[NoAnswer(1)], [Denied("$JS.API.STREAM.INFO")] * 9])
@in_loop
async def test_a_stream_whose_age_cannot_be_asked_is_not_taken_for_a_new_one(
    nats: NatsSite, topic: str, failures: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PAUSE_S", 0.01)
    gate, left = asyncio.Event(), list(failures)

    async def work(message: Message) -> None:
        await gate.wait()

    async with bus_on(nats) as bus:
        ask = bus.native.stream_info

        async def stream_info(name: str) -> StreamInfo:
            if left:
                raise left.pop()
            return await ask(name)  # type: ignore[no-any-return]

        handler = Recorder(work)
        subscription = await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"x")
        await handler.have(1)
        monkeypatch.setattr(bus.native, "stream_info", stream_info)
        inner: JetStreamSource = subscription._source._source  # type: ignore[attr-defined]
        inner._is_gone = True  # as when nobody answered its request
        inner._something.set()
        while inner._is_gone:
            await asyncio.sleep(0.001)
        gate.set()
        await subscription.close()
        info = await bus.native.consumer_info(stream_name(topic), "shipping")
    assert left != failures
    assert info.num_ack_pending == 0, "the message in hand was acknowledged"


@in_loop
async def test_a_read_ends_when_the_messages_ahead_disappear(
    nats: NatsSite, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "READ_WAIT_S", 0.2)
    async with bus_on(nats) as bus:
        for _ in range(20):
            await bus.send(topic, b"x")
        await bus.flush()
        messages = bus.read(topic)
        await anext(messages)
        await bus.native.purge_stream(stream_name(topic))
        assert len([stored async for stored in messages]) < 19


@in_loop
async def test_a_read_that_is_given_up_leaves_no_consumer_behind(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.publish(f"{topic}.DLQ", b"one")
        await bus.publish(f"{topic}.DLQ", b"two")
        async with contextlib.aclosing(bus.dead_letters.list(topic)) as letters:
            await anext(letters)
        await bus.dead_letters.get(topic, 0, 1)
        assert await bus.native.consumers_info(stream_name(f"{topic}.DLQ")) == []


async def _has_stream(bus: Bus, name: str) -> bool:
    try:
        await bus.native.consumer_info(name, "shipping")
    except NotFoundError:
        return False
    return True


@in_loop
async def test_a_message_too_large_for_the_server_is_refused(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        with pytest.raises(InvalidArgument, match="max_payload"):
            await bus.publish(topic, bytes(2 << 20))
        await bus.publish(topic, b"the next is not held up")


@in_loop
async def test_a_stream_that_is_full_refuses_with_the_servers_words(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        config = StreamConfig(name=topic.replace(".", "="), subjects=[topic], max_msgs=1, discard="new")  # type: ignore[arg-type]
        await bus.native.add_stream(config)
        await bus.publish(topic, b"x")
        with pytest.raises(BusError, match="maximum messages exceeded"):
            await bus.publish(topic, b"y")


@in_loop
async def test_what_others_publish_without_headers_is_a_message_too(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.native.publish(topic, b"plain")
        (message,) = await handler.have(1)
    assert message.data == b"plain"
    assert message.attributes == {}
    assert message.key == ""


@in_loop
async def test_what_others_put_in_headers_of_ours_loses_no_message(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.native.publish(topic, b"x", headers={"Slipstream-Attributes": "{no JSON", "Slipstream-Key-Json": "1"})
        (message,) = await handler.have(1)
    assert (message.data, message.attributes, message.key) == (b"x", {}, "")


@in_loop
async def test_a_server_without_jetstream_is_refused_at_once() -> None:
    site = NatsSite("--name", "without-jetstream")
    try:
        with pytest.raises(BusUnavailable, match="start it with -js"):
            await bus_on(site)
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_the_order_is_kept_when_the_server_is_killed_under_many_that_are_under_way(topic: str) -> None:
    site = NatsSite()
    try:
        async with bus_on(site) as bus:
            sent = [str(number).encode() for number in range(10_000)]

            async def send_all() -> None:
                for number, data in enumerate(sent):
                    await bus.send(topic, data)
                    if number % 10 == 0:
                        await asyncio.sleep(0.0005)  # so that it goes on while the server is away
                await bus.flush()

            sending = asyncio.create_task(send_all())
            for _ in range(3):
                await asyncio.sleep(0.1)
                await asyncio.to_thread(site.stop_server)
                await asyncio.to_thread(site.start_server)
            await sending
            stored = [each.data async for each in bus.read(topic)]
        assert stored == sent, "each once, in order"
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_a_message_as_large_as_the_server_takes_can_still_be_buried(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        dead, size = Recorder(), (1 << 20) - 4_096 - 300
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead)
        await bus.subscribe(topic, "shipping", Recorder(failing(9, RuntimeError("\u00e9" * 5_000))), max_deliver=1)
        await bus.publish(topic, bytes(size), {"odd": " spaces "})
        (letter,) = await dead.have(1)
        with pytest.raises(InvalidArgument, match="max_payload"):
            await bus.publish(topic, bytes((1 << 20) - 4_096))
        with pytest.raises(InvalidArgument, match="attributes may have 65535"):
            await bus.publish(topic, b"", {"large": "x" * 62_000})
        await bus.publish(topic, b"", {"large": "x" * 61_000})
        await dead.have(2)
    assert len(letter.data) == size


@in_loop
async def test_a_stream_is_made_at_once_though_somebody_listens_who_is_none(nats: NatsSite, topic: str) -> None:
    """A tap listens to the subject, so that the server never says that nobody does."""
    async with bus_on(nats) as bus, bus_on(nats) as other:
        listening = asyncio.Event()
        passing = other.tap(topic, listening=listening)
        first = asyncio.ensure_future(anext(passing))
        await listening.wait()
        await asyncio.wait_for(bus.publish(topic, b"x"), 4)
        assert (await first).topic == topic
        await passing.aclose()
        assert [stored.data async for stored in bus.read(topic)] == [b"x"]


@in_loop
async def test_who_may_publish_and_nothing_else_can(topic: str, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(
        "jetstream: enabled\n"
        "authorization { users: [\n"
        "  { user: all, password: x }\n"
        f'  {{ user: one, password: x, permissions: {{ publish: ["{topic}"], subscribe: ["_INBOX.>"] }} }}\n'
        "] }\n"
    )
    site = NatsSite("-c", str(config))
    try:
        address = f"127.0.0.1:{site.port}"
        async with bus_on(site, nats_url=f"nats://all:x@{address}") as bus:
            await bus.ensure_topic(topic)
            async with bus_on(site, nats_url=f"nats://one:x@{address}") as narrow:
                await narrow.publish(topic, b"x")
            assert [stored.data async for stored in bus.read(topic)] == [b"x"]
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_what_is_not_allowed_is_told_at_once(topic: str, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    denied = (
        f'permissions: {{ publish: {{ deny: ["{topic}", "$JS.API.CONSUMER.>"] }}, subscribe: {{ deny: "{topic}" }} }}'
    )
    config.write_text(
        "jetstream: enabled\n"
        f"authorization {{ users: [ {{ user: all, password: x }}, {{ user: few, password: x, {denied} }} ] }}\n"
    )
    site = NatsSite("-c", str(config))
    try:
        address = f"127.0.0.1:{site.port}"
        async with bus_on(site, nats_url=f"nats://all:x@{address}") as bus:
            await bus.ensure_topic(topic)
        async with asyncio.timeout(4), bus_on(site, nats_url=f"nats://few:x@{address}") as few:
            with pytest.raises(Unauthorized, match="no permission to publish"):
                await few.publish(topic, b"x")
            with pytest.raises(Unauthorized, match=r"CONSUMER\.INFO"):
                await few.subscribe(topic, "shipping", Recorder())
        async with (
            asyncio.timeout(4),
            bus_on(site, nats_url=f"nats://few:x@{address}", nats_jetstream=False) as core,
        ):
            with pytest.raises(Unauthorized, match="no permission"):
                await core.publish(topic, b"x")
            with pytest.raises(Unauthorized, match="no permission"):
                await core.subscribe(topic, "shipping", Recorder())
            await core.publish(f"{topic}.other", b"x")
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_a_request_that_has_expired_is_made_again(
    nats: NatsSite, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "EXPIRES_S", 0.2)
    monkeypatch.setattr(source, "HEARTBEAT_S", 0.1)
    async with bus_on(nats) as bus:
        handler = Recorder()
        subscription = await bus.subscribe(topic, "shipping", handler)
        while subscription._source._source._generation < 3:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)  # two requests have ended without a message
        await bus.publish(topic, b"x")
        async with asyncio.timeout(20):
            await handler.have(1)
