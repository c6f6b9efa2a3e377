"""Chunks that come in any order, twice, too late or not at all, and the step that puts them together."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus import Bus
from slipstream.bus.opening import Opening
from slipstream.slip import Envelope, Event, Work, Worker, encode
from slipstream.slip.topics import CHUNKS
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, table

OpenBus = Callable[[], Opening]

WORDS = ["to ", "be ", "or ", "not ", "to ", "be"]


def talking(order: list[int], **aggregation: Any) -> Worker:
    """A worker that says the words in this order; the last of the list says how many there are."""
    worker = Worker()

    @worker.step("bot")
    async def talk(work: Work) -> None:
        for place, index in enumerate(order):
            await work.emit_chunk(index, WORDS[index], len(WORDS) if place == len(order) - 1 else None)

    worker.aggregator(**aggregation)
    return worker


async def send_chunk(bus: Bus, correlation_id: str, index: int, total: int | None = None, **fields: Any) -> None:
    payload = {"chunkIndex": index, **({"totalChunks": total} if total else {}), **fields}
    await bus.publish(CHUNKS, encode(Event(Envelope("1", "test", correlation_id), CHUNKS, payload)))


@in_loop
async def test_chunks_of_any_order_are_one_reply_on_every_engine(any_bus: OpenBus) -> None:
    order = list(range(len(WORDS)))
    random.shuffle(order)
    async with any_bus() as bus, lab(bus, table("bot", "aggregator"), talking(order)) as made:
        await made.submit(payload={"text": "?"})
        await made.until(lambda: len(made.delivered) + len(made.dead) > 0)
    assert made.dead == []
    assert made.delivered[0]["payload"] == {"text": "?", "reply": "to be or not to be"}
    assert "waiting aggregator" in made.kinds()


@in_loop
async def test_chunks_that_come_twice_and_after_the_message(memory_bus: OpenBus) -> None:
    worker = Worker()
    worker.aggregator()
    async with memory_bus() as bus, lab(bus, table("aggregator"), worker) as made:
        await made.submit()
        await made.told("waiting aggregator")
        for index in (2, 0, 0, 2):
            await send_chunk(bus, "c-1", index, text="abc"[index])
        await send_chunk(bus, "c-1", 1, 3, text="b")
        await send_chunk(bus, "c-1", 1, 3, text="other")
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["reply"] == "abc"
    assert made.kinds().count("finished aggregator") == 1


@pytest.mark.parametrize("partial", [False, True])
@in_loop
async def test_gaps_are_waited_for_only_so_long(memory_bus: OpenBus, partial: bool) -> None:
    worker = talking([0, 2, 5, 3], timeout=0.2, partial=partial)
    async with memory_bus() as bus, lab(bus, table("bot", "aggregator"), worker) as made:
        await made.submit(payload={})
        await made.until(lambda: len(made.delivered) + len(made.dead) > 0)
    if partial:
        assert made.delivered[0]["payload"]["reply"] == "to or not be"
        assert made.delivered[0]["envelope"]["routingSlip"][2]["notes"] == "2 chunks have not come, of 6: 1, 4"
    else:
        assert made.dead[0]["error"]["code"] == "chunks_missing"
        assert made.dead[0]["error"]["message"] == "2 chunks have not come, of 6: 1, 4"


@in_loop
async def test_without_the_last_nobody_knows_how_many(memory_bus: OpenBus) -> None:
    worker = Worker()
    worker.aggregator(timeout=0.2)
    async with memory_bus() as bus, lab(bus, table("aggregator"), worker) as made:
        await made.submit()
        await send_chunk(bus, "c-1", 0, text="a")
        await made.until(lambda: len(made.dead) > 0)
    assert "none has said how many" in made.dead[0]["error"]["message"]


@in_loop
async def test_the_pieces_of_an_attempt_that_failed_are_not_mixed_with_those_of_the_next(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("bot")
    async def talk(work: Work) -> None:
        if work.attempt == 0:
            await work.emit_chunk(0, "wrong ")
            await work.emit_chunk(7, "wrong ", 8)
            raise RuntimeError("in the middle")
        await work.emit_chunk(0, "all ")
        await work.emit_chunk(1, "right", 2)

    worker.aggregator()
    async with memory_bus() as bus, lab(bus, table("bot", "aggregator"), worker) as made:
        await made.submit(payload={})
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["reply"] == "all right"


@in_loop
async def test_what_is_no_chunk_and_what_is_too_much_are_dead_letters(memory_bus: OpenBus) -> None:
    worker = Worker()
    worker.aggregator()
    async with memory_bus() as bus, lab(bus, table("aggregator"), worker, settings=fast(chunks_max=10)) as made:
        await made.submit()
        await send_chunk(bus, "c-1", -1)
        await send_chunk(bus, "c-1", 10)
        await send_chunk(bus, "c-1", 0, 11)
        await bus.publish(CHUNKS, b"?")
        await made.until(lambda: len(made.dead) == 4)
        await send_chunk(bus, "c-1", 0, 2, data={"n": 1})
        await send_chunk(bus, "c-1", 1, data=[2])
        await made.until(lambda: len(made.delivered) > 0)
    codes = sorted(letter["error"]["code"] for letter in made.dead)
    assert codes == ["malformed", "malformed", "too_many_chunks", "too_many_chunks"]
    assert made.delivered[0]["payload"]["reply"] == [{"n": 1}, [2]]


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.long)])
@in_loop
async def test_many_chunks_after_the_message(memory_bus: OpenBus, count: int) -> None:
    worker = Worker()
    worker.aggregator()
    numbers = list(range(count))
    random.shuffle(numbers)
    async with memory_bus() as bus, lab(bus, table("aggregator"), worker) as made:
        await made.submit()
        await made.told("waiting aggregator")
        for number in numbers:
            await send_chunk(bus, "c-1", number, count, text=f"{number} ")
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["reply"].split() == [str(number) for number in range(count)]
