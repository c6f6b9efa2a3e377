"""The producer, against a server and somebody in between."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable
from typing import cast

import msgspec
import pytest

from slipstream.api import Placed
from slipstream.client import (
    AsyncClient,
    ConnectionFailed,
    InvalidArgument,
    NotFound,
    Overloaded,
    ProduceFailed,
    SlipstreamError,
)
from slipstream.testing import MemoryBroker
from tests.client.between import Act, Between, answer, between, cut, cut_after, hold, overloaded, passing, unavailable
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


def sizes(middle: Between) -> list[int]:
    """How many messages each request to produce had."""
    return [
        len(cast("dict[str, list[object]]", body)["messages"])
        for path, body in zip(middle.seen, middle.bodies, strict=True)
        if path == "/v2/produce"
    ]


async def stored(client: AsyncClient, topic: str) -> list[str]:
    return [message.value.decode() async for message in client.scan(topic)]


@in_loop
async def test_messages_are_stored_in_order_and_in_few_requests(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        async with client.producer(topic) as producer:
            places = [await producer.send(str(n), key=f"k{n}") for n in range(2_500)]
        assert [(await place).offset for place in places] == [*range(2_500)]
        assert await stored(client, topic) == [str(n) for n in range(2_500)]
        assert sum(sizes(middle)) == 2_500
        assert max(sizes(middle)) == 1_000
        assert len(sizes(middle)) < 10


@in_loop
async def test_a_batch_is_no_larger_than_it_may_be(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        async with client.producer(topic, max_batch_bytes=1_000, linger_ms=1_000) as producer:
            for _ in range(10):
                await producer.send(b"x" * 300)
            await producer.send(b"x" * 5_000)
        assert sizes(middle) == [3, 3, 3, 1, 1]


@in_loop
async def test_one_message_does_not_wait_for_ever_for_others(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client, client.producer(topic, linger_ms=1) as producer:
        assert await (await producer.send("alone")) == Placed(0, 0)


@in_loop
async def test_a_flush_does_not_linger(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client, client.producer(topic, linger_ms=3_600_000) as producer:
        await producer.flush()
        place = await producer.send("one")
        await producer.flush()
        assert place.done()
        assert producer.buffered_messages == producer.buffered_bytes == 0


@in_loop
async def test_a_full_batch_does_not_linger(shared: ServerProcess, topic: str) -> None:
    async with (
        AsyncClient(shared.base) as client,
        client.producer(topic, linger_ms=3_600_000, max_batch_messages=3) as producer,
    ):
        places = [await producer.send(str(n)) for n in range(3)]
        await asyncio.gather(*places)


# Memory


async def turns(count: int = 20) -> None:
    """Time for everything that can go on to go on."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limit", ["max_buffered_messages", "max_buffered_bytes"])
@in_loop
async def test_who_is_faster_than_the_server_waits(shared: ServerProcess, topic: str, limit: str) -> None:
    """Ten messages, or the bytes of ten: more are not taken, and none is dropped."""
    async with between(shared.base, hold) as middle, AsyncClient(middle.url) as client:
        messages, size = (10, 1 << 20) if limit == "max_buffered_messages" else (1 << 20, 10 * 118)
        producer = client.producer(topic, max_buffered_messages=messages, max_buffered_bytes=size, linger_ms=0)
        sent: list[Awaitable[Placed]] = []

        async def send_all() -> None:
            for n in range(100):
                sent.append(await producer.send(f"{n:0100}"))
                assert producer.buffered_messages <= 10

        sending = asyncio.create_task(send_all())
        await middle.held.acquire()
        await turns()
        assert (len(sent), producer.buffered_messages, sending.done()) == (10, 10, False)
        assert producer.buffered_bytes <= 10 * 118
        middle.release.set()
        await sending
        await producer.close()
        assert [int(text) for text in await stored(client, topic)] == [*range(100)]


@in_loop
async def test_those_who_wait_for_room_get_it_in_the_order_they_came(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base, hold) as middle, AsyncClient(middle.url) as client:
        producer = client.producer(topic, max_buffered_messages=1, linger_ms=0)
        senders = [asyncio.create_task(producer.send(str(n))) for n in range(20)]
        await middle.held.acquire()
        middle.release.set()
        await asyncio.gather(*senders)
        await producer.close()
        assert await stored(client, topic) == [str(n) for n in range(20)]


