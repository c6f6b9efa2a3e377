"""Politeness towards hosts: how many downloads at a time, how often, and not before the time a host has asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

import msgspec

HOSTS_MAX = 10_000
"""Of those that nobody uses, and that have asked to be left alone for a while. The oldest is forgotten beyond."""


class Share(msgspec.Struct, frozen=True):
    """What may be asked of a host here, where others ask it too. 0 is no limit, for either."""

    concurrency: int = 0
    rate_per_s: float = 0.0


class Hosts:
    """Gives out turns, first come first served, host by host.

    Example:
        await hosts.enter("example.org")
        try:
            ...  # at most so many are here at a time
        finally:
            hosts.leave("example.org")
        hosts.hold("example.org", 30)  # it has answered 429: nobody goes there for half a minute
    """

    def __init__(self, concurrency: int = 0, rate_per_s: float = 0.0) -> None:
        """0 is no limit, for either."""
        self._usual = Share(concurrency, rate_per_s)
        self._shares: Mapping[str, Share] = {}
        self._hosts: dict[str, _Host] = {}
        self._loop = asyncio.get_running_loop()
        self._held_until = 0.0

    @property
    def is_any_held(self) -> bool:
        """Nearly always not, and then nobody has to ask for a certain one."""
        return self._loop.time() < self._held_until

    async def enter(self, name: str) -> None:
        """Waits for a turn at a host. Who has one gives it back (`leave`)."""
        host = self._hosts.get(name) or self._host(name)
        if host.waiting or 0 < host.concurrency <= host.running or not self._is_time(host):
            await self._wait(host)
        else:
            host.running += 1
            if host.interval_s:
                host.next_at = self._loop.time() + host.interval_s

    def leave(self, name: str) -> None:
        host = self._hosts[name]
        host.running -= 1
        assert host.running >= 0, f"more turns at {name} are given back than were given out"
        if host.waiting or not host.running:
            self._admit(host)

    def hold(self, name: str, for_s: float) -> None:
        """Nobody has a turn until then; those who have one keep it."""
        host = self._host(name)
        host.not_before = max(host.not_before, self._loop.time() + for_s)
        self._held_until = max(self._held_until, host.not_before)
        self._admit(host)

    def delay_s(self, name: str) -> float:
        """How long a host is held back: nobody need wait for a turn that is hours away."""
        host = self._hosts.get(name)
        return max(0.0, host.not_before - self._loop.time()) if host else 0.0

    def share(self, shares: Mapping[str, Share]) -> None:
        """From now on, of these hosts; of all others what is usual. Replaces what was said before."""
        self._shares = shares
        for host in list(self._hosts.values()):
            host.allow(shares.get(host.name, self._usual))
            self._admit(host)

    def held_s(self) -> dict[str, float]:
        """The hosts that have asked to be left alone, and how long that is from now."""
        now = self._loop.time()
        return {host.name: host.not_before - now for host in self._hosts.values() if host.not_before > now}

    def resting_s(self) -> dict[str, float]:
        """How long it is until the next request, where their rate says so."""
        now = self._loop.time()
        return {host.name: host.next_at - now for host in self._hosts.values() if host.next_at > now}

    def __len__(self) -> int:
        """Hosts that are remembered."""
        return len(self._hosts)

    def close(self) -> None:
        """Ends the timers. Who waits is to be cancelled by whoever made them wait."""
        for host in self._hosts.values():
            if host.timer is not None:
                host.timer.cancel()

    def _host(self, name: str) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._forget_oldest()
            host = self._hosts[name] = _Host(name, self._shares.get(name, self._usual))
        return host

    def _forget_oldest(self) -> None:
        for host in self._hosts.values():
            if host.is_idle:
                self._forget(host)
                return

    def _forget(self, host: _Host) -> None:
        if host.timer is not None:
            host.timer.cancel()
        del self._hosts[host.name]

    async def _wait(self, host: _Host) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        host.waiting.append(future)
        self._admit(host)  # which sets the timer
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(host.name)  # it was given to us, and nobody took it
            else:
                host.waiting.remove(future)
                self._admit(host)
            raise

    def _is_time(self, host: _Host) -> bool:
        # Most hosts have no rate and have asked for nothing: then nobody looks at the clock.
        return (not host.next_at and not host.not_before) or self._loop.time() >= host.ready_at

    def _is_full(self, host: _Host) -> bool:
        return bool(host.concurrency) and host.running >= host.concurrency

    def _admit(self, host: _Host) -> None:
        """Whoever is next, as many as may. Called whenever that may have changed: a turn came back, or time passed."""
        now = self._loop.time()
        while host.waiting and not self._is_full(host):
            if now < host.ready_at:
                break
            future = next((future for future in host.waiting if not future.done()), None)
            if future is None:
                break  # all are cancelled, and remove themselves
            host.waiting.remove(future)
            host.running += 1
            # A timer is always late by a little. Counted from when it should have been, the rate is kept.
            late_s = now - host.next_at
            host.next_at = (host.next_at if late_s < host.interval_s else now) + host.interval_s
            future.set_result(None)
        if host.is_idle and now >= host.ready_at:
            self._forget(host)
        elif now < host.ready_at and not self._is_full(host) and (host.waiting or not host.running):
            self._wake(host)

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
            self._admit(host)


class _Host:
    __slots__ = (
        "concurrency",
        "interval_s",
        "name",
        "next_at",
        "not_before",
        "running",
        "timer",
        "waiting",
        "wakes_at",
    )

    def __init__(self, name: str, share: Share) -> None:
        self.name = name
        self.allow(share)
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.next_at = 0.0
        """Of our own rate."""
        self.not_before = 0.0
        """What the host has asked for."""
        self.timer: asyncio.Handle | None = None
        self.wakes_at = 0.0
        """When it is due. The timer itself cannot be asked: uvloop's has no time if it was due at once."""

    def allow(self, share: Share) -> None:
        self.concurrency = share.concurrency
        self.interval_s = 1 / share.rate_per_s if share.rate_per_s else 0.0

    @property
    def ready_at(self) -> float:
        return max(self.next_at, self.not_before)

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting
