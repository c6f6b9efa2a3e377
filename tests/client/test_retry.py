"""What is repeated, what is not, and after how long."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.client import (
    AsyncClient,
    ConnectionFailed,
    InProgress,
    NotFound,
    Overloaded,
    SlipstreamError,
    Unavailable,
    compose,
    retry,
    transport,
)
from slipstream.client.retry import ONCE, Repeat, Retries, give_up_ms, may_repeat
from tests.client.between import Act, answer, between, cut, cut_after, hold, overloaded, passing, unavailable
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


def client_of(url: str, retry_for_ms: int = 30_000) -> AsyncClient:
    return AsyncClient(url, backoff_ms=1, retry_for_ms=retry_for_ms)


# Pauses


def test_the_pauses_double_up_to_a_limit_and_are_drawn_below_it() -> None:
    retries = Retries(backoff_ms=10, backoff_ms_max=50)
    for failures, limit in ((1, 10), (2, 20), (3, 40), (4, 50), (400, 50)):
        pauses = [retries.pause_ms(failures) for _ in range(200)]
        assert all(0 <= pause <= limit for pause in pauses)
        assert max(pauses) - min(pauses) > limit / 2, "they are spread over all of it"


def test_what_the_server_asks_for_is_waited_for_in_full() -> None:
    retries = Retries(backoff_ms=10, backoff_ms_max=10)
    assert all(700 <= retries.pause_ms(1, asked_ms=700) <= 710 for _ in range(100))


def test_a_conflict_is_soon_taken_for_what_it_is() -> None:
    assert give_up_ms(InProgress("under way"), Retries(for_ms=30_000)) == 2_000
    assert give_up_ms(Unavailable("gone"), Retries(for_ms=30_000)) == 30_000


@in_loop
async def test_a_copy_that_was_given_up_and_is_still_being_stored_is_waited_for(
    shared: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stalls for longer than an answer may take: the second attempt meets the first."""
    monkeypatch.setattr(retry, "BEING_STORED_MS", 100)
    body = b'{"error": "ABORTED", "message": "being stored", "reason": "in_progress"}'
    busy = answer(409, body, Content_Type="application/json")
    async with (
        between(shared.base, hold, busy) as middle,
        AsyncClient(middle.url, backoff_ms=1, timeout_ms=1_000) as client,
    ):
        assert (await client.produce(topic, "v", idempotency_key="k")).offset == 0
        assert middle.seen == ["/v2/produce"] * 3


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        (Overloaded("full"), set(Repeat)),
        (ConnectionFailed("nobody there", sent=False), set(Repeat)),
        (ConnectionFailed("cut"), {Repeat.SAFE, Repeat.KEYED}),
        (Unavailable("stopping"), {Repeat.SAFE, Repeat.KEYED}),
        (InProgress("being stored"), {Repeat.KEYED}),
        (NotFound("no topic"), set()),
        (SlipstreamError("anything else"), set()),
    ],
)
def test_what_may_be_repeated(error: SlipstreamError, repeated: set[Repeat]) -> None:
    assert {repeat for repeat in Repeat if may_repeat(error, repeat)} == repeated


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses a client made, in ms; they take no time."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds * 1000)

    monkeypatch.setattr(transport, "_sleep", sleep)
    return made


@in_loop
async def test_the_milliseconds_of_the_body_are_obeyed(shared: ServerProcess, pauses: list[float]) -> None:
    async with between(shared.base, overloaded(250), overloaded(400)) as middle, client_of(middle.url) as client:
        await client.topics()
    assert [round(pause, -1) for pause in pauses] == [250, 400]


@in_loop
async def test_the_seconds_of_the_header_are_obeyed(shared: ServerProcess, pauses: list[float]) -> None:
    async with (
        between(shared.base, answer(429, Retry_After="2"), answer(503, Retry_After="3")) as middle,
        client_of(middle.url) as client,
    ):
        await client.topics()
    assert [round(pause, -1) for pause in pauses] == [2_000, 3_000]