@in_loop
async def test_who_stops_waiting_for_room_has_sent_nothing(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base, hold) as middle, AsyncClient(middle.url) as client:
        producer = client.producer(topic, max_buffered_messages=1, linger_ms=0)
        await producer.send("first")
        waiting = [asyncio.create_task(producer.send(text)) for text in ("second", "third")]
        await middle.held.acquire()
        waiting[0].cancel()
        await turns()
        middle.release.set()
        await waiting[1]
        await producer.close()
        assert waiting[0].cancelled()
        assert await stored(client, topic) == ["first", "third"]


@in_loop
async def test_a_message_larger_than_the_buffer_is_sent_alone(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        async with client.producer(topic, max_buffered_bytes=100) as producer:
            await producer.send("small")
            await producer.send("x" * 1_000)
            await producer.send("small")
        assert [len(text) for text in await stored(client, topic)] == [5, 1_000, 5]


# Failures


@pytest.mark.parametrize("trouble", [cut, cut_after, unavailable(), overloaded(1)], ids=["cut", "after", "503", "429"])
@in_loop
async def test_nothing_is_stored_twice_or_out_of_order_however_often_it_is_sent(
    shared: ServerProcess, topic: str, trouble: Act
) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url, backoff_ms=1) as client:
        middle.acts = [trouble, passing, trouble, trouble, passing, trouble]
        async with client.producer(topic, max_batch_messages=10, linger_ms=0) as producer:
            for n in range(100):
                await producer.send(str(n))
        assert await stored(client, topic) == [str(n) for n in range(100)]


@in_loop
async def test_it_goes_on_after_the_server_was_killed_and_stores_everything_once(
    server: ServerProcess, own_topic: str
) -> None:
    async with AsyncClient(server.base) as client:
        async with client.producer(own_topic, max_batch_messages=50) as producer:
            for n in range(2_000):
                await producer.send(str(n))
                if n == 1_000:
                    await asyncio.to_thread(server.restart)
        assert await stored(client, own_topic) == [str(n) for n in range(2_000)]


@in_loop
async def test_a_bad_message_fails_alone(shared: ServerProcess, topic: str) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    async with AsyncClient(shared.base) as client:
        producer = client.producer(topic, linger_ms=1_000)
        places = [
            await (producer.send(str(n), deadline=past) if n in {3, 77} else producer.send(str(n))) for n in range(100)
        ]
        with pytest.raises(ProduceFailed, match=f"2 messages to {topic} were not stored: message deadline") as caught:
            await producer.flush()
        assert caught.value.count == 2
        await producer.close()  # told once
        assert [n for n, place in enumerate(places) if place.exception() is not None] == [3, 77]
        assert isinstance(places[3].exception(), InvalidArgument)
        assert await stored(client, topic) == [str(n) for n in range(100) if n not in {3, 77}]


