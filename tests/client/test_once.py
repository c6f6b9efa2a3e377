"""Effects that happen once, against a server."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.client import AsyncClient, AsyncMessage, InProgress
from tests.client.between import Act, between, cut, cut_after, hold
from tests.client.loop import in_loop, until
from tests.server_process import ServerProcess


async def fetched(client: AsyncClient, topic: str, *values: str, key: str | None = None) -> list[AsyncMessage]:
    for value in values:
        await client.produce(topic, value, tenant_id="t")
    return await client.fetch(topic, "g", lease_ms=60_000)


@in_loop
async def test_the_first_does_it_and_the_second_is_told_that_it_is_done(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        (message,) = await fetched(client, topic, "v")
        async with client.once(message) as first:
            assert first
        async with message.once() as first:
            assert not first
        async with message.once("another effect") as first:
            assert first


@in_loop
async def test_what_failed_may_begin_again_at_once(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        (message,) = await fetched(client, topic, "v")
        with pytest.raises(ZeroDivisionError):
            async with client.once(message):
                raise ZeroDivisionError
        async with client.once(message) as first:
            assert first


@in_loop
async def test_while_one_is_at_it_the_other_is_told_so_even_in_the_same_process(
    shared: ServerProcess, topic: str
) -> None:
    async with AsyncClient(shared.base) as client:
        (message,) = await fetched(client, topic, "v")
        async with client.once(message) as first:
            assert first
            with pytest.raises(InProgress, match="under way"):
                async with client.once(message):
                    raise AssertionError("nobody should be here")


@in_loop
async def test_the_key_is_the_messages_own_or_its_place(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, ["a", "b"])
        await client.produce(topic, "c", idempotency_key="order-17")
        a, b, c = await client.fetch(topic, "g")
        for message in (a, b, c):
            async with client.once(message) as first:
                assert first
        async with client.once(b, "order-17") as first:
            assert not first, "c has done that"


@in_loop
async def test_a_long_block_keeps_its_lease(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        (message,) = await fetched(client, topic, "v")
        async with client.once(message, lease_ms=1_500):

            async def renewed_often() -> bool:
                return middle.seen.count("/v2/once/begin") > 6

            await until(renewed_often)  # twice as long as the lease
            with pytest.raises(InProgress):
                async with AsyncClient(shared.base) as other, other.once(message):
                    pass
        assert middle.seen[-1] == "/v2/once/commit"


@in_loop
async def test_who_dies_inside_is_followed_by_another(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as dying, AsyncClient(shared.base) as client:
        (message,) = await fetched(client, topic, "v")
        effect = dying.once(message, lease_ms=60)
        assert await effect.__aenter__()
        await dying.close()  # as far as the server can tell, it died

        async def begun() -> bool:
            try:
                async with client.once(message) as first:
                    return first
            except InProgress:
                return False

        await until(begun)
        with pytest.raises(Exception, match="closed"):
            await effect.__aexit__(None, None, None)


@pytest.mark.parametrize("trouble", [cut, cut_after])
@in_loop
async def test_a_commit_whose_answer_was_lost_is_found_to_have_counted(
    shared: ServerProcess, topic: str, trouble: Act
) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url, backoff_ms=1) as client:
        (message,) = await fetched(client, topic, "v")
        async with client.once(message):
            middle.acts = [trouble]
        async with client.once(message) as first:
            assert not first


@in_loop
async def test_who_lost_the_effect_to_another_is_told_so_at_the_end(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url, retry_for_ms=0) as client:
        (message,) = await fetched(client, topic, "v")
        with pytest.raises(InProgress):
            async with client.once(message, lease_ms=90):
                middle.acts = [cut] * 1000  # nothing is renewed any more
                async with AsyncClient(shared.base) as other:

                    async def taken() -> bool:
                        try:
                            await other.once(message).__aenter__()
                        except InProgress:
                            return False
                        return True

                    await until(taken)
                middle.acts = []


@in_loop
async def test_an_exception_arrives_though_nobody_hears_of_the_failure(server: ServerProcess, own_topic: str) -> None:
    async with AsyncClient(server.base, retry_for_ms=0) as client:
        (message,) = await fetched(client, own_topic, "v")
        with pytest.raises(ZeroDivisionError):
            async with client.once(message):
                await asyncio.to_thread(server.crash)
                raise ZeroDivisionError


@in_loop
async def test_a_renewal_that_is_never_answered_does_not_lose_the_effect(shared: ServerProcess, topic: str) -> None:
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        (message,) = await fetched(client, topic, "v")
        async with client.once(message, lease_ms=4_500):
            middle.acts = [hold]
            await middle.held.acquire()
            rival = asyncio.create_task(begin_when_it_is_free(shared, message))

            async def is_renewed_or_lost() -> bool:
                await asyncio.sleep(0.01)
                return rival.done() or middle.seen.count("/v2/once/begin") > 2

            await until(is_renewed_or_lost)
            assert not rival.done(), "nobody else may begin"
            rival.cancel()


async def begin_when_it_is_free(server: ServerProcess, message: AsyncMessage) -> None:
    async with AsyncClient(server.base) as other:
        while True:
            try:
                async with other.once(message):
                    return
            except InProgress:
                await asyncio.sleep(0.01)
