"""What a store of slips is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Timer(msgspec.Struct, frozen=True):
    """Something that is due."""

    id: str
    due_ms: int
    value: bytes


class Tracked(msgspec.Struct, frozen=True, rename="camel"):
    """A slip as the list shows it."""

    slip: str
    kind: str
    """The type of its event."""
    step: str
    """Where it was last heard of, and …"""
    state: str
    """… what was heard: the kind of the newest progress."""
    begun_ms: int
    moved_ms: int
    ended: bool


class StoreUnavailable(ConnectionError):
    """The store does not answer, or cannot write. What was to be done with it is to be tried again."""


class UnusableStore(ValueError):
    """This is no store, however often it is tried. What is wrong with it, and what to do, is said."""


class StoreClosed(RuntimeError):
    """It was closed, or not opened: a mistake of whoever uses it."""


class Store(Protocol):
    """Facts, timers and the history of slips, shared by router and workers. Every write is safe when it returns.

    A fact has a record that it belongs to and a name, such as `("slip:c-123", "end")`. It is forgotten `ttl_ms` after
    it was last written; where a store forgets whole records only, when the longest-lived of the record's facts is due.
    """

    async def open(self) -> None:
        """Raises StoreUnavailable, or UnusableStore."""

    async def close(self) -> None: ...

    async def claim(self, record: str, name: str, value: bytes, *, ttl_ms: int) -> bytes:
        """Writes the fact unless it is there. Returns what is kept: the first writer's value, at every call."""

    async def put(self, record: str, name: str, value: bytes, *, ttl_ms: int) -> None:
        """Writes the fact, also over another."""

    async def get(self, record: str, name: str) -> bytes | None: ...

    async def get_two(self, record: str, first: str, second: str) -> tuple[bytes | None, bytes | None]:
        """At the price of one."""

    async def facts(self, record: str, prefix: str = "") -> dict[str, bytes]:
        """All of a record whose name starts so."""

    async def remove(self, record: str, *names: str) -> None: ...

    async def schedule(self, queue: str, timer: Timer) -> None:
        """Over another with the same id. Timers are kept until they are removed."""

    async def unschedule(self, queue: str, timer_id: str, *, due_ms: int | None = None) -> None:
        """With `due_ms`, only if it is still due then: not if somebody has scheduled it anew."""

    async def due(self, queue: str, now_ms: int, *, limit: int, lease_ms: int) -> list[Timer]:
        """Those that are due, first the longest overdue. Each is put off by `lease_ms`, so that nobody else gets it
        meanwhile, and somebody does if it is not unscheduled by then. The `due_ms` of what is returned is the time
        it was put off to: `unschedule` it with that."""

    async def track(
        self, slip: str, progress: bytes, *, at_ms: int, kind: str, step: str, state: str, ended: bool, ttl_ms: int
    ) -> None:
        """Adds to the history of a slip, once, however often it is told the same. The newest by `at_ms` says where the
        slip is; an end is the end, whatever is heard later, unless that is newer and its `state` is "rerun". `kind` is
        the type of the slip's event; "" says nothing."""

    async def history(self, slip: str) -> list[bytes]:
        """By `at_ms`."""

    async def tracked(
        self,
        *,
        ended: bool | None = None,
        end_state: str = "",
        moved_before_ms: int | None = None,
        limit: int = 100,
    ) -> list[Tracked]:
        """Return the longest unmoved first if `moved_before_ms` is given, else the newest first. With `end_state`, one
        of `ENDS`, return only slips that ended in this state, however many others have ended since."""

    async def known(self, slips: Sequence[str]) -> set[str]:
        """Return those of the slips that have a history."""

    async def purge(self, now_ms: int) -> int:
        """Forgets what is past its time, as much as can be done in a short while; says how many facts and histories."""
