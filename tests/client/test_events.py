"""The stream of numbers, against a server."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.client import AsyncClient, ConnectionFailed, InvalidArgument, SlipstreamError, events
from slipstream.client.events import _data_of
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@in_loop
async def test_numbers_come_again_and_again(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce(topic, "v")
        await client.fetch(topic, "g")
        events = client.events(interval_ms=100)
        seen = [await anext(events), await anext(events)]
        await events.aclose()
    assert seen[1].time_ms > seen[0].time_ms
    (mine,) = [stats for stats in seen[0].topics if stats.topic == topic]
    assert (mine.messages, mine.groups[0].in_flight) == (1, 1)


@in_loop
async def test_they_go_on_after_the_server_was_killed(server: ServerProcess) -> None:
    async with AsyncClient(server.base) as client:
        events = client.events(interval_ms=100)
        await anext(events)
        await asyncio.to_thread(server.restart)
        await anext(events)
        await events.aclose()


@in_loop
async def test_they_end_when_nobody_is_there_for_too_long(server: ServerProcess) -> None:
    async with AsyncClient(server.base, retry_for_ms=50) as client:
        events = client.events(interval_ms=100)
        await anext(events)
        await asyncio.to_thread(server.crash)
        with pytest.raises(ConnectionFailed):
            await anext(events)


@in_loop
async def test_what_is_wrong_is_not_tried_again(shared: ServerProcess) -> None:
    async with AsyncClient(shared.base) as client:
        with pytest.raises(InvalidArgument):
            await anext(client.events(interval_ms=1))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@in_loop
async def test_events_are_found_however_the_bytes_fall(size: int) -> None:
    text = (
        b": comment\n\nretry: 1000\n\nevent: stats\ndata: one\n\nevent: other\ndata: no\n\n"
        b"data: unnamed\n\nevent: stats\r\ndata:two\r\ndata: lines\r\n\r\nevent: stats\ndata: cut off"
    )

    class Pieces:
        async def iter_any(self) -> object:
            for start in range(0, len(text), size):
                yield text[start : start + size]

    found = [data async for data in _data_of(Pieces(), "stats")]  # type: ignore[arg-type]
    assert found == [b"one", b"two\nlines"]


@in_loop
async def test_an_event_without_end_is_not_taken_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "ANSWER_BYTES_MAX", 1 << 16)

    class Endless:
        async def iter_any(self) -> object:
            for _ in range(1 << 14):
                yield b"data: and more\n"

    with pytest.raises(SlipstreamError, match="makes no sense"):
        async for _ in _data_of(Endless(), "stats"):  # type: ignore[arg-type]
            pass
