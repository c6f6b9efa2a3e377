"""How much may be asked of which host: the limit for all, and those for hosts by name or pattern."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

LIMITS_CACHED = 10_000
"""Host names whose limit is remembered."""


class Share(msgspec.Struct, frozen=True):
    """The part of a host's capacity that may be used here. 0 is no limit, for either."""

    concurrency: int = 0
    """Requests at a time."""
    rate_per_s: float = 0.0
    """Requests per second."""


class HostLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[hosts."NAME"]`: the limits of one host, or of all whose names match a pattern such as `*.example.org`."""

    concurrency: int | None = None
    """Requests at a time; 0 for no limit, by default JOBS_HOST_CONCURRENCY."""
    rate_per_s: float | None = None
    """Requests per second; 0 for no limit, by default JOBS_HOST_RATE_PER_S."""


class HostLimits:
    """Finds the limits of a host: its own name first, then the longest pattern that matches, then the default.

    Example:
        HostLimits({"*.example.org": HostLimit(concurrency=8)}, Share(4)).of("cdn.example.org")  # Share(8, 0.0)
    """

    def __init__(self, hosts: Mapping[str, HostLimit], default: Share) -> None:
        self._default = default
        self._patterns = sorted(
            ((name.lower(), limit) for name, limit in hosts.items()),
            key=lambda each: ("*" not in each[0] and "?" not in each[0], len(each[0])),
            reverse=True,
        )
        self._found: dict[str, Share] = {}

    def of(self, name: str) -> Share:
        if not self._patterns:
            return self._default
        share = self._found.get(name)
        if share is None:
            if len(self._found) >= LIMITS_CACHED:
                self._found.clear()
            share = self._found[name] = self._find(name.lower())
        return share

    def _find(self, name: str) -> Share:
        for pattern, limit in self._patterns:
            if fnmatchcase(name, pattern):
                default = self._default
                return Share(
                    default.concurrency if limit.concurrency is None else limit.concurrency,
                    default.rate_per_s if limit.rate_per_s is None else limit.rate_per_s,
                )
        return self._default
