"""Retries that are kept here, above an engine that is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.drivers.local_retries import LocalRetries
from slipstream.bus.errors import BusUnavailable
from tests.client.loop import in_loop

AN_HOUR_S = 3600.0


class Engine:
    """Gives what the test puts there, and notes what it is told."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Delivery] = asyncio.Queue()
        self.told: list[str] = []
        self.is_away = False
        self.extended = asyncio.Event()

    def give(self, name: str, attempt: int = 1, handle: str = "") -> None:
        self.given.put_nowait(
            Delivery(id=name, topic="orders", data=b"", attributes={}, attempt=attempt, handle=handle)
        )

    @property
    def trouble(self) -> str:
        return "nobody there" if self.is_away else ""

    async def pull(self, limit: int) -> Sequence[Delivery]:
        if "stop" in self.told and self.given.empty():
            return []
        taken = [await self.given.get()]
        while len(taken) < limit and not self.given.empty():
            taken.append(self.given.get_nowait())
        return taken

    async def ack(self, delivery: Delivery) -> None:
        self.told.append(f"ack {delivery.id}")

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        if self.is_away:
            raise BusUnavailable("nobody there")
        self.told.append(f"nack {delivery.id} {delivery.handle}".strip())

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        self.told.append(f"postpone {delivery.id}")

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        self.extended.set()
        return []

    def free_place(self, delivery: Delivery) -> None:
        self.told.append(f"free {delivery.id}")

    def take_place(self, delivery: Delivery) -> None:
        self.told.append(f"take {delivery.id}")

    async def lag(self) -> int | None:
        return None

    async def stop(self) -> None:
        self.told.append("stop")

    async def close(self) -> None:
        self.told.append("close")


async def pulled(retries: LocalRetries, limit: int) -> list[tuple[str, int]]:
    """Something: a pull may return nothing."""
    while not (taken := await retries.pull(limit)):
        pass
    return [(delivery.id, delivery.attempt) for delivery in taken]


@in_loop
async def test_what_is_nacked_comes_again_one_attempt_further() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=2, postponed_max=1)
    engine.give("x")
    (first,) = await retries.pull(2)
    await retries.nack(first, 0.05, "no")
    assert await pulled(retries, 2) == [("x", 2)]
    await retries.ack(first)
    assert engine.told == ["ack x"], "the engine knows of no failure"
    await retries.close()


@in_loop
async def test_one_that_waits_leaves_room_for_others() -> None:
    """Nobody tells it when a handler has ended: it asks the engine while there is room for one more to wait."""
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=2, postponed_max=1)
    engine.give("bad")
    (bad,) = await retries.pull(2)
    await retries.nack(bad, AN_HOUR_S, "later")
    for number in range(5):
        engine.give(f"good-{number}")
        assert await pulled(retries, 1) == [(f"good-{number}", 1)]
    await retries.close()


@in_loop
async def test_while_too_many_wait_nothing_more_is_asked_for() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=2, postponed_max=1)
    for name in ("one", "two", "three"):
        engine.give(name)
    for delivery in await retries.pull(2):
        await retries.nack(delivery, 0.2, "soon")
    assert await pulled(retries, 2) == [("one", 2), ("two", 2)], "and not three, which is at the engine"
    assert await pulled(retries, 2) == [("three", 1)]
    await retries.close()


@in_loop
async def test_never_more_than_there_is_room_for() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=4, postponed_max=1)
    engine.give("bad")
    (bad,) = await retries.pull(4)
    pulling = asyncio.create_task(retries.pull(4))  # asks the engine for four
    await asyncio.sleep(0)
    await retries.nack(bad, 0, "at once")
    assert [delivery.id for delivery in await pulling] == ["bad"]
    for number in range(4):
        engine.give(f"good-{number}")
    assert [await pulled(retries, 1) for _ in range(4)] == [[(f"good-{number}", 1)] for number in range(4)]
    await retries.close()


@in_loop
async def test_a_lease_that_was_lost_was_an_attempt() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=2, postponed_max=1)
    engine.give("x")
    assert await pulled(retries, 2) == [("x", 1)]
    engine.give("x")
    assert await pulled(retries, 2) == [("x", 2)]
    engine.give("x", attempt=7)
    (last,) = await retries.pull(2)
    assert last.attempt == 7, "an engine that counts knows of others, too"
    await retries.ack(last)
    engine.give("x")
    assert await pulled(retries, 2) == [("x", 1)], "it was finished: who publishes it again begins anew"
    await retries.close()


@in_loop
async def test_what_comes_again_while_it_waits_is_one_message_with_the_later_lease() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=2, postponed_max=1)
    engine.give("x", handle="first")
    (x,) = await retries.pull(2)
    await retries.nack(x, 0.2, "soon")
    engine.give("x", handle="second")
    while not (taken := await retries.pull(2)):
        pass
    (again,) = taken
    assert (again.attempt, again.handle) == (2, "second")
    await retries.close()


@in_loop
async def test_at_the_end_what_waits_is_given_back_and_not_taken_again() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=3, postponed_max=1)
    for name in ("one", "two"):
        engine.give(name)
    for delivery in await retries.pull(2):
        await retries.nack(delivery, AN_HOUR_S, "later")
    await retries.stop()
    assert engine.told == ["stop", "nack one", "nack two"]
    assert await retries.pull(2) == []
    await retries.close()


@in_loop
async def test_the_end_comes_while_the_engine_is_away() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=3, postponed_max=1)
    engine.give("x")
    (x,) = await retries.pull(1)
    await retries.nack(x, AN_HOUR_S, "later")
    engine.is_away = True
    await retries.stop()
    await retries.close()
    assert engine.told == ["stop", "close"]


@in_loop
async def test_a_postponed_message_has_the_same_attempt_and_takes_no_place_while_it_waits() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=1, postponed_max=2, places=engine)
    engine.give("x", attempt=3)
    (first,) = await retries.pull(1)
    await retries.postpone(first, 0.05, "busy")
    assert engine.told == ["free x"]
    engine.give("y")
    assert await pulled(retries, 1) == [("y", 1)], "it takes none of the places of retries either"
    assert await pulled(retries, 1) == [("x", 3)]
    assert engine.told == ["free x", "take x"]
    await retries.close()


@in_loop
async def test_an_engine_that_delays_retries_itself_is_asked_to_and_postponed_ones_keep_their_lease() -> None:
    engine = Engine()
    retries = LocalRetries(engine, waiting_max=1, postponed_max=2, has_retries=True, renew_s=0.01)
    engine.give("x")
    engine.give("y")
    x, y = await retries.pull(2)
    await retries.nack(x, AN_HOUR_S, "no")
    await retries.postpone(y, AN_HOUR_S, "busy")
    assert engine.told == ["nack x"]
    await engine.extended.wait()
    await retries.stop()
    assert engine.told == ["nack x", "stop", "nack y"], "another subscriber may have it at once"
    await retries.close()