@in_loop
async def test_a_wait_longer_than_the_time_there_is_is_not_begun(shared: ServerProcess, pauses: list[float]) -> None:
    async with between(shared.base, overloaded(60_000)) as middle, client_of(middle.url) as client:
        with pytest.raises(Overloaded, match="full") as caught:
            await client.topics()
    assert caught.value.retry_after_ms == 60_000
    assert (pauses, middle.seen) == ([], ["/v2/topics"])


@in_loop
async def test_it_ends_when_the_time_is_over_and_says_how_often_it_was_tried(shared: ServerProcess) -> None:
    async with (
        between(shared.base, *[unavailable()] * 10_000) as middle,
        AsyncClient(middle.url, backoff_ms=1, retry_for_ms=1_000) as client,
    ):
        with pytest.raises(Unavailable, match="journal") as caught:
            await client.topics()
    assert len(middle.seen) > 1
    assert caught.value.__notes__ == [f"GET /v2/topics: given up after {len(middle.seen)} attempts"]


# What a repeat does


TROUBLES: list[Act] = [cut, cut_after, unavailable(), overloaded(1)]


@pytest.mark.parametrize("trouble", TROUBLES, ids=["cut", "cut after", "503", "429"])
@in_loop
async def test_what_is_safe_to_repeat_is_repeated(shared: ServerProcess, topic: str, trouble: Act) -> None:
    async with between(shared.base) as middle, client_of(middle.url) as client:

        async def troubled() -> None:
            middle.acts = [trouble]

        await troubled()
        await client.create_topic(topic)
        await client.produce_batch(topic, ["a", "b", "c"])
        await troubled()
        await client.topic(topic)
        await troubled()
        await client.change_topic(topic, partitions=2)
        await client.fetch(topic, "g", max_messages=1)  # so that the group is there
        await troubled()
        await client.seek(topic, "g", to="earliest")
        await troubled()
        a, b, c = await client.fetch(topic, "g", wait_ms=20_000, lease_ms=500)
        await troubled()
        await client.extend(a, b, c)
        await troubled()
        await client.ack(a)
        await troubled()
        await client.nack(b, reason="no", delay_ms=3_600_000)
        await troubled()
        async with client.once(c) as first:
            assert first
            await troubled()  # of the commit
        async with client.once(c) as first:
            assert not first
        with pytest.raises(ZeroDivisionError):
            async with client.once(c, "other"):
                await troubled()  # of the failure
                raise ZeroDivisionError
        async with client.once(c, "other") as first:
            assert first, "it failed, so it may begin again"
        await client.ack(c)
        await troubled()
        info = await client.group(topic, "g")
    assert (info.lag, info.in_flight, info.retrying) == (1, 0, 1)
    (waiting,) = info.messages
    assert waiting.offset == b.offset
    assert waiting.last_error.endswith("no"), "before that, the first lease may have run out"


@pytest.mark.parametrize("trouble", TROUBLES, ids=["cut", "cut after", "503", "429"])
@in_loop
async def test_a_produce_with_a_key_is_repeated_and_stored_once(
    shared: ServerProcess, topic: str, trouble: Act
) -> None:
    async with between(shared.base) as middle, client_of(middle.url) as client:
        middle.acts = [trouble]
        await client.produce(topic, "one", idempotency_key="one")
        middle.acts = [trouble]
        await client.produce_batch(topic, ["two", "three"], idempotency_key="batch")
        middle.acts = [trouble]
        await client.produce_batch(topic, [compose("four", idempotency_key="4"), compose("five", idempotency_key="5")])
        stored = [message.value async for message in client.scan(topic)]
    assert stored == [b"one", b"two", b"three", b"four", b"five"]


@in_loop
async def test_a_produce_without_a_key_is_repeated_after_429(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base, overloaded(1), overloaded(1)) as middle, client_of(middle.url) as client:
        assert (await client.produce(topic, "one")).offset == 0
    assert middle.seen == ["/v2/produce"] * 3