@in_loop
async def test_a_message_for_a_topic_that_is_not_there_fails_alone(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        producer = client.producer(topic, linger_ms=1_000)
        await producer.send("good")
        lost = await producer.send("lost", target_topic="nowhere")
        with pytest.raises(ProduceFailed):
            await producer.close()
        assert isinstance(lost.exception(), NotFound)
        assert await stored(client, topic) == ["good"]


@in_loop
async def test_a_topic_that_is_not_there_fails_in_one_request(shared: ServerProcess) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        producer = client.producer("nowhere", linger_ms=1_000)
        for n in range(10):
            await producer.send(str(n))
        with pytest.raises(ProduceFailed, match="10 messages"):
            await producer.close()
        assert sizes(middle) == [10]


@in_loop
async def test_batches_too_large_for_the_server_are_taken_apart() -> None:
    with MemoryBroker(max_batch_bytes=3_000) as broker:
        async with broker.async_client() as client:
            await client.create_topic("t")
            producer = client.producer("t", linger_ms=1_000)
            for n in range(20):
                await producer.send(f"{n:0500}")
            too_large = await producer.send("x" * 5_000)
            with pytest.raises(ProduceFailed, match="1 messages"):
                await producer.close()
            assert too_large.exception() is not None
            assert [int(text) for text in await stored(client, "t")] == [*range(20)]


@in_loop
async def test_a_failure_nobody_looked_at_is_raised_at_the_end(shared: ServerProcess) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(ProduceFailed):
            async with client.producer("nowhere") as producer:
                await producer.send("lost")


@in_loop
async def test_it_does_not_hide_another_exception(shared: ServerProcess) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(ZeroDivisionError) as caught:
            async with client.producer("nowhere") as producer:
                await producer.send("lost")
                raise ZeroDivisionError
    assert "1 messages to nowhere were not stored" in caught.value.__notes__[0]


@in_loop
async def test_what_cannot_be_stored_in_time_fails_and_the_rest_goes_on(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base, overloaded(60_000)) as middle, AsyncClient(middle.url) as client:
        producer = client.producer(topic, linger_ms=0, retry_for_ms=1_000)
        first = await producer.send("first")
        with pytest.raises(Overloaded):
            await first
        await (await producer.send("second"))
        with pytest.raises(ProduceFailed, match="1 messages"):
            await producer.close()
        assert await stored(client, topic) == ["second"]


@in_loop
async def test_who_gives_up_the_end_leaves_nobody_waiting(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base, hold) as middle, AsyncClient(middle.url) as client:
        producer = client.producer(topic, max_buffered_messages=2, max_batch_messages=1, linger_ms=0)
        places = [await producer.send("one"), await producer.send("two")]
        waiting = asyncio.create_task(producer.send("three"))
        await middle.held.acquire()
        closing = asyncio.create_task(producer.close())
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        for place in (*places, await waiting):
            with pytest.raises(SlipstreamError, match="stopped"):
                await place
        with pytest.raises(ProduceFailed, match="3 messages"):
            await producer.close()


@in_loop
async def test_a_future_that_was_cancelled_leaves_nobody_waiting_either(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base, hold) as middle, AsyncClient(middle.url) as client:
        producer = client.producer(topic)
        stored = await producer.send("v")
        await middle.held.acquire()
        flushing = asyncio.create_task(producer.flush())
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        stored.cancel()
        closing.cancel()
        with pytest.raises(SlipstreamError, match="stopped"):
            await flushing


@in_loop
async def test_a_producer_nobody_closed_loses_nothing(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.producer(topic, linger_ms=3_600_000).send("forgotten")
    async with AsyncClient(shared.base) as client:
        assert await stored(client, topic) == ["forgotten"]
    with pytest.raises(ProduceFailed):
        async with AsyncClient(shared.base) as client:
            await client.producer("nowhere").send("lost")


@in_loop
async def test_a_producer_that_was_closed_says_so(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        producer = client.producer(topic)
        await producer.close()
        with pytest.raises(SlipstreamError, match="closed"):
            await producer.send("late")


@in_loop
async def test_what_cannot_travel_is_refused_to_who_sends_it(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client, client.producer(topic) as producer:
        with pytest.raises(InvalidArgument):
            await producer.send("v", attributes={"a": object()})  # type: ignore[dict-item]
        await producer.send("good")


@in_loop
async def test_a_server_that_is_not_there_is_said_to_be_so() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        producer = client.producer("t", retry_for_ms=0)
        place = await producer.send("v")
        with pytest.raises(ProduceFailed, match="is the server running"):
            await producer.close()
        assert isinstance(place.exception(), ConnectionFailed)


@in_loop
async def test_an_answer_that_names_too_few_places_fails_its_batch_and_not_the_producer(
    shared: ServerProcess, topic: str
) -> None:
    """It used to end the task that sends: what was given to the producer afterwards waited for ever."""
    one_place = msgspec.msgpack.encode({"topic": topic, "messages": [{"partition": 0, "offset": 0}]})
    short = answer(200, one_place, Content_Type="application/msgpack")
    async with between(shared.base, short) as middle, AsyncClient(middle.url) as client:
        producer = client.producer(topic, linger_ms=1_000)
        places = [await producer.send("a"), await producer.send("b")]
        with pytest.raises(ProduceFailed, match="makes no sense"):
            await producer.flush()
        for place in places:
            with pytest.raises(SlipstreamError, match="makes no sense"):
                await place
        async with asyncio.timeout(10):
            await producer.send("c")
            await producer.close()
        assert await stored(client, topic) == ["c"]
