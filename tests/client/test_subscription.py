"""Leases and slots of one handler, with somebody between the worker and its server."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import pytest
from aiohttp import web

from slipstream.api import MSGPACK
from slipstream.client import AsyncClient, LeaseLost, Message, Reject, Retry, Worker
from slipstream.client.subscription import Subscription
from tests.client.between import Act, Between, answer, between, cut, cut_after, hold, unavailable
from tests.client.loop import in_loop, until
from tests.client.test_worker import dead_letter, finished, serving
from tests.conftest import StartServer
from tests.server_process import ServerProcess


def worker(url: str) -> Worker:
    return Worker(client=AsyncClient(url, backoff_ms=1, backoff_ms_max=20), poll_ms=200)


@pytest.mark.parametrize("kind", ["async", "thread"])
@in_loop
async def test_a_handler_longer_than_its_lease_keeps_it(shared: ServerProcess, topic: str, kind: str) -> None:
    app = worker(shared.base)
    began, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    attempts: list[int] = []

    def handle(message: Message) -> None:
        attempts.append(message.attempts)
        loop.call_soon_threadsafe(began.set)
        release.wait(30)

    async def handle_async(message: Message) -> None:
        attempts.append(message.attempts)
        began.set()
        await asyncio.to_thread(release.wait, 30)

    app.handler(topic, group="g", concurrency=2, lease_ms=1_000)(handle if kind == "thread" else handle_async)
    async with app.client, AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        await began.wait()
        (leased,) = (await client.group(topic, "g")).messages

        async def three_leases_later() -> bool:
            (now,) = (await client.group(topic, "g")).messages
            return now.until_ms > leased.until_ms + 3_000

        await until(three_leases_later)
        assert await client.fetch(topic, "g") == [], "nobody else gets it"
        release.set()
        await finished(client, topic)
    assert attempts == [1]


@in_loop
async def test_a_slot_is_free_when_the_ack_is_heard_and_not_before(shared: ServerProcess, topic: str) -> None:
    app = worker("http://127.0.0.1:1")
    seen: list[str] = []

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        seen.append(message.text)

    async with between(shared.base) as middle, app.client, AsyncClient(shared.base) as client:
        app.client._transport.url = middle.url
        middle.always["/v2/ack"] = hold
        await client.produce_batch(topic, ["1", "2"])
        async with serving(app):
            await middle.held.acquire()
            assert (seen, (await client.group(topic, "g")).in_flight) == (["1"], 1)
            middle.release.set()
            await finished(client, topic)
    assert seen == ["1", "2"]


@in_loop
async def test_acks_that_come_together_go_together(shared: ServerProcess, topic: str) -> None:
    app = worker("http://127.0.0.1:1")
    release = asyncio.Event()

    @app.handler(topic, group="g", concurrency=10)
    async def handle(message: Message) -> None:
        if message.text != "0":
            await release.wait()

    async with between(shared.base) as middle, app.client, AsyncClient(shared.base) as client:
        app.client._transport.url = middle.url
        middle.always["/v2/ack"] = hold
        await client.produce_batch(topic, [str(n) for n in range(10)])
        async with serving(app):
            await middle.held.acquire()
            release.set()
            middle.release.set()
            await finished(client, topic)
        acked = [body for path, body in zip(middle.seen, middle.bodies, strict=True) if path == "/v2/ack"]
    counts = [len(body["messages"]) for body in acked if isinstance(body, dict)]
    assert sum(counts) == 10
    assert len(counts) <= 3


@pytest.mark.parametrize("trouble", [cut, cut_after, unavailable()], ids=["cut", "cut after", "503"])
@in_loop
async def test_an_ack_is_said_until_it_is_heard(shared: ServerProcess, topic: str, trouble: Act) -> None:
    app = worker("http://127.0.0.1:1")
    seen: list[str] = []

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        seen.append(message.text)
        if message.text == "bad" and message.attempts == 1:
            raise ValueError

    async with between(shared.base) as middle, app.client, AsyncClient(shared.base) as client:
        app.client._transport.url = middle.url
        middle.always["/v2/ack"] = middle.always["/v2/nack"] = trouble
        await client.produce_batch(topic, ["good", "bad"])
        async with serving(app):

            async def said_often() -> bool:
                await asyncio.sleep(0)
                return middle.seen.count("/v2/ack") > 3

            await until(said_often)
            middle.always.clear()
            await finished(client, topic)
    assert seen == ["good", "bad", "bad"]


async def take_away(client: AsyncClient, topic: str) -> Message:
    """Gets the message that a worker holds, once its lease has run out."""
    messages: list[Message] = []

    async def taken() -> bool:
        messages.extend(await client.fetch(topic, "g", wait_ms=1_000, lease_ms=60_000))
        return bool(messages)

    await until(taken)
    return messages[0]


@in_loop
async def test_a_handler_whose_message_is_anothers_is_cancelled_and_acks_nothing(
    shared: ServerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = worker("http://127.0.0.1:1")
    began, cancelled = asyncio.Event(), asyncio.Event()
    held: list[Message] = []

    @app.handler(topic, group="g", lease_ms=150)
    async def handle(message: Message) -> None:
        held.append(message)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with between(shared.base) as middle, app.client, AsyncClient(shared.base) as other:
        app.client._transport.url = middle.url
        middle.always["/v2/extend"] = cut
        await other.produce(topic, "v")
        async with serving(app):
            await began.wait()
            taken = await take_away(other, topic)
            middle.always.clear()
            await cancelled.wait()
        assert held[0].lease_lost
        assert "/v2/ack" not in middle.seen
        assert "/v2/nack" not in middle.seen
        assert "is no longer ours: not owner" in caplog.text
        assert "leases are not renewed" in caplog.text
        await other.ack(taken)
        with pytest.raises(LeaseLost):
            await other.extend(taken)


@in_loop
async def test_a_function_in_a_thread_can_ask_whether_its_message_is_anothers(
    shared: ServerProcess, topic: str
) -> None:
    app = worker("http://127.0.0.1:1")
    began, gave_up = threading.Event(), threading.Event()

    @app.handler(topic, group="g", lease_ms=150)
    def handle(message: Message) -> None:
        began.set()
        while not message.lease_lost:
            time.sleep(0.01)
        gave_up.set()

    async with between(shared.base) as middle, app.client, AsyncClient(shared.base) as other:
        app.client._transport.url = middle.url
        middle.always["/v2/extend"] = cut
        await other.produce(topic, "v")
        async with serving(app):
            await asyncio.to_thread(began.wait)
            await take_away(other, topic)
            middle.always.clear()
            await asyncio.to_thread(gave_up.wait)
        assert "/v2/ack" not in middle.seen


@in_loop
async def test_a_message_that_comes_again_while_its_handler_is_at_it_is_not_handled_twice(
    shared: ServerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    app = worker("http://127.0.0.1:1")
    runs = 0
    release = asyncio.Event()

    @app.handler(topic, group="g", concurrency=2, lease_ms=150)
    async def handle(message: Message) -> None:
        nonlocal runs
        runs += 1
        await release.wait()

    async with between(shared.base) as middle, app.client, AsyncClient(shared.base) as client:
        app.client._transport.url = middle.url
        middle.always["/v2/extend"] = cut
        await client.produce(topic, "v")
        async with serving(app):

            async def came_again() -> bool:
                await asyncio.sleep(0)
                return "came again while its handler is at it" in caplog.text

            await until(came_again)
            middle.always.clear()
            release.set()
            await finished(client, topic)
    assert runs == 1


@in_loop
async def test_a_topic_deleted_under_a_handler_is_let_go(
    shared: ServerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = worker(shared.base)
    began, release, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        if message.text == "new":
            again.set()
            return
        began.set()
        await release.wait()

    async with app.client, AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "old")
        await began.wait()
        await client.delete_topic(topic)
        release.set()

        async def refused() -> bool:
            await asyncio.sleep(0)
            return "are refused" in caplog.text

        await until(refused)
        await client.create_topic(topic)
        await client.produce(topic, "new")
        await again.wait()


@in_loop
async def test_an_answer_about_a_message_that_nobody_asked_for_does_not_end_the_renewals(
    shared: ServerProcess, topic: str
) -> None:
    strange = {"extended": 0, "lease_until_ms": 0, "failed": [_failure(9, 9)]}
    release = asyncio.Event()
    attempts: list[int] = []

    async with between(shared.base) as middle, AsyncClient(shared.base) as client:
        app = worker(middle.url)

        @app.handler(topic, group="g", lease_ms=600)
        async def handle(message: Message) -> None:
            attempts.append(message.attempts)
            await release.wait()

        async with app.client:
            middle.always["/v2/extend"] = answer(200, msgspec.msgpack.encode(strange), Content_Type=MSGPACK)
            async with serving(app):
                await client.produce(topic, "v")

                async def asked(times: int) -> None:
                    async def is_asked() -> bool:
                        await asyncio.sleep(0.01)
                        return middle.seen.count("/v2/extend") >= times

                    await until(is_asked)

                await asked(1)
                del middle.always["/v2/extend"]
                await asked(5)
                release.set()
                await finished(client, topic)
    assert attempts == [1]


@in_loop
async def test_a_renewal_that_is_never_answered_loses_no_lease(shared: ServerProcess, topic: str) -> None:
    """An answer may take longer than a lease lasts; the next renewal does not wait for it."""
    release = asyncio.Event()
    attempts: list[int] = []
    async with between(shared.base) as middle, AsyncClient(shared.base) as client:
        app = worker(middle.url)

        @app.handler(topic, group="g", lease_ms=9_000)
        async def handle(message: Message) -> None:
            attempts.append(message.attempts)
            await release.wait()

        async def silent_once(between: Between, request: web.Request) -> web.StreamResponse:
            del between.always["/v2/extend"]
            return await hold(between, request)

        async with app.client:
            middle.always["/v2/extend"] = silent_once
            async with serving(app):
                await client.produce(topic, "v")
                await middle.held.acquire()
                rival = asyncio.create_task(client.fetch(topic, "g", wait_ms=30_000))

                async def is_renewed_or_lost() -> bool:
                    await asyncio.sleep(0.01)
                    return rival.done() or middle.seen.count("/v2/extend") > 1

                await until(is_renewed_or_lost)
                assert not rival.done(), "nobody else gets it"
                rival.cancel()
                release.set()
                await finished(client, topic)
    assert attempts == [1]


@in_loop
async def test_a_topic_made_again_under_a_handler_loses_nothing(shared: ServerProcess, topic: str) -> None:
    """Its messages have the places of those before them, and must not be taken for them."""
    app = worker(shared.base)
    began, release = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    @app.handler(topic, group="g", concurrency=2, lease_ms=60_000)
    async def handle(message: Message) -> None:
        seen.append(message.text)
        if message.text == "old":
            began.set()
            await release.wait()

    async with app.client, AsyncClient(shared.base) as client:
        await client.produce(topic, "old")
        async with serving(app):
            await began.wait()
            await client.delete_topic(topic)
            await client.create_topic(topic)
            await client.produce(topic, "new")

            async def is_handed_out() -> bool:
                groups = await client.groups(topic)
                return (bool(groups) and groups[0].lag == 0) or any(group.in_flight for group in groups)

            await until(is_handed_out)
            release.set()
            await finished(client, topic)
    assert seen == ["old", "new"]


@in_loop
async def test_results_too_large_for_one_request_are_told_in_several(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Reasons may be long."""
    server = start_server("--max-body-bytes", "65536")
    topic, count = "t", 32
    app = worker(server.base)
    all_there = asyncio.Barrier(count)

    @app.handler(topic, group="g", concurrency=count, lease_ms=60_000)
    async def handle(message: Message) -> None:
        await all_there.wait()
        raise Reject("x" * 4_096)

    async with app.client, AsyncClient(server.base) as client:
        await client.create_topic(topic)
        await client.produce_batch(topic, ["v"] * count)
        async with serving(app):
            await finished(client, topic)
        assert len([letter async for letter in client.dead_letters(topic)]) == count
    assert "are refused" not in caplog.text


