"""Staging and committing, against a server."""

from __future__ import annotations

import pytest

from slipstream.client import AsyncClient, Client, Conflict, InvalidArgument, NotFound, compose
from tests.client.between import between, cut_after
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@in_loop
async def test_what_is_staged_is_stored_by_the_commit_and_once(shared: ServerProcess, topic: str) -> None:
    writer = f"w-{topic}"
    async with AsyncClient(shared.base) as client:
        part = await client.stage(topic, ["a", compose("b", key="k")], writer=writer, sequence=1)
        assert (part.messages, await client.writer_sequence(writer)) == (2, None)
        assert await client.commit(writer, 1, [part.staged])
        assert not await client.commit(writer, 1, [part.staged])
        assert await client.writer_sequence(writer) == 1
        assert [(m.value, m.key) async for m in client.scan(topic)] == [(b"a", b""), (b"b", b"k")]
        with pytest.raises(Conflict, match="stage its messages again"):
            await client.commit(writer, 2, [part.staged])


@in_loop
async def test_what_will_not_be_committed_is_taken_back(shared: ServerProcess, topic: str) -> None:
    writer = f"w-{topic}"
    async with AsyncClient(shared.base) as client:
        parts = [await client.stage(topic, ["a"], writer=writer, sequence=1, attempt="first") for _ in range(3)]
        assert (await client.unstage(writer, 1, [parts[0].staged])).parts == 1
        await client.stage(topic, ["a"], writer=writer, sequence=1, attempt="second")
        assert (await client.unstage(writer, 1)).parts == 1, "what the first attempt had left is gone"
        with pytest.raises(Conflict):
            await client.commit(writer, 1, [parts[1].staged])


@in_loop
async def test_what_cannot_be_staged(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(NotFound, match="nowhere"):
            await client.stage("nowhere", ["a"], writer="w", sequence=1)
        with pytest.raises(InvalidArgument, match="list"):
            await client.stage(topic, "a", writer="w", sequence=1)
        with pytest.raises(InvalidArgument, match="writer"):
            await client.writer_sequence("a b")


def test_without_an_event_loop(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        part = client.stage(topic, ["a"], writer=f"w-{topic}", sequence=0)
        assert client.unstage(f"w-{topic}", 1).parts == 0
        assert client.commit(f"w-{topic}", 0, [part.staged])
        assert client.writer_sequence(f"w-{topic}") == 0


@in_loop
async def test_a_commit_whose_answer_is_lost_is_sent_again_and_done_once(shared: ServerProcess, topic: str) -> None:
    writer = f"w-{topic}"
    async with between(shared.base) as proxy, AsyncClient(proxy.url) as client:
        part = await client.stage(topic, ["a"], writer=writer, sequence=1)
        proxy.acts = [cut_after]
        assert not await client.commit(writer, 1, [part.staged]), "the first has done it"
        assert proxy.seen.count("/v2/commit") == 2
        assert [message.value async for message in client.scan(topic)] == [b"a"]
