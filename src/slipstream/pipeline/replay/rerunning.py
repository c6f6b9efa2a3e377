"""Runs slips again through their store, each once.

What makes it once is the number of the run. Whoever asks for a rerun of run 0 asks for run 1; asked twice it is the
same errand, and when there is a run 1 there is nothing to ask for. So who was killed may begin a little before where it
was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.replay.plan import Reached
from slipstream.pipeline.replay.sending import slices
from slipstream.slip.control import Control
from slipstream.slip.dead_letter import decode_dead_letter, event_of
from slipstream.slip.errors import InvalidSlip, NothingKept, RunAgain
from slipstream.slip.event import Malformed
from slipstream.slip.ledger import Ledger
from slipstream.slip.slip import run_of

if TYPE_CHECKING:
    from slipstream.pipeline.replay.folder import Replay
    from slipstream.slip.settings import SlipSettings
    from slipstream.slip.store import Store

NOTE_ROWS = 100
"""So many are done between two notes of how far it is. They are asked for again by who comes after one that was killed,
which changes nothing."""
BYTES_MAX = 8 << 20
EXAMPLES_MAX = 5

RERUN, RUN_AGAIN, GONE, REFUSED = "rerun", "run_again", "gone", "refused"
"""What became of a run: it is run again by us, or by somebody else since; nothing is kept of it; or it cannot be."""


class Refusal(msgspec.Struct, frozen=True):
    correlation_id: str
    reason: str


class Rerunner:
    def __init__(self, store: Store, settings: SlipSettings, replay: Replay, step: str, rate: float | None) -> None:
        self._control = Control(store, settings)
        self._ledger = Ledger(store, settings.ttl_ms)
        self._replay = replay
        self._step = step
        self._rate = rate
        self._stop = asyncio.Event()
        self.refusals: list[Refusal] = []
        """The first few."""

    async def run(self, told: Callable[[int], None] = lambda _: None) -> Reached:
        """To the end, or until `stop`."""
        begun = self._replay.reached
        at, counts = begun.rows, Counter(begun.counts)
        loop = asyncio.get_running_loop()
        since = loop.time()
        told(at)
        for _, rows in slices(self._replay, at, NOTE_ROWS, BYTES_MAX):
            for row in rows.to_pylist():
                due = since + (at - begun.rows) / self._rate if self._rate is not None else 0.0
                if not await self._is_time(due - loop.time()):
                    break
                counts[await self._again(**row)] += 1
                at += 1
                told(at)
            self._replay.reach(Reached(at, dict(counts)))
            if self._stop.is_set():
                break
        return Reached(at, dict(counts))

    def stop(self) -> None:
        """From this loop: after the run at hand."""
        self._stop.set()

    async def _is_time(self, wait_s: float) -> bool:
        """False: it is to stop."""
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), wait_s)
        return not self._stop.is_set()

    async def _again(self, correlation_id: str, run: int, letter: bytes | None) -> str:
        mark, mine = f"replayed:{run}", self._replay.plan.id.encode()
        try:
            # First, so that who comes after us knows ours from somebody else's.
            kept = await self._ledger.claim(correlation_id, mark, mine)
            await self._ask(correlation_id, run, letter)
        except RunAgain:
            return RERUN if kept == mine else RUN_AGAIN
        except NothingKept:
            return GONE
        except (InvalidSlip, Malformed) as error:
            if len(self.refusals) < EXAMPLES_MAX:
                self.refusals.append(Refusal(correlation_id, str(error)))
            return REFUSED
        return RERUN

    async def _ask(self, correlation_id: str, run: int, letter: bytes | None) -> None:
        try:
            await self._control.rerun(correlation_id, self._step, after_run=run)
        except NothingKept:
            if letter is None:
                raise
            dead = decode_dead_letter(letter)
            event = event_of(dead)
            if event is None or run_of(event) != run:
                raise
            await self._control.rerun_letter(dead, self._step, after_run=run)
