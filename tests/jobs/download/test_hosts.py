"""Turns at hosts: so many at a time, so often, in order, and not before the time a host has asked for."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
import uvloop

from slipstream.jobs.download import hosts as module
from slipstream.jobs.download.hosts import Crowded, Hosts
from slipstream.jobs.download.lanes import NO_LANE, Lane
from slipstream.jobs.download.limits import Share
from tests.client.loop import in_loop, in_loop_for


class Visitors:
    """Tasks that want a turn, and note the order in which they had it."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.entered: list[int] = []
        self.inside = 0
        self.most = 0
        self.leave = asyncio.Event()

    async def visit(self, number: int, name: str = "h", lane: Lane = NO_LANE) -> None:
        await self.hosts.enter(name, lane)
        self.entered.append(number)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.leave.wait()
        finally:
            self.inside -= 1
            self.hosts.leave(name)

    def start(self, numbers: range, name: str = "h", lane: Lane = NO_LANE) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.visit(number, name, lane)) for number in numbers]


class HandClock:
    """The time of the loop, moved forward by hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time()

    def __call__(self) -> float:
        return self._time

    def forward(self, seconds: float) -> None:
        self._time += seconds


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


def _sent_away(tasks: list[asyncio.Task[None]]) -> list[int]:
    return [number for number, task in enumerate(tasks) if task.done() and isinstance(task.exception(), Crowded)]


@in_loop
async def test_hosts_take_turns_at_the_places_of_the_worker() -> None:
    visitors = Visitors(Hosts(concurrency=2, places=3))
    tasks = visitors.start(range(6), "a") + visitors.start(range(10, 12), "b") + visitors.start(range(20, 22), "c")
    await settle()
    assert visitors.entered == [0, 1, 10], "two at a host, three in all"
    visitors.leave.set()
    await asyncio.gather(*tasks)
    assert visitors.entered[3:6] == [11, 20, 2], "and not the rest of the first host"
    assert visitors.most == 3
    assert len(visitors.hosts) == 0


@in_loop
async def test_within_a_host_tenants_take_turns() -> None:
    visitors = Visitors(Hosts(concurrency=1))
    tasks = visitors.start(range(4), lane=Lane("a", "1")) + visitors.start(range(10, 12), lane=Lane("b", "2"))
    await settle()
    visitors.leave.set()
    await asyncio.gather(*tasks)
    assert visitors.entered == [0, 1, 10, 2, 11, 3]


@in_loop
async def test_what_cannot_wait_is_sent_away_from_the_host_with_the_most_and_the_tenant_with_the_most() -> None:
    visitors = Visitors(Hosts(concurrency=1, waiting_max=4))
    busy = visitors.start(range(8), "busy", Lane("a", "1"))
    await settle()
    assert _sent_away(busy) == [5, 6, 7], "the newest: one is inside and four wait"
    other = visitors.start(range(20, 22), "other")
    await settle()
    assert (_sent_away(busy), _sent_away(other)) == ([4, 5, 6, 7], []), "a new host gets room"
    small = visitors.start(range(10, 11), "busy", Lane("b", "2"))
    await settle()
    assert (_sent_away(busy), _sent_away(small)) == ([3, 4, 5, 6, 7], []), "and so does a new tenant"
    assert visitors.hosts.waiting == 4
    visitors.leave.set()
    await asyncio.gather(*busy, *other, *small, return_exceptions=True)
    assert visitors.hosts.waiting == 0


@in_loop
async def test_a_task_between_two_attempts_takes_room_and_is_the_last_to_be_sent_away() -> None:
    hosts = Hosts(concurrency=1, waiting_max=1)
    resting = asyncio.create_task(hosts.rest("h", 3600))
    await settle()
    await hosts.enter("h")
    with pytest.raises(Crowded):
        await hosts.enter("h")
    assert not resting.done()
    second = asyncio.create_task(hosts.rest("h", 3600))
    await settle()
    assert isinstance(second.exception(), Crowded)
    resting.cancel()
    await asyncio.gather(resting, return_exceptions=True)
    hosts.leave("h")
    assert hosts.waiting == 0


@in_loop
async def test_where_all_hosts_have_as_many_the_newest_is_sent_away() -> None:
    visitors = Visitors(Hosts(concurrency=1, places=1, waiting_max=3))
    tasks = [task for number in range(5) for task in visitors.start(range(number, number + 1), f"h{number}")]
    await settle()
    assert _sent_away(tasks) == [4], "and not the one that has waited longest"
    visitors.leave.set()
    await asyncio.gather(*tasks, return_exceptions=True)


@in_loop
async def test_a_task_that_was_begun_is_next_and_stays_while_others_can_be_sent_away() -> None:
    hosts = Hosts(concurrency=1, waiting_max=2)
    await hosts.enter("h")
    fresh = [asyncio.create_task(hosts.enter("h")) for _ in range(2)]
    await settle()
    begun = asyncio.create_task(hosts.enter("h", is_begun=True))
    await settle()
    assert _sent_away([*fresh, begun]) == [1]
    second = asyncio.create_task(hosts.enter("h", is_begun=True))
    await settle()
    assert _sent_away([*fresh, begun, second]) == [0, 1], "only begun ones are left"
    other = asyncio.create_task(hosts.enter("g", is_begun=True))
    await settle()
    assert other.done(), "a turn is free there"
    third = asyncio.create_task(hosts.enter("h", is_begun=True))
    await settle()
    assert _sent_away([begun, second, third]) == [0], "then the one whose turn comes last"
    for task in (third, second):
        hosts.leave("h")
        await task
    hosts.leave("h")
    hosts.leave("g")
    assert hosts.waiting == 0


@in_loop
async def test_tasks_sent_away_come_again_later_the_more_there_are_and_never_before_the_host_wants_it() -> None:
    clock = HandClock(asyncio.get_running_loop())
    with mock.patch.object(asyncio.get_running_loop(), "time", clock):
        hosts = Hosts(concurrency=2, waiting_max=0)
        await hosts.enter("h")
        for _ in range(20):  # a turn a second
            await hosts.enter("h")
            clock.forward(1)
            hosts.leave("h")
        await hosts.enter("h")
        delays = []
        for _ in range(300):
            with pytest.raises(Crowded) as crowded:
                await hosts.enter("h")
            delays.append(crowded.value.delay_s)
        assert max(delays[:3]) < 3, "estimates grow"
        assert 10 < min(delays[-3:]) < 30, "no estimate goes further than the host is known"
        hosts.hold("h", 500)
        with pytest.raises(Crowded) as crowded:
            await hosts.enter("h")
        assert crowded.value.delay_s > 500
        hosts.close()


@in_loop
async def test_a_hold_that_is_too_long_to_wait_for_sends_everybody_away() -> None:
    visitors = Visitors(Hosts(concurrency=1, waiting_max=4, hold_s_max=30))
    tasks = visitors.start(range(4))
    await settle()
    visitors.hosts.hold("h", 29)
    assert _sent_away(tasks) == []
    visitors.hosts.hold("h", 31)
    await settle()
    assert _sent_away(tasks) == [1, 2, 3]
    with pytest.raises(Crowded, match="asked to wait"):
        await visitors.hosts.enter("h")
    visitors.leave.set()
    await tasks[0]
    visitors.hosts.close()


@in_loop
async def test_a_host_that_does_not_say_for_how_long_is_left_alone_for_twice_as_long_each_time() -> None:
    clock = HandClock(asyncio.get_running_loop())
    with mock.patch.object(asyncio.get_running_loop(), "time", clock):
        hosts, pauses = Hosts(), []
        for _ in range(9):
            for _ in range(4):  # downloads that were under way together: one refusal
                hosts.throttle("h", None)
            pauses.append(round(hosts.delay_s("h"), 1))
            clock.forward(hosts.delay_s("h"))
        hosts.relent("h")
        hosts.throttle("h", None)
        assert hosts.delay_s("h") == pytest.approx(0.5), "it has taken a request"
        hosts.relent("h")
        clock.forward(0.5)
        hosts.throttle("h", None)
        assert hosts.delay_s("h") == pytest.approx(1), "an answer to a request from before the refusal says nothing"
        hosts.throttle("h", 7)
        assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        assert round(hosts.delay_s("h")) == 7
        hosts.close()


@in_loop_for(1_000)  # the clock of its limit is moved, too
async def test_a_host_with_a_quota_that_names_no_time_is_not_left_alone_for_ever() -> None:
    """600 files, 20 in 2 s: a minute if it said for how long."""
    loop = asyncio.get_running_loop()
    clock = HandClock(loop)
    with mock.patch.object(loop, "time", clock):
        hosts, began_at, left = Hosts(concurrency=4), clock(), 600
        window_ends_at, answers = 0.0, 0

        async def download() -> None:
            nonlocal left, window_ends_at, answers
            while True:
                await hosts.enter("h")
                if clock() >= window_ends_at:
                    window_ends_at, answers = clock() + 2, 0
                answers += 1
                if is_taken := answers <= 20:
                    hosts.relent("h")
                else:
                    hosts.throttle("h", None)
                hosts.leave("h")
                if is_taken:
                    left -= 1
                    return

        tasks = [asyncio.create_task(download()) for _ in range(600)]
        while left:
            await settle()
            if delay_s := hosts.delay_s("h"):
                clock.forward(delay_s + 0.001)
        await asyncio.gather(*tasks)
        assert 58 <= clock() - began_at < 120
        hosts.close()
