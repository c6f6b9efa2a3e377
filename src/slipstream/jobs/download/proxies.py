"""Pools of proxies, from the configuration: which proxies a task may use, and in which order."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from yarl import URL

from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.failure import Code, TaskFailed

DIRECT = "direct"
"""The pool that is always there: no proxy at all."""


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    urls: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    """Other pools, for when none of these helped."""


class Pools:
    """What the configuration says about proxies.

    Example:
        pools = Pools({"eu": {"urls": ["http://proxy-1:3128"], "fallbacks": ["direct"]}})
        candidates = pools.candidates("eu", [], resource_id="a")  # ["http://proxy-1:3128", None]
        proxy = pools.pick(candidates, attempt=2)                 # None: without a proxy
    """

    def __init__(self, tables: Mapping[str, Any] | None = None) -> None:
        """Raises InvalidJobs, with the path of a cycle where there is one."""
        self._pools = {name: _load(name, table) for name, table in (tables or {}).items()}
        for name, pool in self._pools.items():
            self._check_known(name, pool)
        settled: set[str] = set()
        for name in self._pools:
            self._check_cycles(name, [], settled)

    def candidates(self, primary: str, fallbacks: Sequence[str] = (), resource_id: str = "") -> list[str | None]:
        """Every proxy that a task may use, each once, in the order in which they are tried; None is without a proxy.

        The primary pool comes first, from a place that depends on the resource, so that its proxies share the load;
        then the pools it falls back on, depth first, then those that the task itself names. A task that names none goes
        direct. Raises TaskFailed for a pool that nobody knows.
        """
        if not primary and not fallbacks:
            return [None]
        found: dict[str | None, None] = {}
        walked: set[str] = set()
        for number, name in enumerate(filter(None, (primary, *fallbacks))):
            if name != DIRECT and name not in self._pools:
                raise TaskFailed(
                    Code.HANDLER_UNKNOWN_PROXY_POOL,
                    f"there is no pool of proxies {name!r}; known are {', '.join(sorted({*self._pools, DIRECT}))}",
                )
            start = zlib.crc32(resource_id.encode()) if number == 0 else 0
            found.update(dict.fromkeys(self._walk(name, walked, start)))
        return list(found)

    @staticmethod
    def pick(candidates: Sequence[str | None], attempt: int) -> str | None:
        """That of this attempt, the first of which is 1."""
        return candidates[(attempt - 1) % len(candidates)]

    def _walk(self, name: str, walked: set[str], start: int = 0) -> Iterator[str | None]:
        if name in walked:
            return
        walked.add(name)
        if name == DIRECT:
            yield None
            return
        pool = self._pools[name]
        if pool.urls:
            start %= len(pool.urls)
            yield from pool.urls[start:]
            yield from pool.urls[:start]
        for fallback in pool.fallbacks:
            yield from self._walk(fallback, walked)

    def _check_known(self, name: str, pool: Pool) -> None:
        for fallback in pool.fallbacks:
            if fallback != DIRECT and fallback not in self._pools:
                raise InvalidJobs(f"the pool of proxies {name!r} falls back on {fallback!r}, which is not configured")

    def _check_cycles(self, name: str, path: list[str], settled: set[str]) -> None:
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise InvalidJobs(f"pools of proxies fall back on each other in a circle: {cycle}")
        if name == DIRECT or name in settled:
            return
        for fallback in self._pools[name].fallbacks:
            self._check_cycles(fallback, [*path, name], settled)
        settled.add(name)


def _load(name: str, table: Any) -> Pool:
    if name == DIRECT:
        raise InvalidJobs(f"a pool of proxies cannot be called {DIRECT!r}: that is what going without one is called")
    try:
        pool = msgspec.convert(table, Pool)
    except msgspec.ValidationError as error:
        raise InvalidJobs(f"the pool of proxies {name!r}: {error}") from error
    if not pool.urls and not pool.fallbacks:
        raise InvalidJobs(f"the pool of proxies {name!r} has neither urls nor fallbacks")
    for number, url in enumerate(pool.urls, start=1):
        if not _is_proxy(url):
            # Not the URL itself: there may be a password in it.
            raise InvalidJobs(f"the pool of proxies {name!r}: URL {number} is not such as http://proxy.example:3128")
    return pool


def _is_proxy(text: str) -> bool:
    try:
        url = URL(text)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.raw_host)
