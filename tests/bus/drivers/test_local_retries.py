"""Retries that are kept in the process, above an engine that knows none: one in memory, which does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.drivers.local_retries import LocalRetries
from tests.client.loop import in_loop


class Engine:
    """Hands out what is put into it, and notes what comes back."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self.limits: list[int] = []
        self.acked: list[str] = []
        self.given_back: list[str] = []

    def put(self, name: str) -> None:
        self.waiting.put_nowait(Delivery(id=name, topic="orders", data=name.encode(), attributes={}))

    async def pull(self, limit: int) -> Sequence[Delivery]:
        self.limits.append(limit)
        delivery = await self.waiting.get()
        return [delivery] if delivery is not None else []

    async def ack(self, delivery: Delivery) -> None:
        self.acked.append(delivery.id)

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        self.given_back.append(delivery.id)

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        return ()

    async def lag(self) -> int | None:
        return None

    async def stop(self) -> None:
        self.waiting.put_nowait(None)
        self.waiting.put_nowait(None)

    async def close(self) -> None: ...


async def some(source: LocalRetries, limit: int = 10) -> list[Delivery]:
    while not (deliveries := await source.pull(limit)):
        pass
    return list(deliveries)


@in_loop
async def test_what_is_nacked_comes_again_one_attempt_further() -> None:
    engine = Engine()
    source = LocalRetries(engine)
    engine.put("a")
    (first,) = await some(source)
    await source.nack(first, 0.05, "no")
    (again,) = await some(source)
    assert (first.attempt, again.attempt) == (1, 2)
    assert again.data == first.data
    await source.ack(again)
    assert engine.acked == ["a"]
    assert engine.given_back == [], "the engine knows of no failure"
    await source.stop()
    await source.close()


@in_loop
async def test_others_are_handed_out_while_one_waits() -> None:
    engine = Engine()
    source = LocalRetries(engine)
    engine.put("a")
    (first,) = await some(source)
    await source.nack(first, 3600, "no")
    engine.put("b")
    assert [delivery.id for delivery in await some(source)] == ["b"]
    await source.stop()
    await source.close()


@in_loop
async def test_what_waits_takes_a_slot_at_the_engine() -> None:
    engine = Engine()
    source = LocalRetries(engine)
    engine.put("a")
    (first,) = await some(source, 2)
    await source.nack(first, 0.05, "no")
    engine.put("b")
    assert {(await some(source, 2))[0].id, (await some(source, 2))[0].id} == {"a", "b"}
    assert max(engine.limits[1:]) == 1
    await source.stop()
    await source.close()


@in_loop
async def test_when_all_slots_wait_the_engine_is_not_asked() -> None:
    engine = Engine()
    source = LocalRetries(engine)
    engine.put("a")
    (first,) = await some(source, 1)
    await source.nack(first, 0.05, "no")
    engine.put("b")
    assert [delivery.id for delivery in await some(source, 1)] == ["a"]
    assert engine.limits == [1]
    await source.stop()
    await source.close()


@in_loop
async def test_what_waits_is_given_back_at_the_end() -> None:
    engine = Engine()
    source = LocalRetries(engine)
    engine.put("a")
    (first,) = await some(source)
    await source.nack(first, 3600, "no")
    await source.stop()
    assert engine.given_back == ["a"]
    assert await source.pull(10) == []
    await source.close()
