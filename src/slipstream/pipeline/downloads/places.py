"""Politeness across a cluster: which bundle may ask how much of a host, so that all together keep to its limits."""

from __future__ import annotations

from slipstream.jobs.download.limits import HostLimits, Share

FREE = Share()


class Places:
    """Those of all hosts, given out to bundles and taken back. Without a clock: what time it is, it is told.

    A host with a rate is in one bundle at a time, which has all of it: only there somebody knows when the last request
    was. Another's places are shared out among as many bundles as may run, and with fewer places than bundles it is in
    fewer of them.

    Example:
        places = Places(slots=4, concurrency=32)
        places.take("example.org")  # Share(concurrency=8): a fourth of them
    """

    def __init__(
        self, slots: int, concurrency: int = 0, rate_per_s: float = 0.0, *, limits: HostLimits | None = None
    ) -> None:
        """0 is no limit. `limits` replaces the other two."""
        self._slots = slots
        self._limits = limits or HostLimits({}, Share(concurrency, rate_per_s))
        self._taken: dict[str, list[Share]] = {}
        self._not_before: dict[str, float] = {}
        self._asked_until: dict[str, float] = {}

    def take(self, host: str) -> Share | None:
        """For one bundle; None if there is no place left."""
        limit = self._limits.of(host)
        if limit == FREE:
            return FREE
        taken = self._taken.get(host, [])
        share = self._next(limit, taken)
        if share is not None:
            self._taken[host] = [*taken, share]
        return share

    def give_back(self, host: str, share: Share) -> None:
        if share is FREE or share == FREE:
            return
        taken = self._taken[host]
        taken.remove(share)
        if not taken:
            del self._taken[host]

    def _next(self, limit: Share, taken: list[Share]) -> Share | None:
        if limit.rate_per_s:
            return None if taken else limit
        left = limit.concurrency - sum(share.concurrency for share in taken)
        bundles = max(1, self._slots - len(taken))
        return Share(-(-left // bundles)) if left > 0 else None

    # What hosts have asked for

    def hold(self, host: str, until: float) -> None:
        """It has asked to be left alone."""
        self._asked_until[host] = max(self._asked_until.get(host, 0.0), until)
        self.rest(host, until)

    def rest(self, host: str, until: float) -> None:
        """Its rate says so."""
        self._not_before[host] = max(self._not_before.get(host, 0.0), until)

    def ready_at(self, host: str) -> float:
        return self._not_before.get(host, 0.0)

    def asked_s(self, host: str, now: float) -> float:
        return max(0.0, self._asked_until.get(host, 0.0) - now)

    def forget(self, now: float) -> None:
        """What has passed."""
        for known in (self._not_before, self._asked_until):
            for host in [host for host, until in known.items() if until <= now]:
                del known[host]

    def held_s(self, hosts: set[str], now: float) -> dict[str, float]:
        return {host: self.asked_s(host, now) for host in hosts if self._asked_until.get(host, 0.0) > now}
