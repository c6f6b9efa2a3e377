"""What router and workers know of slips together: facts of the store, with their types.

An attempt at a step has one outcome, and a message one end: the first that was written down. Whoever comes second, be
it because a process died after it wrote and before it told, follows what is written.
"""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Literal

import msgspec
from msgspec.structs import replace

from slipstream.slip import clock
from slipstream.slip.event import Event, Status, decode, encode
from slipstream.slip.identity import dedupe_key
from slipstream.slip.slip import is_undoing, life_of, run_of
from slipstream.slip.store import Store

OUTCOME = "outcome:"
PAUSES = "pauses"


class Outcome(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The event as it was after an attempt at a step; with attempt -1, after its planning."""

    at_ms: int
    run: int
    step: str
    attempt: int
    event: bytes


class End(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How a message ended. `cause` names the state of the slip that led to it."""

    outcome: Literal["completed", "failed"]
    cause: str
    undoes: tuple[str, ...] = ()
    """The steps that are undone because of it. What comes too late undoes only what these are not: else both would be
    at the same, each taking the other's outcome for its own."""
    claim: str = ""
    """Of whoever has written it down: another of his, and anybody else's, is another."""
    told: bool = False
    """Whether all have been told. It is a fact of its own: facts that are only added can be written many at once."""


class Held(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A step that nobody works at for now."""

    reason: str = ""
    until_ms: int | None = None
    """None: until somebody resumes it."""


_outcomes = msgspec.msgpack.Decoder(Outcome)
_ends = msgspec.msgpack.Decoder(End)
_holds = msgspec.json.Decoder(Held)
_pack = msgspec.msgpack.Encoder().encode


class Ledger:
    def __init__(self, store: Store, ttl_ms: int) -> None:
        self.store = store
        self.ttl_ms = ttl_ms
        self._name = secrets.token_hex(8)
        self._claims = 0

    # Outcomes

    async def outcome(self, event: Event, step_id: str, attempt: int) -> Event | None:
        """The event after this attempt, if it has been made."""
        name = OUTCOME + dedupe_key(life_of(event), step_id, attempt)
        kept = await self.store.get(record(event.envelope.correlation_id), name)
        return None if kept is None else decode(_outcomes.decode(kept).event)

    async def outcome_and_end(self, event: Event, step_id: str, attempt: int) -> tuple[Event | None, bool]:
        """The same, and whether the message is over."""
        name = OUTCOME + dedupe_key(life_of(event), step_id, attempt)
        correlation_id = event.envelope.correlation_id
        kept, end = await self.store.get_two(record(correlation_id), name, f"end:{run_of(event)}")
        return None if kept is None else decode(_outcomes.decode(kept).event), end is not None

    async def settle(self, event: Event, step_id: str, attempt: int, data: bytes | None = None) -> Event:
        """The event after this attempt: as it was first written, which need not be this one. `data` is the event, if it
        is encoded."""
        correlation_id = event.envelope.correlation_id
        outcome = Outcome(clock.now_ms(), run_of(event), step_id, attempt, data or encode(event))
        name = OUTCOME + dedupe_key(life_of(event), step_id, attempt)
        left_ms = _left_ms(event.envelope.timeout_at, outcome.at_ms)
        mine = _pack(outcome)
        kept = await self.store.claim(record(correlation_id), name, mine, ttl_ms=self.ttl_ms + left_ms)
        return event if kept == mine else decode(_outcomes.decode(kept).event)

    async def outcomes(self, correlation_id: str) -> list[Outcome]:
        """In the order in which they were written."""
        facts = await self.store.facts(record(correlation_id), OUTCOME)
        return sorted((_outcomes.decode(value) for value in facts.values()), key=lambda outcome: outcome.at_ms)

    async def latest(self, correlation_id: str, run: int) -> Event | None:
        """Return the newest event of a run."""
        return (await self.latest_of_runs(correlation_id)).get(run)

    async def latest_of_runs(self, correlation_id: str) -> dict[int, Event]:
        """Return the newest event of each run."""
        found: dict[int, Event] = {}
        for outcome in await self.outcomes(correlation_id):
            event, before = decode(outcome.event), found.get(outcome.run)
            if before is None or _how_far(event) >= _how_far(before):
                found[outcome.run] = event
        return found

    async def newest(self, correlation_id: str) -> Event | None:
        """The same of whichever run is the newest, also where it is undone and nothing of that has come back yet."""
        runs = [outcome.run for outcome in await self.outcomes(correlation_id)]
        if not runs:
            return None
        latest = await self.latest(correlation_id, max(runs))
        undoing = await self.store.get(record(correlation_id), f"undoing:{max(runs)}")
        if undoing is None or (latest is not None and is_undoing(latest.envelope.routing_slip)):
            return latest
        return decode(undoing)

    async def begin_undoing(self, event: Event) -> Event:
        """The slip by which a message is undone, as it was first written."""
        mine = encode(event)
        ttl_ms = self.ttl_ms + _left_ms(event.envelope.timeout_at, clock.now_ms())
        name = f"undoing:{run_of(event)}"
        kept = await self.store.claim(record(event.envelope.correlation_id), name, mine, ttl_ms=ttl_ms)
        return event if kept == mine else decode(kept)

    # Ends

    async def end(self, correlation_id: str, run: int) -> End | None:
        kept = await self.store.get(record(correlation_id), f"end:{run}")
        return None if kept is None else await self._with_told(correlation_id, run, _ends.decode(kept))

    async def claim_end(self, correlation_id: str, run: int, end: End, timeout_at: dt.datetime | None = None) -> End:
        """It is kept for as long as the outcomes: else the time-out would find those, and no end."""
        ttl_ms = self.ttl_ms + _left_ms(timeout_at, clock.now_ms())
        self._claims += 1
        mine = _pack(replace(end, claim=f"{self._name}:{self._claims}"))
        kept = await self.store.claim(record(correlation_id), f"end:{run}", mine, ttl_ms=ttl_ms)
        return end if kept == mine else await self._with_told(correlation_id, run, _ends.decode(kept))

    async def end_told(self, correlation_id: str, run: int, timeout_at: dt.datetime | None = None) -> None:
        ttl_ms = self.ttl_ms + _left_ms(timeout_at, clock.now_ms())
        await self.store.claim(record(correlation_id), f"told:{run}", b"", ttl_ms=ttl_ms)

    async def _with_told(self, correlation_id: str, run: int, end: End) -> End:
        told = await self.store.get(record(correlation_id), f"told:{run}")
        return replace(end, told=told is not None)

    # Whatever a step has to remember

    async def get(self, correlation_id: str, name: str) -> bytes | None:
        return await self.store.get(record(correlation_id), name)

    async def put(self, correlation_id: str, name: str, value: bytes, *, for_ms: int = 0) -> None:
        """For as long as a step may wait, and the usual time after it."""
        await self.store.put(record(correlation_id), name, value, ttl_ms=self.ttl_ms + for_ms)

    async def claim(self, correlation_id: str, name: str, value: bytes, *, for_ms: int = 0) -> bytes:
        return await self.store.claim(record(correlation_id), name, value, ttl_ms=self.ttl_ms + for_ms)

    async def facts(self, correlation_id: str, prefix: str) -> dict[str, bytes]:
        """By what follows the prefix."""
        facts = await self.store.facts(record(correlation_id), prefix)
        return {name.removeprefix(prefix): value for name, value in facts.items()}

    async def remove(self, correlation_id: str, *names: str) -> None:
        await self.store.remove(record(correlation_id), *names)

    # What is kept until something comes that may take any time. It has a record of its own, which is gone when the last
    # of it is removed: a store may keep all of a record for as long as any of it.

    async def hold(self, correlation_id: str, name: str, value: bytes, for_ms: int | None) -> None:
        """For so long, and the usual time after it; None if nobody can say."""
        ttl_ms = self.ttl_ms + (FOR_EVER_MS // 2 if for_ms is None else for_ms)
        await self.store.put(_held(correlation_id), name, value, ttl_ms=ttl_ms)

    async def held(self, correlation_id: str, prefix: str) -> dict[str, bytes]:
        """By what follows the prefix."""
        facts = await self.store.facts(_held(correlation_id), prefix)
        return {name.removeprefix(prefix): value for name, value in facts.items()}

    async def get_held(self, correlation_id: str, name: str) -> bytes | None:
        return await self.store.get(_held(correlation_id), name)

    async def let_go(self, correlation_id: str, *names: str) -> None:
        await self.store.remove(_held(correlation_id), *names)

    # Pauses

    async def pause(self, step_id: str, held: Held) -> None:
        await self.store.put(PAUSES, step_id, msgspec.json.encode(held), ttl_ms=FOR_EVER_MS)

    async def resume(self, step_id: str) -> None:
        await self.store.remove(PAUSES, step_id)

    async def pauses(self) -> dict[str, Held]:
        """By step; those whose time is over are left out."""
        facts = await self.store.facts(PAUSES)
        held = {step_id: _holds.decode(value) for step_id, value in facts.items()}
        now_ms = clock.now_ms()
        return {step_id: hold for step_id, hold in held.items() if hold.until_ms is None or hold.until_ms > now_ms}


def _how_far(event: Event) -> tuple[int, int]:
    """Order the events of a run by the slip and not by the clock: several may be written in one millisecond, and
    machines do not agree on the time."""
    steps = event.envelope.routing_slip
    done = sum(step.status is not Status.PENDING for step in steps)
    return done, sum(step.attempt or 0 for step in steps)


FOR_EVER_MS = 100 * 365 * 24 * 3600 * 1000


def _held(correlation_id: str) -> str:
    return f"held:{correlation_id}"


def record(correlation_id: str) -> str:
    return f"slip:{correlation_id}"


def _left_ms(timeout_at: dt.datetime | None, now_ms: int) -> int:
    return 0 if timeout_at is None else max(0, round(timeout_at.timestamp() * 1000) - now_ms)
