"""What people look at and do with slips, wherever they sit: the command line and the console ask the same questions,
and are refused for the same reasons.

It reads the store and writes errands for the router through `control`; it draws nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from slipstream.durations import duration_text
from slipstream.slip import clock
from slipstream.slip.control import Control, Signal
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event
from slipstream.slip.ledger import Held, Ledger
from slipstream.slip.lookup import look_up
from slipstream.slip.presence import workers
from slipstream.slip.settings import SlipSettings
from slipstream.slip.standing import Surroundings
from slipstream.slip.store import Store, Tracked, open_store
from slipstream.slip.timeline import Row, Timeline, timeline
from slipstream.slip.unserved import Unserved, unserved_topics

REMOTE = ("redis://", "rediss://", "unix://")

LOOKED_AT = 10_000
"""How many slips of a kind are read from the store at most."""

WAITING = frozenset({"approval", "signal"})
"""What somebody has to say a word about."""

Kind: TypeAlias = Literal["", "under-way", "waiting", "stuck", "completed", "dead-lettered"]


class NotKnown(LookupError):
    """The store keeps nothing of this."""


class DoesNotFit(RuntimeError):
    """What was asked for comes too late, or was asked for before."""


class StoreMissing(LookupError):
    """There is no store where one was named."""


class Listed(msgspec.Struct, frozen=True):
    """A slip of a list: as the store lists it, and as it stands."""

    tracked: Tracked
    timeline: Timeline


class Page(msgspec.Struct, frozen=True):
    slips: list[Listed]
    more: bool
    types: list[str]
    """Of all of this kind, whatever else was asked."""


@contextlib.asynccontextmanager
async def existing_store(url: str) -> AsyncIterator[Store]:
    """To look into one that is not there would make it, and find it empty: the truth is that its name is wrong."""
    if not url.startswith(REMOTE):
        path = url.removeprefix("sqlite://")
        if path == ":memory:":
            raise InvalidSlip("a store in memory is inside the process that uses it: there is nothing to see from here")
        if not await asyncio.to_thread(Path(path).exists):
            raise StoreMissing(
                f"there is no store {path}: name the application's with --store or SLIP_STORE, or its data directory "
                "with SLIPSTREAM_DATA"
            )
    async with open_store(url) as store:
        yield store


class Oversight:
    """
    Example:
        async with existing_store("slipstream-data/slips.db") as store:
            page = await Oversight(store, settings).slips("stuck", limit=20)
    """

    def __init__(self, store: Store, settings: SlipSettings) -> None:
        self.store = store
        self.settings = settings
        self._control = Control(store, settings)

    # Looking

    async def timeline(self, correlation_id: str) -> Timeline:
        """Raises NotKnown."""
        found = await self.find(correlation_id)
        if found is None:
            kept = duration_text(self.settings.ttl_ms)
            raise NotKnown(
                f"nothing is kept of {correlation_id}: the correlationId or the store is another, it is older than "
                f"{kept} (SLIP_TTL_MS), or no router keeps the history (a Router does, with track=True)"
            )
        return found

    async def find(self, correlation_id: str) -> Timeline | None:
        known = await look_up(self.store, correlation_id)
        if known is None:
            return None
        held = await Ledger(self.store, ttl_ms=1).pauses()
        return timeline(known, held, dt.datetime.now(dt.UTC), await self._surroundings())

    async def _surroundings(self) -> Surroundings:
        return Surroundings(await workers(self.store), await self.unserved())

    async def unserved(self) -> dict[str, Unserved]:
        """Return the topics that messages are sent to and nothing subscribes to."""
        return await unserved_topics(self.store)

    async def newest(self, correlation_id: str) -> Event | None:
        """The message itself, as it was when it was last heard of."""
        return await Ledger(self.store, ttl_ms=1).newest(correlation_id)

    async def slips(
        self,
        kind: Kind = "",
        *,
        limit: int,
        branches: bool = False,
        search: str = "",
        of_type: str = "",
        unmoved_ms: int | None = None,
    ) -> Page:
        """The newest first; of those that are stuck, the longest unmoved. `search` is a part of a correlationId or of a
        type."""
        found: list[Listed] = []
        tracked = await self._tracked(kind, unmoved_ms)
        for each in tracked:
            if of_type and each.kind != of_type:
                continue
            if search and search not in each.slip and search not in each.kind:
                continue
            one = await self.find(each.slip)
            if one is None or (one.parent and not branches) or not _is_of(kind, one):
                continue
            if kind == "stuck" and (_waits_as_designed(one) or await self._is_left_over(one)):
                continue
            found.append(Listed(each, one))
            if len(found) > limit:
                break
        return Page(found[:limit], len(found) > limit, sorted({each.kind for each in tracked}))

    async def count_dead_letters(self) -> int:
        """Return how many slips have failed and were not run again; branches count with the slip that they are of."""
        failed = [each.slip for each in await self._tracked("dead-lettered", None)]
        parents = {parent for slip in failed if (parent := _parent_id(slip))}
        known = await self.store.known(sorted(parents))
        return sum(_parent_id(slip) not in known for slip in failed)

    async def _tracked(self, kind: Kind, unmoved_ms: int | None) -> list[Tracked]:
        match kind:
            case "":
                return await self.store.tracked(limit=LOOKED_AT)
            case "stuck":
                unmoved_ms = self.settings.stuck_after_ms if unmoved_ms is None else unmoved_ms
                before_ms = clock.now_ms() - unmoved_ms
                return await self.store.tracked(ended=False, moved_before_ms=before_ms, limit=LOOKED_AT)
            case "under-way":
                return await self.store.tracked(ended=False, limit=LOOKED_AT)
            case "waiting":
                # Those that nobody could wait for are not looked at one by one: most are at work.
                under_way = await self.store.tracked(ended=False, limit=LOOKED_AT)
                return [each for each in under_way if each.state in ("waiting", "forked")]
        return await self.store.tracked(end_state=kind, limit=LOOKED_AT)

    async def _is_left_over(self, one: Timeline) -> bool:
        """A branch of a message that is over: nobody waits for it."""
        if not one.parent:
            return False
        parent = await self.find(one.parent)
        return parent is not None and parent.state != "under way"

    # One message

    async def signal(self, signal: Signal) -> bool:
        """Whether the message waits there by now; else the word is kept for it. Raises NotKnown, InvalidSlip where
        nothing can wait, DoesNotFit where it is too late."""
        found = await self.timeline(signal.correlation_id)
        row = waiting_row(found, signal.step)
        kept = await Ledger(self.store, self.settings.ttl_ms).get(signal.correlation_id, f"signal:{signal.step}")
        if kept is not None:
            first = msgspec.json.decode(kept, type=Signal)
            by_whom = f" by {first.by}" if first.by else ""
            raise DoesNotFit(
                f"{signal.step} of {signal.correlation_id} was told {first.decision}{by_whom} before: "
                "the first word counts"
            )
        await self._control.signal(signal)
        return row.state == "waiting"

    async def rerun(self, correlation_id: str, step: str) -> Timeline:
        """How it stood before. Raises NotKnown, InvalidSlip."""
        found = await self.timeline(correlation_id)
        await self._control.rerun(correlation_id, step)
        return found

    async def cancel(self, correlation_id: str, reason: str = "") -> None:
        """Raises NotKnown, DoesNotFit."""
        found = await self.timeline(correlation_id)
        if found.state != "under way":
            raise DoesNotFit(f"{correlation_id} is over: {found.state}")
        await self._control.cancel(correlation_id, reason)

    # A step for all messages

    async def pause(self, step: str, reason: str = "", *, seconds: float | None = None) -> Held | None:
        """As it is held from now on; None where no time was given to it."""
        await self._control.pause(step, reason, seconds=seconds)
        return (await self._control.pauses()).get(step)

    async def resume(self, step: str) -> bool:
        """Whether it was paused."""
        was_paused = step in await self._control.pauses()
        await self._control.resume(step)
        return was_paused

    async def pauses(self) -> dict[str, Held]:
        return await self._control.pauses()


def _is_of(kind: Kind, one: Timeline) -> bool:
    return kind != "waiting" or one.standing.going in WAITING or _any_branch(one, lambda each: _is_of(kind, each))


def _parent_id(slip: str) -> str:
    """Return the id of the slip that this one would be a branch of: `parent/step/branch`."""
    return slip.rsplit("/", 2)[0] if slip.count("/") >= 2 else ""


def _waits_as_designed(one: Timeline) -> bool:
    """Return whether a person or a signal is awaited, here or in all branches that are left.

    A router ends such a wait at its deadline, so the slip is not stuck."""
    if one.standing.going == "branches":
        return _any_branch(one, lambda each: True) and not _any_branch(one, lambda each: not _waits_as_designed(each))
    return one.standing.going in WAITING


def _any_branch(one: Timeline, holds: Callable[[Timeline], bool]) -> bool:
    return any(holds(branch) for row in one.runs[-1].rows for branch in row.branches if branch.state == "under way")


def waiting_row(found: Timeline, step: str) -> Row:
    """Where a word goes. Raises InvalidSlip if nothing can wait there, DoesNotFit if nothing does any more."""
    correlation_id = found.correlation_id
    row = next((row for row in reversed(found.runs[-1].rows) if row.step == step), None)
    if row is None:
        inside = next((branch.correlation_id for branch, one in _inside(found) if one.step == step), None)
        if inside is not None:
            raise InvalidSlip(f"{step} is a step of a branch of {correlation_id}: name {inside} instead")
        there = ", ".join(dict.fromkeys(row.step for row in found.runs[-1].rows)) or "none"
        raise InvalidSlip(f"{correlation_id} has no step {step}; there are {there}")
    if row.kind != "wait" or row.detail == "chunks":
        raise InvalidSlip(f"{step} of {correlation_id} waits for nobody's word: it is no step with wait")
    if found.state != "under way":
        raise DoesNotFit(f"{correlation_id} is {found.state}: nothing waits there any more")
    if row.state not in ("waiting", "queued", "pending"):
        raise DoesNotFit(f"{correlation_id} has left {step}: it is {row.state}")
    return row


def _inside(found: Timeline) -> Iterator[tuple[Timeline, Row]]:
    for row in found.runs[-1].rows:
        for branch in row.branches:
            yield from ((branch, one) for one in branch.runs[-1].rows)
            yield from _inside(branch)
