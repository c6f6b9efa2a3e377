"""The broker in memory: real rules, a real port, and no waiting."""

from __future__ import annotations

import asyncio
import datetime as dt

import httpx
import pytest

from slipstream.api import RetryPolicyFields, TopicConfigFields
from slipstream.client import AsyncClient, Worker
from slipstream.testing import MemoryBroker


def test_time_stands_still_until_it_is_moved(slipstream_broker: MemoryBroker) -> None:
    start = slipstream_broker.now
    assert slipstream_broker.now == start
    slipstream_broker.advance(1, seconds=1, minutes=1, hours=1, days=1)
    assert slipstream_broker.now - start == dt.timedelta(days=1, hours=1, minutes=1, seconds=1, milliseconds=1)
    with pytest.raises(ValueError, match="forward only"):
        slipstream_broker.advance(-1)


def test_it_starts_when_the_test_says() -> None:
    start = dt.datetime(1999, 12, 31, 23, 59, tzinfo=dt.UTC)
    with MemoryBroker(start=start) as broker, broker.client() as client:
        client.create_topic("t")
        client.produce("t", "v")
        (message,) = client.fetch("t", "g")
        assert message.timestamp == start


def test_a_delayed_message_comes_when_the_clock_says_so(slipstream_broker: MemoryBroker) -> None:
    with slipstream_broker.client() as client:
        client.create_topic("mail")
        client.produce("mail", "hello", delay_ms=3_600_000)
        slipstream_broker.advance(minutes=59, seconds=59)
        assert client.fetch("mail", "senders") == []
        slipstream_broker.advance(seconds=1)
        assert [message.text for message in client.fetch("mail", "senders")] == ["hello"]


def test_a_lease_runs_out_and_a_retry_comes_due_in_one_step(slipstream_broker: MemoryBroker) -> None:
    with slipstream_broker.client() as client:
        client.create_topic("t", config=TopicConfigFields(retry=RetryPolicyFields(backoff_ms=5_000)))
        client.produce("t", "v")
        client.fetch("t", "g", lease_ms=10_000)
        slipstream_broker.advance(seconds=12)
        assert client.fetch("t", "g") == [], "the lease is over, and the pause after it is not"
        slipstream_broker.advance(seconds=3)
        (again,) = client.fetch("t", "g")
        assert (again.attempts, again.last_error) == (2, "ack_timeout")


def test_a_deadline_passes_and_the_message_is_dead(slipstream_broker: MemoryBroker) -> None:
    with slipstream_broker.client() as client:
        client.create_topic("t")
        client.seek("t", "g", to="earliest")
        client.produce("t", "v", deadline=slipstream_broker.now + dt.timedelta(hours=1))
        slipstream_broker.advance(hours=1)
        (letter,) = client.dead_letters("t")
        assert letter.envelope.dlq is not None
        assert letter.envelope.dlq.reason == "deadline_exceeded"


def test_retention_removes_what_is_old() -> None:
    with MemoryBroker(retention_ms=60_000, retention_check_ms=1_000) as broker, broker.client() as client:
        client.create_topic("t")
        client.produce("t", "old")
        broker.advance(seconds=120)
        client.produce("t", "new")
        assert [message.value for message in client.scan("t")] == [b"new"]


def test_settings_are_those_of_the_server() -> None:
    with MemoryBroker(max_in_flight=1) as broker, broker.client() as client:
        client.create_topic("t")
        client.produce_batch("t", ["a", "b"])
        assert len(client.fetch("t", "g")) == 1
    with pytest.raises(ValueError, match="no such setting"):
        MemoryBroker(colour="red")


def test_any_client_may_talk_to_it(slipstream_broker: MemoryBroker) -> None:
    assert httpx.get(slipstream_broker.url + "/v1/healthz").json() == {"status": "ok"}
    assert "slipstream_produced_total" in httpx.get(slipstream_broker.url + "/metrics").text


def test_several_do_not_know_of_each_other() -> None:
    with MemoryBroker() as one, MemoryBroker() as two, one.client() as client, two.client() as other:
        client.create_topic("t")
        assert other.topics() == []


def test_a_worker_is_tried_without_waiting(slipstream_broker: MemoryBroker) -> None:
    """What fails is tried again when the test lets the pause pass."""
    app = Worker(slipstream_broker.url)
    seen: list[int] = []
    tried, done = asyncio.Event(), asyncio.Event()

    @app.handler("t", group="g")
    async def handle(message: object) -> None:
        seen.append(message.attempts)  # type: ignore[attr-defined]
        if len(seen) == 1:
            tried.set()
            raise RuntimeError("not yet")
        done.set()

    async def story() -> None:
        async with AsyncClient(slipstream_broker.url) as client:
            policy = RetryPolicyFields(backoff_ms=3_600_000)
            await client.create_topic("t", config=TopicConfigFields(retry=policy))
            await client.produce("t", "v")
            serving = asyncio.create_task(app.serve())
            await tried.wait()
            while not (await client.group("t", "g")).messages[0].last_error:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(slipstream_broker.advance, hours=1)
            await done.wait()
            app.stop()
            await serving

    asyncio.run(asyncio.wait_for(story(), 30))
    assert seen == [1, 2]


def test_what_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: str, port: int) -> None:
        raise OSError("no ports left")

    monkeypatch.setattr("slipstream.testing.broker.listen", refuse)
    with pytest.raises(OSError, match="no ports left"), MemoryBroker():
        pass


def test_closing_twice_is_fine() -> None:
    broker = MemoryBroker()
    with broker:
        pass
    broker.close()
