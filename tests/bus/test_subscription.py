"""A handler at work: bounds, leases, retries, an orderly end. The same on every engine."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from prometheus_client import CollectorRegistry

from slipstream.bus import Backoff, InvalidArgument, Message, Postpone, Retry, open_bus
from tests.bus.conftest import OpenBus
from tests.bus.consumer_process import consuming
from tests.bus.recorder import Recorder, failing
from tests.bus.sites.site import Site
from tests.client.loop import in_loop

SOON = Backoff(first=0.02, longest=0.1)


@in_loop
async def test_what_fails_comes_again_after_the_backoff(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        handler = Recorder(failing(3))
        await bus.subscribe(topic, "shipping", handler, backoff=Backoff(first=0.1, longest=0.2))
        await bus.publish(topic, b"two books")
        messages = await handler.have(4)
    assert [message.attempt for message in messages] == [1, 2, 3, 4]
    assert {message.id for message in messages} == {messages[0].id}
    pauses = [after - before for before, after in zip(handler.times, handler.times[1:], strict=False)]
    # No engine is early by more than its tick; how late it is depends on the machine, and is nobody's promise.
    for pause, least in zip(pauses, [0.1, 0.2, 0.2], strict=True):
        assert pause >= least - 0.03, pauses


@in_loop
async def test_pauses_can_be_given_one_by_one(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        handler = Recorder(failing(3))
        await bus.subscribe(topic, "shipping", handler, backoff=[0.02, 0.2])
        await bus.publish(topic, b"two books")
        await handler.have(4)
    assert handler.times[2] - handler.times[1] >= 0.17
    assert handler.times[3] - handler.times[2] >= 0.17, "the last is repeated"


@in_loop
async def test_a_message_that_waits_for_its_retry_does_not_hold_up_the_others(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:

        async def act(message: Message) -> None:
            if message.data == b"bad":
                raise Retry("later", delay_ms=3_600_000)

        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, max_in_flight=2)
        await bus.publish(topic, b"bad")
        for number in range(5):
            await bus.publish(topic, str(number))
        await handler.until(lambda: len(handler.messages) == 6)


@in_loop
async def test_no_more_are_taken_than_there_are_slots(new_bus: OpenBus, topic: str) -> None:
    running = most = 0
    gate = asyncio.Event()

    async def act(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    async with new_bus() as here, new_bus() as there:
        handler = Recorder(act)
        subscription = await here.subscribe(topic, "shipping", handler, max_in_flight=3)
        for number in range(20):
            await here.send(topic, str(number))
        await handler.have(3)
        assert subscription.in_flight == 3
        # What is not in a handler's hands is at the engine, for others to take.
        other = Recorder()
        await there.subscribe(topic, "shipping", other)
        await other.have(17)
        gate.set()
        await handler.have(3)
    assert most == 3
    assert len(handler.messages) + len(other.messages) == 20


@in_loop
async def test_a_handler_may_settle_by_itself(new_bus: OpenBus, topic: str) -> None:
    settled = asyncio.Event()

    async def act(message: Message) -> None:
        if message.data == b"acked":
            await message.ack()
            await message.nack()  # too late: the first word counts
            settled.set()
            raise RuntimeError("after it was acked")
        if message.attempt == 1:
            await message.nack(delay=0.05, reason="not yet")

    async with new_bus() as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, backoff=[3600])
        await bus.publish(topic, b"acked")
        await settled.wait()
        await bus.publish(topic, b"nacked")
        messages = await handler.have(3)
    assert [(message.data, message.attempt) for message in messages] == [
        (b"acked", 1),
        (b"nacked", 1),
        (b"nacked", 2),
    ]


@in_loop
async def test_what_is_postponed_comes_again_with_the_same_attempt_and_never_dies_of_it(
    new_bus: OpenBus, topic: str
) -> None:
    async def act(message: Message) -> None:
        if len(handler.messages) < 4:
            raise Postpone("the host is busy", delay_ms=20)
        if len(handler.messages) == 4:
            await message.postpone(0.02)
        elif len(handler.messages) == 5:
            raise Retry("it failed", delay_ms=20)

    async with new_bus() as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, max_deliver=2)
        await bus.publish(topic, b"two books")
        messages = await handler.have(6)
    assert [message.attempt for message in messages] == [1, 1, 1, 1, 1, 2]
    assert {message.id for message in messages} == {messages[0].id}


@in_loop
async def test_postponed_messages_do_not_hold_up_the_others(new_bus: OpenBus, topic: str) -> None:
    async def act(message: Message) -> None:
        if message.data == b"busy":
            raise Postpone("later", delay_ms=3_600_000)

    async with new_bus() as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, max_in_flight=2)
        for _ in range(10):
            await bus.publish(topic, b"busy")
        await bus.publish(topic, b"ready")
        await handler.until(lambda: b"ready" in handler.data)


@in_loop
async def test_an_ordinary_function_runs_in_a_thread(new_bus: OpenBus, topic: str) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    seen: list[tuple[bytes, int, bool]] = []

    def handler(message: Message) -> None:
        seen.append((message.data, message.attempt, threading.current_thread() is threading.main_thread()))
        message.extend(60)
        if message.attempt == 1:
            message.nack(delay=0)
        elif message.attempt == 2:
            raise RuntimeError("once more")
        else:
            message.ack()
            loop.call_soon_threadsafe(done.set)

    async with new_bus() as bus:
        await bus.subscribe(topic, "shipping", handler, backoff=SOON)
        await bus.publish(topic, b"x")
        await done.wait()
    assert seen == [(b"x", 1, False), (b"x", 2, False), (b"x", 3, False)]


@in_loop
async def test_a_slow_handler_keeps_its_message_and_so_does_one_that_extends(new_bus: OpenBus, topic: str) -> None:
    """The lease of the one is extended for it, the other does so by itself: more than its length passes for both."""
    done, extended = asyncio.Event(), asyncio.Event()

    async def act(message: Message) -> None:
        await asyncio.sleep(2.7)
        done.set()

    async def extend(message: Message) -> None:
        for _ in range(3):
            await message.extend(2)
            await asyncio.sleep(0.9)
        extended.set()

    async with new_bus() as here, new_bus() as there:
        slow, idle, extending = Recorder(act), Recorder(), Recorder(extend)
        await here.subscribe(topic, "shipping", slow, ack_deadline=2)
        await here.subscribe(topic, "billing", extending, ack_deadline=2, extend_for=0, backoff=SOON)
        await here.publish(topic, b"x")
        await slow.have(1)
        await there.subscribe(topic, "shipping", idle, ack_deadline=2)
        await done.wait()
        await extended.wait()
    assert slow.data == [b"x"]
    assert idle.data == []
    assert extending.data == [b"x"]


@in_loop
async def test_a_handler_that_takes_too_long_loses_its_message(site: Site, new_bus: OpenBus, topic: str) -> None:
    if site.shortest_deadline_s > 1:
        pytest.skip(f"{site.driver} takes no deadline below {site.shortest_deadline_s} s")
    cancelled = asyncio.Event()

    async def act(message: Message) -> None:
        if message.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    async with new_bus() as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, ack_deadline=0.5, extend_for=0, backoff=SOON)
        await bus.publish(topic, b"x")
        messages = await handler.have(2)
        await cancelled.wait()
    assert [message.attempt for message in messages[:2]] == [1, 2]
    assert messages[0].lease_lost


@in_loop
async def test_another_takes_over_from_a_consumer_that_is_killed(site: Site, new_bus: OpenBus, topic: str) -> None:
    if not site.is_server:  # where a process has the broker, no other can publish meanwhile
        async with new_bus() as bus:
            await bus.publish(topic, b"two books")
    async with consuming(site, topic, "shipping", ack_deadline=1) as doomed:
        if site.is_server:
            async with new_bus() as bus:
                await bus.publish(topic, b"two books")
        assert await doomed.line() == "1 two books"
        await doomed.kill()
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, ack_deadline=1)
        (message,) = await handler.have(1)
    assert message.data == b"two books"
    assert message.attempt == (2 if site.counts_across_processes else 1)


@in_loop
async def test_close_lets_handlers_finish_and_nothing_comes_twice(new_bus: OpenBus, topic: str) -> None:
    begun, finish = asyncio.Event(), asyncio.Event()
    finished: list[bytes] = []

    async def act(message: Message) -> None:
        begun.set()
        await finish.wait()
        finished.append(message.data)

    bus = await new_bus()
    handler = Recorder(act)
    await bus.subscribe(topic, "shipping", handler, max_in_flight=10)  # who has no room takes no end, either
    for number in range(5):
        await bus.publish(topic, str(number))
    await handler.have(5)
    closing = asyncio.create_task(bus.close())
    await asyncio.wait({closing}, timeout=0.1)
    assert not closing.done(), "it waits for the handlers"
    finish.set()
    await closing
    assert sorted(finished) == [b"0", b"1", b"2", b"3", b"4"]
    async with new_bus() as after:
        later = Recorder()
        await after.subscribe(topic, "shipping", later)
        await after.publish(topic, b"next")
        await later.have(1)
    assert later.data == [b"next"], "what was handled is acked"


@in_loop
async def test_close_gives_back_what_handlers_do_not_finish(new_bus: OpenBus, topic: str) -> None:
    async def act(message: Message) -> None:
        await asyncio.Event().wait()

    async with new_bus() as bus:
        stuck = Recorder(act)
        subscription = await bus.subscribe(topic, "shipping", stuck, ack_deadline=600)
        await bus.publish(topic, b"x")
        await stuck.have(1)
        await subscription.close(0.05)
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        (message,) = await handler.have(1)
    assert message.data == b"x"


@in_loop
async def test_what_is_published_is_stored_when_the_bus_is_closed(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        subscription = await bus.subscribe(topic, "shipping", Recorder())
        await subscription.close()
        for number in range(100):
            await bus.send(topic, str(number))
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await handler.have(100)


class Unspeakable(Retry):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        Retry(delay_ms=-5),
        Retry(delay_ms="soon"),  # type: ignore[arg-type]
        Retry(delay_ms=float("nan")),  # type: ignore[arg-type]
        Unspeakable(),
    ],
    ids=["negative", "text", "nan", "unspeakable"],
)
@in_loop
async def test_a_message_comes_again_whatever_its_handler_raises(
    new_bus: OpenBus, topic: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """As the backoff says, and not when its lease is over."""
    caplog.set_level(logging.CRITICAL, "slipstream.bus")  # half a pair in a log is more than pytest-xdist can carry
    async with new_bus() as bus:
        handler = Recorder(failing(1, error))
        await bus.subscribe(topic, "shipping", handler, backoff=SOON, ack_deadline=600)
        await bus.publish(topic, b"x")
        await handler.have(2)


@in_loop
async def test_a_nack_that_cannot_be_right_is_refused_at_once(new_bus: OpenBus, topic: str) -> None:
    async def act(message: Message) -> None:
        if message.attempt == 1:
            for delay in (-1, float("nan"), float("inf"), "soon"):
                with pytest.raises(InvalidArgument):
                    message.nack(delay=delay)  # type: ignore[arg-type]
                with pytest.raises(InvalidArgument):
                    message.extend(delay)  # type: ignore[arg-type]
            await message.nack(delay=0, reason=ValueError("a reason of another kind"))  # type: ignore[arg-type]
        elif message.attempt == 2:
            await message.nack(delay=0, reason="half a pair: \ud800")

    async with new_bus() as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, ack_deadline=600)
        await bus.publish(topic, b"x")
        await handler.have(3)


@in_loop
async def test_a_subscription_that_cannot_take_messages_says_so_and_tries_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bus.subscription.FAILURE_PAUSE_S", 0.05)
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        handler = Recorder()
        subscription = await bus.subscribe("orders", "shipping", handler)
        pull, failures = subscription._source.pull, 0
        seen: list[str] = []

        async def pull_at_last(limit: int) -> object:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise RuntimeError("nobody thought of this")
            if failures == 2:
                seen.append(str(subscription.failure))
            return await pull(limit)

        subscription._source.pull = pull_at_last  # type: ignore[method-assign, assignment]
        await bus.publish("orders", b"wakes the pull that is under way")
        await bus.publish("orders", b"x")
        await handler.have(2)
        while subscription.failure is not None:
            await asyncio.sleep(0.01)
    assert seen == ["nobody thought of this"]


@in_loop
async def test_the_span_that_was_active_at_the_subscription_is_not_that_of_the_messages() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:

        async def pass_on(message: Message) -> None:
            await bus.publish("next", message.data)

        following = Recorder()
        span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
        with trace.use_span(span):
            await bus.subscribe("next", "shipping", following)
            await bus.subscribe("orders", "shipping", pass_on)
        await bus.publish("orders", b"x", {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"})
        (message,) = await following.have(1)
    assert message.attributes["traceparent"].startswith(f"00-{'1' * 32}-")