@pytest.mark.parametrize(("trouble", "stored"), [(cut, 0), (cut_after, 1)], ids=["not stored", "stored"])
@in_loop
async def test_a_produce_without_a_key_is_not_repeated_when_nobody_knows_whether_it_was_stored(
    shared: ServerProcess, topic: str, trouble: Act, stored: int
) -> None:
    async with between(shared.base, trouble) as middle, client_of(middle.url) as client:
        with pytest.raises(ConnectionFailed, match="whether it was done is not known") as caught:
            await client.produce(topic, "one")
        assert caught.value.sent
        middle.acts = [cut]
        with pytest.raises(ConnectionFailed, match="broke before the answer") as caught:
            await client._transport.ask("GET", "/v2/topics", Repeat.SAFE, retries=ONCE)
        assert "whether" not in str(caught.value), "a read changes nothing"
        middle.seen.pop()
        with pytest.raises(ConnectionFailed):
            middle.acts = [cut]
            await client.produce_batch(topic, [compose("two", idempotency_key="two"), "three"])  # one has none
        assert middle.seen == ["/v2/produce"] * 2
        assert len((await client.read(topic)).messages) == stored


@in_loop
async def test_a_produce_without_a_key_is_not_repeated_after_503(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base, unavailable()) as middle, client_of(middle.url) as client:
        with pytest.raises(Unavailable):
            await client.produce(topic, "one")
    assert len(middle.seen) == 1


@in_loop
async def test_a_produce_is_repeated_when_nobody_was_there_to_hear_it(server: ServerProcess, own_topic: str) -> None:
    server.crash()
    async with client_of(server.base, retry_for_ms=0) as impatient:
        with pytest.raises(ConnectionFailed, match="is the server running there") as caught:
            await impatient.produce(own_topic, "one")
        assert not caught.value.sent
    async with client_of(server.base) as client, asyncio.TaskGroup() as group:
        placed = group.create_task(client.produce(own_topic, "one"))
        await asyncio.to_thread(server.start)
    assert placed.result().offset == 0


@pytest.mark.parametrize("trouble", [cut, cut_after, unavailable()], ids=["cut", "cut after", "503"])
@in_loop
async def test_nothing_is_deleted_twice(shared: ServerProcess, topic: str, trouble: Act) -> None:
    async with between(shared.base) as middle, client_of(middle.url) as client:
        await client.fetch(topic, "g")
        middle.acts = [trouble]
        with pytest.raises((ConnectionFailed, Unavailable)):
            await client.forget_group(topic, "g")
        middle.acts = [trouble]
        with pytest.raises((ConnectionFailed, Unavailable)):
            await client.delete_topic(topic)
    assert [path.removeprefix(f"/v2/topics/{topic}") for path in middle.seen] == ["/v2/fetch", "/groups/g", ""]


@in_loop
async def test_a_redrive_with_a_limit_is_not_started_twice(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base) as middle, client_of(middle.url) as client:
        await client.produce(topic, "bad")
        (message,) = await client.fetch(topic, "g")
        await message.nack(retryable=False)
        for limit, rate in ((1, None), (None, 1.0)):
            middle.acts = [cut]
            with pytest.raises(ConnectionFailed):
                await client.redrive(topic, limit=limit, rate=rate)
        middle.acts = [cut_after]
        redrive = await client.redrive(topic)
        await redrive.wait()
        assert len([letter async for letter in client.dead_letters(topic, redriven=True)]) == 1
        assert len((await client.read(topic)).messages) == 2


@in_loop
async def test_what_was_in_a_lost_answer_to_a_fetch_comes_again_when_its_lease_ends(
    shared: ServerProcess, topic: str
) -> None:
    async with between(shared.base, passing, cut_after) as middle, client_of(middle.url) as client:
        await client.produce(topic, "one")
        (message,) = await client.fetch(topic, "g", wait_ms=20_000, lease_ms=100)
        assert (message.text, message.attempts, message.last_error) == ("one", 2, "ack_timeout")
        await message.ack()
    assert middle.seen == ["/v2/produce", "/v2/fetch", "/v2/fetch", "/v2/ack"]


def test_who_tries_without_end_does_not_wait_for_a_year() -> None:
    """A proxy's Retry-After may be absurd, and the server behind it well again in a second."""
    retries = Retries(backoff_ms_max=5_000)
    year = Unavailable("closed for the season", retry_after_ms=365 * 24 * 3600 * 1000)
    assert retries.endless_pause_ms(1, year) <= 65_000
    assert 2_000 <= retries.endless_pause_ms(1, Overloaded("full", retry_after_ms=2_000)) <= 7_000
