"""Turns at hosts: so many at a time, so often, in order, and not before the time a host has asked for."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
import uvloop

from slipstream.jobs.download import hosts as module
from slipstream.jobs.download.hosts import Hosts, Share
from tests.client.loop import in_loop


class Visitors:
    """Tasks that want a turn, and note the order in which they had it."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.entered: list[int] = []
        self.inside = 0
        self.most = 0
        self.leave = asyncio.Event()

    async def visit(self, number: int, name: str = "h") -> None:
        await self.hosts.enter(name)
        self.entered.append(number)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.leave.wait()
        finally:
            self.inside -= 1
            self.hosts.leave(name)

    def start(self, numbers: range, name: str = "h") -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.visit(number, name)) for number in numbers]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@in_loop
async def test_so_many_are_inside_and_the_others_come_in_order() -> None:
    visitors = Visitors(Hosts(concurrency=3))
    tasks = visitors.start(range(20))
    await settle()
    assert visitors.entered == [0, 1, 2]
    visitors.leave.set()
    await asyncio.gather(*tasks)
    assert visitors.entered == list(range(20))
    assert visitors.most == 3
    assert len(visitors.hosts) == 0, "hosts nobody is at are forgotten"


@in_loop
async def test_a_busy_host_does_not_hold_up_another() -> None:
    visitors = Visitors(Hosts(concurrency=1))
    tasks = [*visitors.start(range(3), "busy"), *visitors.start(range(10, 11), "idle")]
    await settle()
    assert visitors.entered == [0, 10]
    visitors.leave.set()
    await asyncio.gather(*tasks)


@in_loop
async def test_who_is_cancelled_while_waiting_does_not_take_a_turn() -> None:
    visitors = Visitors(Hosts(concurrency=1))
    tasks = visitors.start(range(4))
    await settle()
    tasks[1].cancel()
    await settle()
    visitors.leave.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert visitors.entered == [0, 2, 3]
    assert len(visitors.hosts) == 0


@in_loop
async def test_a_turn_given_to_somebody_who_is_cancelled_at_that_moment_goes_to_the_next() -> None:
    hosts = Hosts(concurrency=1)
    await hosts.enter("h")
    second, third = asyncio.create_task(hosts.enter("h")), asyncio.create_task(hosts.enter("h"))
    await settle()
    hosts.leave("h")  # it is the second's from now on
    second.cancel()
    await third
    assert second.cancelled()
    hosts.leave("h")
    assert len(hosts) == 0


@in_loop
async def test_everybody_waits_for_a_host_that_asked_for_it() -> None:
    hosts = Hosts()
    hosts.hold("h", 0.05)
    asked_at = asyncio.get_running_loop().time()
    assert 0 < hosts.delay_s("h") <= 0.05
    await asyncio.gather(*(hosts.enter("h") for _ in range(3)))
    assert asyncio.get_running_loop().time() - asked_at >= 0.049
    assert hosts.delay_s("h") == 0
    assert hosts.delay_s("other") == 0


@in_loop
async def test_a_shorter_hold_does_not_shorten_a_longer_one() -> None:
    hosts = Hosts()
    hosts.hold("h", 100)
    hosts.hold("h", 1)
    assert hosts.delay_s("h") > 90
    hosts.close()


@in_loop
async def test_a_hold_reaches_those_who_already_wait() -> None:
    hosts = Hosts(concurrency=1)
    await hosts.enter("h")
    waiting = asyncio.create_task(hosts.enter("h"))
    await settle()
    hosts.hold("h", 3600)
    hosts.leave("h")
    await settle()
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    hosts.close()


@in_loop
async def test_turns_are_evenly_spaced() -> None:
    hosts, times = Hosts(rate_per_s=100), []

    async def visit() -> None:
        await hosts.enter("h")
        times.append(asyncio.get_running_loop().time())
        hosts.leave("h")

    await asyncio.gather(*(visit() for _ in range(6)))
    assert times[-1] - times[0] >= 0.049, times


@in_loop
async def test_a_host_held_back_is_forgotten_when_its_time_is_over() -> None:
    hosts = Hosts()
    hosts.hold("h", 0.02)
    assert len(hosts) == 1
    while len(hosts):
        await asyncio.sleep(0.005)


@in_loop
async def test_hosts_that_want_to_be_left_alone_are_not_remembered_without_end() -> None:
    with mock.patch.object(module, "HOSTS_MAX", 50):
        hosts = Hosts()
        for number in range(200):
            hosts.hold(f"h{number}", 3600)
        assert len(hosts) == 50
        assert hosts.delay_s("h199") > 0
        hosts.close()


@in_loop
async def test_giving_back_more_than_was_given_is_an_error() -> None:
    hosts = Hosts()
    hosts.hold("h", 3600)
    with pytest.raises(AssertionError, match="more turns"):
        hosts.leave("h")
    hosts.close()


def test_a_rate_is_kept_on_the_loop_of_the_commands_too() -> None:
    """Many who wait for a host, and a timer that is due at once: uvloop's tells no time then."""

    async def story() -> int:
        hosts, done = Hosts(4, 2_000.0), 0

        async def visit() -> None:
            nonlocal done
            await hosts.enter("a")
            await asyncio.sleep(0)
            hosts.leave("a")
            done += 1

        async with asyncio.timeout(30):
            for _ in range(20):  # some come while a timer is set
                await asyncio.gather(*(visit() for _ in range(25)))
        hosts.close()
        return done

    assert uvloop.run(story()) == 500


@in_loop
async def test_a_share_of_a_host_is_for_that_host_and_until_the_next() -> None:
    visitors = Visitors(Hosts(concurrency=3))
    visitors.hosts.share({"h": Share(concurrency=1)})
    tasks = visitors.start(range(4)) + visitors.start(range(10, 14), "other")
    await settle()
    assert sorted(visitors.entered) == [0, 10, 11, 12]
    visitors.hosts.share({"h": Share(concurrency=2)})
    await settle()
    assert sorted(visitors.entered) == [0, 1, 10, 11, 12], "who waits has a place that is new"
    visitors.leave.set()
    await asyncio.gather(*tasks)


@in_loop
async def test_what_hosts_have_asked_for_and_what_their_rate_says_can_be_told_apart() -> None:
    hosts = Hosts()
    hosts.share({"rated": Share(rate_per_s=0.01)})
    hosts.hold("held", 60)
    await hosts.enter("rated")
    hosts.leave("rated")
    assert [name for name, for_s in hosts.held_s().items() if for_s > 59] == ["held"]
    assert [name for name, for_s in hosts.resting_s().items() if for_s > 99] == ["rated"]
    hosts.close()
