"""Turns at hosts: how many downloads at a time, how often, and not before the time a host has asked for.

A turn needs a place at the host and a place in the worker. Hosts take turns at the worker's places; within a host
tenants do, then jobs (`lanes`). How many tasks may wait here is limited: beyond that the newest task of the host with
the most waiting tasks is sent away with an estimate of when to come again. So a slow host never fills a worker.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Mapping

from slipstream.jobs.download.lanes import NO_LANE, Lane, Lanes, Waiter
from slipstream.jobs.download.limits import HostLimits, Share

HOSTS_MAX = 10_000
"""Hosts without a task that are remembered because they asked to be left alone. The oldest is forgotten beyond."""

AWAY_S_MIN = 0.25
AWAY_S_MAX = 120.0
"""Shortest and longest estimate of when a task should come again, unless the host itself has asked for longer."""
PACE_TURNS = 32
"""Turns from whose ends the pace of a host is estimated."""
STOPPED = "is not asked any more: the worker stops"
THROTTLE_S_FIRST = 0.5
THROTTLE_S_MAX = 30.0
"""Shortest and longest pause for a host that answers 429 without saying for how long; it doubles."""


class Crowded(Exception):
    """There is no room to wait for this host here: come again later."""

    def __init__(self, host: str, delay_s: float, why: str) -> None:
        super().__init__(f"{host} {why}")
        self.delay_s = delay_s


class Hosts:
    """Gives out turns.

    Example:
        await hosts.enter("example.org", Lane("shop", "job-1"))
        try:
            ...  # at most so many tasks are here at a time
        finally:
            hosts.leave("example.org")
        hosts.hold("example.org", 30)  # it has answered 429: no turns for half a minute
    """

    def __init__(
        self,
        concurrency: int = 0,
        rate_per_s: float = 0.0,
        *,
        limits: HostLimits | None = None,
        places: int = 0,
        waiting_max: int | None = None,
        hold_s_max: float | None = None,
    ) -> None:
        """0 is no limit. `limits` replaces the first two. `places`: turns at a time at all hosts together.
        `waiting_max`: tasks that wait here; `hold_s_max`: the longest time they wait for a host that asked for it.
        None: without a limit, and then Crowded is never raised."""
        self._limits = limits or HostLimits({}, Share(concurrency, rate_per_s))
        self._places = places
        self._waiting_max = waiting_max
        self._hold_s_max = hold_s_max
        self._shares: Mapping[str, Share] = {}
        self._hosts: dict[str, _Host] = {}
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False
        self._running = 0
        self._waiting = 0
        """Tasks that wait for a turn, or rest."""
        self._crowd: dict[_Host, None] = {}
        """Hosts for which tasks wait."""
        self._ready: dict[_Host, None] = {}
        """Hosts that could take a task if the worker had a place, in order of their turns."""

    async def enter(self, name: str, lane: Lane = NO_LANE, *, is_begun: bool = False) -> None:
        """Wait for a turn at a host. The caller gives it back (`leave`). A task that has had a turn before comes before
        the others of its job, and is the last to be sent away. Raises Crowded."""
        host = self._hosts.get(name) or self._host(name)
        if self._is_stopped or host.lanes or self._ready or self._is_full or host.is_full or not self._is_time(host):
            await self._wait(host, lane, is_begun=is_begun)
            return
        host.running += 1
        self._running += 1
        if host.interval_s:
            host.next_at = self._loop.time() + host.interval_s

    def leave(self, name: str) -> None:
        host = self._hosts[name]
        host.running -= 1
        self._running -= 1
        assert host.running >= 0, f"more turns at {name} are given back than were given out"
        host.ends.append(self._loop.time())
        if host.lanes or not host.running:
            self._offer(host)
        if self._ready:
            self._serve()

    async def rest(self, name: str, for_s: float) -> None:
        """Wait before the next attempt at a host, in the same room as those that wait for a turn. Raises Crowded."""
        host = self._host(name)
        future: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(for_s, _wake, future)
        host.resting[future] = self._loop.time() + for_s
        self._add_waiting(host)
        self._make_room()
        try:
            await future
        finally:
            timer.cancel()
            if host.resting.pop(future, None) is not None:
                self._drop_waiting(host)
            self._offer(host)

    def hold(self, name: str, for_s: float) -> None:
        """No turn is given out until then; tasks that have one keep it."""
        host = self._host(name)
        host.not_before = max(host.not_before, self._loop.time() + for_s)
        if self._hold_s_max is not None and for_s > self._hold_s_max:
            while host.lanes:
                waiter = host.lanes.pop_surplus() or host.lanes.pop_begun()
                self._refuse(host, waiter.future, "asked to wait")
        self._offer(host)

    def throttle(self, name: str, asked_s: float | None) -> None:
        """Hold a host that has refused a request because there are too many: for as long as it asked for, or for a
        pause that doubles while it says nothing."""
        host = self._host(name)
        if not asked_s:
            if self._loop.time() >= host.not_before:
                host.throttles += 1
            asked_s = min(THROTTLE_S_FIRST * 2 ** min(host.throttles - 1, 16), THROTTLE_S_MAX)
        self.hold(name, asked_s)

    def relent(self, name: str) -> None:
        """Note that a host has taken a request: the next pause that it does not name is the shortest again. Answers to
        requests that were under way when it refused another do not count."""
        host = self._hosts.get(name)
        if host is not None and host.throttles and self._loop.time() >= host.not_before:
            host.throttles = 0

    def stop(self) -> None:
        """Give out no more turns: send away all that wait, and all that come, for another worker to take."""
        self._waiting_max, self._is_stopped = 0, True
        for host in list(self._crowd):
            while host.waiting:
                self._send_away(host, STOPPED)

    def delay_s(self, name: str) -> float:
        """How long a host has asked to be left alone, from now."""
        host = self._hosts.get(name)
        return max(0.0, host.not_before - self._loop.time()) if host else 0.0

    def share(self, shares: Mapping[str, Share]) -> None:
        """From now on, the limits of these hosts; the usual ones hold for all others. Replaces what was set before."""
        self._shares = shares
        for host in list(self._hosts.values()):
            host.allow(shares.get(host.name) or self._limits.of(host.name))
            self._offer(host)

    def held_s(self) -> dict[str, float]:
        """The hosts that have asked to be left alone, and how long that is from now."""
        now = self._loop.time()
        return {host.name: host.not_before - now for host in self._hosts.values() if host.not_before > now}

    def resting_s(self) -> dict[str, float]:
        """How long it is until the next request, where their rate says so."""
        now = self._loop.time()
        return {host.name: host.next_at - now for host in self._hosts.values() if host.next_at > now}

    @property
    def waiting(self) -> int:
        """Tasks that wait here, for a turn or for their next attempt."""
        return self._waiting

    def __len__(self) -> int:
        """Hosts that are remembered."""
        return len(self._hosts)

    def close(self) -> None:
        """End the timers. Tasks that still wait are for the caller to cancel."""
        for host in self._hosts.values():
            if host.timer is not None:
                host.timer.cancel()

    # Hosts

    def _host(self, name: str) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._forget_oldest()
            share = self._shares.get(name) or self._limits.of(name)
            host = self._hosts[name] = _Host(name, share, self._loop.time())
        return host

    def _forget_oldest(self) -> None:
        for host in self._hosts.values():
            if host.is_idle:
                self._forget(host)
                return

    def _forget(self, host: _Host) -> None:
        if host.timer is not None:
            host.timer.cancel()
        self._ready.pop(host, None)
        del self._hosts[host.name]

    # The room

    async def _wait(self, host: _Host, lane: Lane, *, is_begun: bool) -> None:
        now = self._loop.time()
        if self._is_stopped:
            raise Crowded(host.name, AWAY_S_MIN, STOPPED)
        if self._hold_s_max is not None and host.not_before - now > self._hold_s_max:
            raise Crowded(host.name, host.send_away(now), "asked to wait")
        waiter = Waiter(self._loop.create_future(), lane, is_begun=is_begun)
        host.lanes.push(waiter)
        self._add_waiting(host)
        self._offer(host)
        self._make_room()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.is_queued:
                host.lanes.remove(waiter)
                self._drop_waiting(host)
                self._offer(host)
            elif not waiter.future.cancelled() and waiter.future.exception() is None:
                self.leave(host.name)  # the turn was given to a task that will not use it
            raise

    def _add_waiting(self, host: _Host) -> None:
        self._waiting += 1
        self._crowd[host] = None

    def _make_room(self) -> None:
        if self._waiting_max is not None and self._waiting > self._waiting_max:
            # Among equals the host that came last: otherwise the task that has waited longest would be sent away.
            most = max(reversed(self._crowd), key=lambda each: each.waiting)
            self._send_away(most, "has more tasks than can wait here")

    def _drop_waiting(self, host: _Host) -> None:
        self._waiting -= 1
        if not host.waiting:
            self._crowd.pop(host, None)

    def _send_away(self, host: _Host, why: str) -> None:
        """Send away a task that was not begun, if there is one: the others have made an attempt, and may have a part of
        their file, which no other worker knows of."""
        waiter = host.lanes.pop_surplus() if host.lanes else None
        if waiter is not None:
            self._refuse(host, waiter.future, why)
        elif host.resting:
            future, until = host.resting.popitem()
            self._refuse(host, future, why, until)
        else:
            self._refuse(host, host.lanes.pop_begun().future, why)

    def _refuse(self, host: _Host, future: asyncio.Future[None], why: str, until: float = 0.0) -> None:
        self._drop_waiting(host)
        now = self._loop.time()
        delay_s = AWAY_S_MIN if self._is_stopped else host.send_away(now)
        if not future.done():
            future.set_exception(Crowded(host.name, max(until - now, delay_s), why))

    # Turns

    @property
    def _is_full(self) -> bool:
        return 0 < self._places <= self._running

    def _is_time(self, host: _Host) -> bool:
        # Most hosts have no rate and have asked for nothing: then there is no need to read the clock.
        return (not host.next_at and not host.not_before) or self._loop.time() >= host.ready_at

    def _offer(self, host: _Host) -> None:
        """Note that a host may be able to take tasks, because a turn came back, or time passed, or a task came."""
        now = self._loop.time()
        if host.lanes and not host.is_full and now >= host.ready_at:
            self._ready[host] = None
            self._serve()
        if self._hosts.get(host.name) is not host:
            return
        if host.is_idle and now >= host.ready_at:
            if not host.count_away(now):
                self._forget(host)
        elif now < host.ready_at and not host.is_full and (host.lanes or not host.running):
            self._wake(host)

    def _serve(self) -> None:
        """Give out the worker's places, one for each host in turn."""
        now = self._loop.time()
        while self._ready and not self._is_full:
            host = next(iter(self._ready))
            del self._ready[host]
            if not host.lanes or host.is_full or now < host.ready_at:
                if host.lanes and not host.is_full:
                    self._wake(host)
                continue
            future = host.lanes.pop().future
            self._drop_waiting(host)
            if host.lanes:
                self._ready[host] = None
            if future.done():
                continue  # it was cancelled in this moment
            host.running += 1
            self._running += 1
            if host.interval_s:
                # A timer is always late by a little. Counted from when it should have been, the rate is kept.
                late_s = now - host.next_at
                host.next_at = (host.next_at if late_s < host.interval_s else now) + host.interval_s
            future.set_result(None)

    def _wake(self, host: _Host) -> None:
        """One timer a host, however many wait there."""
        if host.timer is not None:
            if host.wakes_at == host.ready_at:
                return
            host.timer.cancel()
        host.wakes_at = host.ready_at
        host.timer = self._loop.call_at(host.ready_at, self._on_time, host)

    def _on_time(self, host: _Host) -> None:
        host.timer = None
        if self._hosts.get(host.name) is host:
            self._offer(host)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Host:
    __slots__ = (
        "away",
        "concurrency",
        "ends",
        "interval_s",
        "known_since",
        "lanes",
        "name",
        "next_at",
        "not_before",
        "resting",
        "running",
        "throttles",
        "timer",
        "wakes_at",
    )

    def __init__(self, name: str, share: Share, now: float) -> None:
        self.name = name
        self.allow(share)
        self.running = 0
        self.lanes = Lanes()
        self.resting: dict[asyncio.Future[None], float] = {}
        """Tasks between two attempts, and until when."""
        self.away: list[float] = []
        """Heap of when the tasks that were sent away should come again."""
        self.known_since = now
        self.ends: deque[float] = deque(maxlen=PACE_TURNS)
        """When the last turns ended."""
        self.throttles = 0
        """How often in a row it has refused a request without saying for how long."""
        self.next_at = 0.0
        """When our own rate allows the next request."""
        self.not_before = 0.0
        """When the host wants to be asked again."""
        self.timer: asyncio.Handle | None = None
        self.wakes_at = 0.0
        """When it is due. The timer itself cannot be asked: uvloop's has no time if it was due at once."""

    def allow(self, share: Share) -> None:
        self.concurrency = share.concurrency
        self.interval_s = 1 / share.rate_per_s if share.rate_per_s else 0.0

    def count_away(self, now: float) -> int:
        while self.away and self.away[0] <= now:
            heapq.heappop(self.away)
        return len(self.away)

    def send_away(self, now: float) -> float:
        """Note one more task that waits elsewhere; return in how many seconds it should come again.

        That is when half of the tasks before it have had their turn, at the pace of the last turns. Half, because a
        task that comes too early costs a message, and one that comes too late leaves the host idle. For the same reason
        no estimate goes further than the host has been known: at the start nothing is known of its pace.
        """
        ahead = len(self.lanes) + len(self.resting) + self.count_away(now) + 1
        since = self.ends[0] if len(self.ends) == PACE_TURNS else self.known_since
        turns_per_s = (len(self.ends) + 1) / (now - since + AWAY_S_MIN)
        known_s = now - self.known_since
        pause_s = max(min(ahead / turns_per_s / 2, known_s, AWAY_S_MAX), AWAY_S_MIN) * random.uniform(0.75, 1.25)
        delay_s = max(0.0, self.not_before - now) + pause_s
        heapq.heappush(self.away, now + delay_s)
        return delay_s

    @property
    def waiting(self) -> int:
        return len(self.lanes) + len(self.resting)

    @property
    def is_full(self) -> bool:
        return 0 < self.concurrency <= self.running

    @property
    def ready_at(self) -> float:
        return max(self.next_at, self.not_before)

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.lanes and not self.resting
