"""The event types that the routers at work have routes for, kept in the store for those who submit through it."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import secrets
from collections.abc import Callable

import msgspec

from slipstream.slip import clock
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.routes.problems import did_you_mean
from slipstream.slip.store import Store, StoreUnavailable

log = logging.getLogger(__name__)

RECORD = "routers"
REFRESH_S = 10.0
"""How often a router says that it is still at work."""
LIVE_MS = 35_000
"""How long an entry counts: a router that was killed leaves its entry behind."""
SHOWN_MAX = 20


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    """The types of one router."""

    at_ms: int
    types: tuple[str, ...]
    """Names, and patterns such as `chat.*`."""


class KnownTypes:
    """The entry of a router, kept up to date while the router runs.

    Example:
        known = KnownTypes(store, lambda: router.table.types, check_s=0.5)
        await known.refresh()
        refreshing = asyncio.create_task(known.run())
    """

    def __init__(self, store: Store, types: Callable[[], tuple[str, ...]], *, check_s: float) -> None:
        """`types` returns the types at the moment; they are compared with those published every `check_s` seconds."""
        self._store = store
        self._types = types
        self._check_s = check_s
        self._name = secrets.token_hex(8)
        self._published: tuple[str, ...] = ()
        self._published_ms = 0

    async def publish(self) -> None:
        """Write the entry, and remove those of routers that were killed."""
        now_ms = clock.now_ms()
        types = self._types()
        await self._store.put(RECORD, self._name, msgspec.json.encode(_Entry(now_ms, types)), ttl_ms=LIVE_MS)
        self._published, self._published_ms = types, now_ms
        dead = [name for name, entry in (await _entries(self._store)).items() if not _is_live(entry, now_ms)]
        await self._store.remove(RECORD, *dead)

    async def run(self) -> None:
        """Publish when the types change, and now and then, until cancelled."""
        while True:
            await asyncio.sleep(self._check_s)
            await self.refresh()

    async def refresh(self) -> None:
        """Publish if the entry is missing, out of date or old; a store that is away is asked again later."""
        if self._types() == self._published and clock.now_ms() < self._published_ms + REFRESH_S * 1000:
            return
        try:
            await self.publish()
        except StoreUnavailable as error:
            log.debug("the types of this router are not published: %s", error)  # what needs the store logs a warning

    async def withdraw(self) -> None:
        """Remove the entry: this router stops."""
        try:
            await self._store.remove(RECORD, self._name)
        except StoreUnavailable as error:
            log.debug("the types of this router are not withdrawn: %s", error)


async def check_type(store: Store, event_type: str) -> None:
    """Raise InvalidSlip if routers are at work and none of them has a route for events of this type."""
    now_ms = clock.now_ms()
    live = [entry for entry in (await _entries(store)).values() if _is_live(entry, now_ms)]
    types = sorted({each for entry in live for each in entry.types})
    if not live or any(fnmatch.fnmatchcase(event_type, each) for each in types):
        return
    shown = ", ".join(types[:SHOWN_MAX]) + (f" and {len(types) - SHOWN_MAX} more" if len(types) > SHOWN_MAX else "")
    raise InvalidSlip(
        f"no router has a route for events of type {event_type!r:.200}{did_you_mean(event_type, types)}; there are "
        f"routes for {shown or 'no type at all'}: correct the type, or add a route"
    )


async def _entries(store: Store) -> dict[str, _Entry]:
    return {name: msgspec.json.decode(value, type=_Entry) for name, value in (await store.facts(RECORD)).items()}


def _is_live(entry: _Entry, now_ms: int) -> bool:
    return entry.at_ms + LIVE_MS > now_ms
