"""A worker in this process, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from slipstream.api import DeadLetterItem
from slipstream.client import (
    AsyncClient,
    AsyncMessage,
    InvalidArgument,
    Message,
    Reject,
    Retry,
    SyncMessage,
    Worker,
)
from tests.client.between import between
from tests.client.loop import in_loop, until
from tests.server_process import ServerProcess


@contextlib.asynccontextmanager
async def serving(app: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(app.serve())
    try:
        yield
    finally:
        app.stop()
        await task


def worker(url: str, drain_timeout_ms: int = 30_000) -> Worker:
    return Worker(url, poll_ms=200, drain_timeout_ms=drain_timeout_ms)


async def finished(client: AsyncClient, topic: str, group: str = "g") -> None:
    """Returns when the group has nothing left to do."""

    async def is_finished() -> bool:
        groups = [info for info in await client.groups(topic) if info.group == group]
        return bool(groups) and groups[0].lag == groups[0].in_flight == 0

    await until(is_finished)


async def dead_letter(client: AsyncClient, topic: str) -> DeadLetterItem[bytes]:
    """The one there is, as soon as it is."""
    letters: list[DeadLetterItem[bytes]] = []

    async def is_there() -> bool:
        if f"dlq.{topic}" in [summary.name for summary in await client.topics()]:
            letters.extend([letter async for letter in client.dead_letters(topic)])
        return bool(letters)

    await until(is_there)
    return letters[0]


# Outcomes


@in_loop
async def test_a_dead_letter_has_the_traceback_of_its_handler(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)

    def charge(customer: str) -> None:
        raise LookupError(f"no customer {customer}")

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        try:
            charge(message.text)
        except LookupError as error:
            raise Reject("the order cannot be paid") from error

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "ann")
        found = await dead_letter(client, topic)
        (attempt,) = (await client.dead_letter(topic, found.partition, found.offset)).history
    assert (attempt.number, attempt.worker, attempt.error) == (1, app.client.owner, "the order cannot be paid")
    for line in ("LookupError: no customer ann", "in charge", "in handle"):
        assert line in attempt.traceback
    last = attempt.traceback.rpartition("Traceback (most recent call last):")[2]
    assert last.strip().splitlines()[0].endswith("in handle"), "it begins with the handler, not with what called it"


@in_loop
async def test_what_returns_is_acked_and_what_raises_comes_again_with_the_reason(
    shared: ServerProcess, topic: str
) -> None:
    app = worker(shared.base)
    seen: list[tuple[str, int, str]] = []

    @app.handler(topic, group="g", concurrency=4)
    async def handle(message: Message) -> None:
        seen.append((message.text, message.attempts, message.last_error))
        if message.text == "bad" and message.attempts == 1:
            raise ValueError("no good")

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce_batch(topic, ["good", "bad"])
        await finished(client, topic)
    assert sorted(seen) == [("bad", 1, ""), ("bad", 2, "ValueError: no good"), ("good", 1, "")]


@in_loop
async def test_a_rejected_message_is_a_dead_letter_at_once(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        raise Reject("no such customer")

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        letter = await dead_letter(client, topic)
    assert letter.envelope.dlq is not None
    assert (letter.envelope.dlq.attempts, letter.envelope.dlq.last_error) == (1, "no such customer")


@in_loop
async def test_a_handler_may_say_when_to_come_again(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    handled = asyncio.Event()

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        handled.set()
        raise Retry("the bank is closed", delay_ms=3_600_000)

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        await handled.wait()

        async def is_waiting() -> bool:
            return [message.state for message in (await client.group(topic, "g")).messages] == ["waiting"]

        await until(is_waiting)
        (message,) = (await client.group(topic, "g")).messages
    assert message.last_error == "the bank is closed"
    assert message.until_ms - time.time() * 1000 > 3_000_000


@in_loop
async def test_a_handler_that_cancels_itself_has_failed(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    errors: list[str] = []

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        errors.append(message.last_error)
        if message.attempts == 1:
            raise asyncio.CancelledError

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        await finished(client, topic)
    assert errors == ["", "the handler was cancelled"]


@in_loop
async def test_an_effect_that_another_is_at_makes_the_message_come_again(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    attempts: list[int] = []
    holding = asyncio.Event()

    @app.handler(topic, group="g", concurrency=2)
    async def charge(message: AsyncMessage) -> None:
        attempts.append(message.attempts)
        async with message.once("order-17") as first:
            if first:
                await holding.wait()

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce_batch(topic, ["v", "v"])

        async def one_waits() -> bool:
            if not attempts:
                await asyncio.sleep(0)  # the group is not there yet
                return False
            return "waiting" in [message.state for message in (await client.group(topic, "g")).messages]

        await until(one_waits)
        holding.set()
        await finished(client, topic)
    assert sorted(attempts) == [1, 1, 2]


# Slots


@in_loop
async def test_no_more_are_in_hand_or_on_lease_than_there_are_slots(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    in_hand, most, release = 0, 0, asyncio.Event()
    full = asyncio.Event()

    @app.handler(topic, group="g", concurrency=4)
    async def handle(message: Message) -> None:
        nonlocal in_hand, most
        in_hand += 1
        most = max(most, in_hand)
        if in_hand == 4:
            full.set()
        await release.wait()
        in_hand -= 1

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce_batch(topic, [str(n) for n in range(40)])
        await full.wait()
        assert (await client.group(topic, "g")).in_flight == 4
        release.set()
        await finished(client, topic)
    assert most == 4


@in_loop
async def test_several_handlers_work_side_by_side(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    seen: set[str] = set()

    @app.handler(topic, group="a")
    async def first(message: Message) -> None:
        seen.add("a" + message.text)

    @app.handler(topic, group="b", concurrency=3)
    def second(message: Message) -> None:
        seen.add("b" + message.text)

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce_batch(topic, ["1", "2"])
        await finished(client, topic, "a")
        await finished(client, topic, "b")
    assert seen == {"a1", "a2", "b1", "b2"}


# Functions that do not await


@in_loop
async def test_an_ordinary_function_runs_in_a_thread_beside_others(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    together = threading.Barrier(3, timeout=30)

    @app.handler(topic, group="g", concurrency=3)
    def handle(message: SyncMessage) -> None:
        together.wait()
        with message.once() as first:
            assert first
        assert message.extend() > 0
        if message.attempts == 1 and message.text == "0":
            together.reset()
            raise ValueError("again")

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce_batch(topic, ["1", "2", "3"])
        await finished(client, topic)


@in_loop
async def test_an_ordinary_function_fails_as_others_do(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    errors: list[str] = []

    @app.handler(topic, group="g")
    def handle(message: Message) -> None:
        errors.append(message.last_error)
        if message.attempts == 1:
            raise StopIteration  # which no future can carry
        if message.attempts == 2:
            raise SystemExit(3)  # which would only end the thread
        if message.attempts == 3:
            raise Reject("enough")

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        letter = await dead_letter(client, topic)
    assert len(errors) == 3
    assert letter.envelope.dlq is not None
    assert letter.envelope.dlq.last_error.endswith("enough")


@in_loop
async def test_an_object_that_is_called_is_a_handler_too(shared: ServerProcess, topic: str) -> None:
    class Handler:
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def __call__(self, message: Message) -> None:
            assert threading.current_thread() is threading.main_thread()
            self.seen.append(message.text)

    app, handler = worker(shared.base), Handler()
    app.handler(topic, group="g")(handler)
    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        await finished(client, topic)
    assert handler.seen == ["v"]


# Trouble


@in_loop
async def test_a_topic_that_is_not_there_yet_is_waited_for_and_said_once(
    shared: ServerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app = Worker(client=AsyncClient(shared.base, backoff_ms=1, backoff_ms_max=10))
    seen = asyncio.Event()

    @app.handler(f"{topic}-later", group="g")
    async def handle(message: Message) -> None:
        seen.set()

    async with between(shared.base) as middle, app.client, AsyncClient(shared.base) as client:
        app.client._transport.url = middle.url
        async with serving(app):

            async def asked_often() -> bool:
                await asyncio.sleep(0)
                return len(middle.seen) > 5

            await until(asked_often)
            await client.create_topic(f"{topic}-later")
            await client.produce(f"{topic}-later", "v")
            await seen.wait()
    assert caplog.text.count("waiting for it") == 1
    assert caplog.text.count("connected") == 1


@in_loop
async def test_it_goes_on_when_the_server_is_back_and_does_nothing_twice(
    server: ServerProcess, own_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Worker(client=AsyncClient(server.base, backoff_ms=1, backoff_ms_max=50))
    seen: list[str] = []
    at_work, release = asyncio.Event(), asyncio.Event()

    @app.handler(own_topic, group="g", concurrency=2)
    async def handle(message: Message) -> None:
        seen.append(message.text)
        at_work.set()
        await release.wait()

    async with app.client, AsyncClient(server.base) as client, serving(app):
        await client.produce(own_topic, "before")
        await at_work.wait()
        await client.create_topic(
            f"{own_topic}-later"
        )  # stored after the delivery, which is then known to have been stored as well
        await asyncio.to_thread(server.crash)

        async def nobody_answers() -> bool:
            await asyncio.sleep(0)
            return "no messages can be fetched" in caplog.text

        await until(nobody_answers)
        release.set()

        async def nobody_hears() -> bool:
            await asyncio.sleep(0)
            return "are not heard" in caplog.text

        await until(nobody_hears)
        await asyncio.to_thread(server.start)
        await client.produce(own_topic, "after")
        await finished(client, own_topic)
    assert seen == ["before", "after"]
    assert caplog.text.count("no messages can be fetched") == 1


# Beginning and end


@in_loop
async def test_stop_can_come_from_any_thread_and_before_the_start(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None: ...

    task = asyncio.create_task(app.serve())
    await asyncio.to_thread(app.stop)
    await task
    early = worker(shared.base)
    early.handler(topic, group="g")(handle)
    early.stop()
    await early.serve()


@in_loop
async def test_what_was_fetched_when_it_was_told_to_stop_is_done(shared: ServerProcess, topic: str) -> None:
    """A fetch under way is not cancelled: what it brings would be on lease to nobody."""
    app = Worker(shared.base, poll_ms=20_000)
    seen: list[str] = []

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        seen.append(message.text)

    async with between(shared.base) as middle, AsyncClient(shared.base) as client:
        app.client._transport.url = middle.url
        async with serving(app):

            async def is_waiting() -> bool:
                """The first fetch is answered at once."""
                await asyncio.sleep(0)
                return len(middle.seen) > 1

            await until(is_waiting)
            app.stop()
            await client.produce(topic, "just in time")
        info = await client.group(topic, "g")
    assert (seen, info.lag, info.in_flight) == (["just in time"], 0, 0)


@in_loop
async def test_a_worker_that_is_cancelled_cancels_its_handlers(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    began, cancelled = asyncio.Event(), asyncio.Event()

    @app.handler(topic, group="g")
    async def handle(message: Message) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with AsyncClient(shared.base) as client:
        await client.produce(topic, "v")
        task = asyncio.create_task(app.serve())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await cancelled.wait()


def test_what_makes_no_sense_is_refused(shared: ServerProcess) -> None:
    app = worker(shared.base)

    def handle(message: Message) -> None: ...

    app.handler("t", group="g")(handle)
    with pytest.raises(InvalidArgument, match="already has a handler"):
        app.handler("t", group="g")(handle)
    with pytest.raises(InvalidArgument, match="concurrency"):
        app.handler("u", group="g", concurrency=0)
    with pytest.raises(InvalidArgument, match="lease_ms"):
        app.handler("u", group="g", lease_ms=1)
    with pytest.raises(InvalidArgument, match="no handlers"):
        asyncio.run(worker(shared.base).serve())


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


@pytest.mark.parametrize(
    "error",
    [Reject("x" * 3_000_000), Reject("a file named \udce4"), Reject("x" * 4_096 + "\N{PILE OF POO}" * 1_000)],
    ids=["huge", "surrogate", "wide"],
)
@in_loop
async def test_a_reason_that_cannot_be_sent_as_it_is_still_rejects_the_message(
    shared: ServerProcess, topic: str, error: Exception
) -> None:
    """It used to be refused with all the others of its request, and the message came again for ever."""
    app = worker(shared.base)

    @app.handler(topic, group="g", lease_ms=60_000)
    async def handle(message: Message) -> None:
        raise error

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        letter = await dead_letter(client, topic)
    assert letter.envelope.dlq is not None
    assert letter.envelope.dlq.reason == "rejected"
    assert letter.envelope.dlq.last_error.startswith(str(error)[:9])


@in_loop
async def test_an_exception_that_cannot_even_be_printed_fails_the_message(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)
    attempts: list[int] = []

    @app.handler(topic, group="g", lease_ms=60_000)
    async def handle(message: Message) -> None:
        attempts.append(message.attempts)
        if message.attempts == 1:
            raise _Unprintable

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        await finished(client, topic)
    assert attempts == [1, 2]


class _Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the disk of the logs is full")


@in_loop
async def test_a_log_that_cannot_be_written_does_not_cost_a_message_its_verdict(
    shared: ServerProcess, topic: str
) -> None:
    app = worker(shared.base)
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(str(told["exception"])))

    @app.handler(topic, group="g", lease_ms=60_000)
    async def handle(message: Message) -> None:
        if message.attempts == 1:
            raise ValueError("no")

    broken = _Broken()
    logging.getLogger("slipstream.client.run").addHandler(broken)
    try:
        async with AsyncClient(shared.base) as client, serving(app):
            await client.produce(topic, "v")
            await finished(client, topic)
    finally:
        logging.getLogger("slipstream.client.run").removeHandler(broken)
    gc.collect()
    assert complaints == ["the disk of the logs is full"], "and it is said nevertheless"


@in_loop
async def test_a_rejection_that_cannot_be_printed_is_one(shared: ServerProcess, topic: str) -> None:
    app = worker(shared.base)

    class Unprintable(Reject):
        def __str__(self) -> str:
            raise ValueError("not even this")

    @app.handler(topic, group="g", lease_ms=60_000)
    async def handle(message: Message) -> None:
        raise Unprintable

    async with AsyncClient(shared.base) as client, serving(app):
        await client.produce(topic, "v")
        letter = await dead_letter(client, topic)
    assert letter.envelope.dlq is not None
    assert letter.envelope.dlq.last_error == "rejected"


def test_a_handler_that_could_never_do_its_work_is_refused() -> None:
    """A yield makes calling it do nothing at all: the message would be acked, and nobody would know."""
    app = Worker("http://127.0.0.1:1")

    def yields(message: Message) -> Iterator[int]:
        yield 1

    async def yields_too(message: Message) -> AsyncIterator[int]:
        yield 1

    def takes_nothing() -> None: ...

    refused: list[tuple[Any, str]] = [(yields, "yield"), (yields_too, "yield"), (takes_nothing, "with the message")]
    for handler, words in refused:
        with pytest.raises(InvalidArgument, match=words):
            app.handler("t", group="g")(handler)
    with pytest.raises(InvalidArgument, match="topic must be"):
        app.handler("bad name", group="g")
    with pytest.raises(InvalidArgument, match="group must be"):
        app.handler("t", group="bad group")
