"""Turns of tenants and their jobs at one host."""

from __future__ import annotations

import asyncio

from slipstream.jobs.download.lanes import Lane, Lanes, Waiter
from tests.client.loop import in_loop


def _lanes(*names: str) -> Lanes:
    lanes = Lanes()
    for name in names:
        lanes.push(Waiter(asyncio.get_running_loop().create_future(), Lane(*name.split("/"))))
    return lanes


def _order(lanes: Lanes) -> list[str]:
    return ["/".join(lanes.pop().lane) for _ in range(len(lanes))]


@in_loop
async def test_tenants_take_turns_and_so_do_the_jobs_of_each() -> None:
    lanes = _lanes("a/1", "a/1", "a/1", "a/2", "b/3", "b/3")
    assert _order(lanes) == ["a/1", "b/3", "a/2", "b/3", "a/1", "a/1"]
    assert len(lanes) == 0


@in_loop
async def test_the_surplus_is_the_newest_of_the_longest_lane() -> None:
    lanes = _lanes("a/1", "b/2", "b/2", "b/3")
    surplus = lanes.pop_surplus()
    assert surplus is not None
    assert surplus.lane == Lane("b", "2")
    assert _order(lanes) == ["a/1", "b/2", "b/3"]


@in_loop
async def test_those_that_were_begun_come_first_and_are_no_surplus() -> None:
    lanes = _lanes("a/1", "b/2")
    begun = [Waiter(asyncio.get_running_loop().create_future(), Lane("a", "1"), is_begun=True) for _ in range(2)]
    for waiter in begun:
        lanes.push(waiter)
    surplus = [lanes.pop_surplus() for _ in range(3)]
    assert [None if waiter is None else waiter.lane for waiter in surplus] == [Lane("a", "1"), Lane("b", "2"), None]
    assert lanes.pop_begun() is begun[0]
    assert lanes.pop() is begun[1]


@in_loop
async def test_a_waiter_that_is_removed_has_no_turn() -> None:
    lanes = Lanes()
    waiters = [Waiter(asyncio.get_running_loop().create_future(), Lane("a", "1")) for _ in range(3)]
    for waiter in waiters:
        lanes.push(waiter)
    lanes.remove(waiters[1])
    assert [each.is_queued for each in waiters] == [True, False, True]
    assert [lanes.pop(), lanes.pop()] == [waiters[0], waiters[2]]