@in_loop
async def test_a_result_that_is_refused_takes_no_other_with_it(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    both = asyncio.Barrier(2)

    @app.handler(topic, group="g", concurrency=2, lease_ms=60_000)
    async def handle(message: Message) -> None:
        if message.attempts == 1:
            await both.wait()
        if message.text == "bad":
            raise Retry("later", delay_ms=-1)
        raise Reject("never")

    async with app.client, AsyncClient(shared.base) as client:
        await client.produce_batch(topic, ["bad", "good"])
        async with serving(app):
            assert (await dead_letter(client, topic)).value == b"good"


def _failure(partition: int, offset: int) -> dict[str, object]:
    return {"partition": partition, "offset": offset, "error": "FAILED_PRECONDITION", "message": "not owner"}


@in_loop
async def test_a_server_that_has_nothing_at_once_is_not_asked_without_a_pause(
    shared: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = asyncio.Event()
    pause = Subscription._pause

    async def noticed(subscription: Subscription, pause_ms: float) -> None:
        if pause_ms > 0:
            paused.set()
        await pause(subscription, pause_ms)

    monkeypatch.setattr(Subscription, "_pause", noticed)
    async with between(shared.base) as middle:
        nothing = msgspec.msgpack.encode({"messages": []})
        middle.always["/v2/fetch"] = answer(200, nothing, Content_Type="application/msgpack")
        app = worker(middle.url)

        @app.handler(topic, group="g")
        async def handle(message: Message) -> None: ...

        async with app.client, serving(app):
            await paused.wait()
