"""Dead letters and redrives, against a server."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from slipstream.api import RedriveState
from slipstream.client import AsyncClient, NotFound, RedriveFailed, SlipstreamError, redrive
from tests.client.between import answer, between
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


async def bury(client: AsyncClient, topic: str, *values: str) -> None:
    await client.produce_batch(topic, list(values))
    for message in await client.fetch(topic, "g", wait_ms=20_000):
        await message.nack(f"{message.text} is bad", retryable=False)


@in_loop
async def test_dead_letters_are_found_by_what_they_died_of(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await bury(client, topic, "one", "two", "three")
        letters = [letter async for letter in client.dead_letters(topic)]
        assert [letter.value for letter in letters] == [b"one", b"two", b"three"]
        (two,) = [letter async for letter in client.dead_letters(topic, error="TWO", group="g", redriven=False)]
        assert two.envelope.dlq is not None
        assert two.envelope.dlq.last_error == "two is bad"
        alone = await client.dead_letter(two.topic, two.partition, two.offset)
        assert [(each.number, each.error) for each in alone.history] == [(1, "two is bad")]
        assert msgspec.structs.replace(alone, history=[]) == two
        tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
        assert [letter async for letter in client.dead_letters(topic, since=tomorrow)] == []
        with pytest.raises(NotFound):
            await client.dead_letter(topic, 0, 10_000)


@in_loop
async def test_the_pages_of_many_are_turned(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await bury(client, topic, *(str(n) for n in range(100)))
        await bury(client, topic, *(str(n) for n in range(100, 150)))
        found = [letter.value async for letter in client.dead_letters(topic)]
        assert found == [str(n).encode() for n in range(150)]


@in_loop
async def test_a_redrive_sends_back_what_it_is_told_to_and_once(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await bury(client, topic, "one", "two", "three")
        letters = [letter async for letter in client.dead_letters(topic)]
        counted = await (await client.redrive(topic, dry_run=True)).wait()
        assert (counted.matched, counted.dry_run) == (3, True)
        assert [letter async for letter in client.dead_letters(topic, redriven=True)] == []
        done = await (await client.redrive(topic, messages=letters[:1])).wait()
        assert (done.state, done.redriven) == (RedriveState.DONE, 1)
        rest = await (await client.redrive(topic)).wait()
        assert (rest.redriven, rest.skipped) == (2, 1)
        back = await client.fetch(topic, "g", wait_ms=20_000)
        assert [message.text for message in back] == ["one", "two", "three"]
        assert back[0].redriven_from == f"dlq.{topic}/0/{letters[0].offset}"


@in_loop
async def test_a_redrive_can_be_for_every_group(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await bury(client, topic, "one", "two")
        await client.ack(*await client.fetch(topic, "other"))
        first, second = [letter async for letter in client.dead_letters(topic)]
        await (await client.redrive(topic, messages=[first])).wait()
        await (await client.redrive(topic, messages=[second], all_groups=True)).wait()
        assert [message.text for message in await client.fetch(topic, "other", wait_ms=20_000)] == ["two"]
        assert [message.text for message in await client.fetch(topic, "g", wait_ms=20_000)] == ["one", "two"]


@in_loop
async def test_a_slow_redrive_is_found_and_cancelled(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await bury(client, topic, *(str(n) for n in range(20)))
        slow = await client.redrive(topic, rate=0.5)
        assert slow.id in [status.id for status in await client.redrives()]
        found = await client.redrive_of(slow.id)
        assert (await found.cancel()).state is RedriveState.CANCELLED
        assert (await slow.wait()).state is RedriveState.CANCELLED
        with pytest.raises(NotFound):
            await client.redrive_of("nothing")


@in_loop
async def test_a_redrive_that_failed_is_no_silent_end(
    shared: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "POLL_MS", 1)
    async with AsyncClient(shared.base) as client:
        await client.create_topic(topic + ".to")
        await bury(client, topic, "one", "two")
        handle = await client.redrive(topic, to=topic + ".to", rate=2)
        await client.delete_topic(topic + ".to")
        with pytest.raises(RedriveFailed, match="start it again") as caught:
            await handle.wait()
        assert caught.value.redrive is not None
        assert caught.value.redrive.state is RedriveState.FAILED


@in_loop
async def test_a_page_that_leads_to_itself_is_the_end(shared: ServerProcess) -> None:
    body = msgspec.msgpack.encode({"dead_letters": [], "next": "dlq.t/0/1"})
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        middle.always["/v2/dead-letters"] = answer(200, body, Content_Type="application/msgpack")
        with pytest.raises(SlipstreamError, match="leads to itself"):
            async for _ in client.dead_letters("t"):
                pass
        assert len(middle.seen) == 2
