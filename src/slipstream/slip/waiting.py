"""Steps that wait for a person's decision, or for a word from outside."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from slipstream.slip import clock, hints
from slipstream.slip.control import QUEUE, Deadline, Signal, errand_timer
from slipstream.slip.event import Event, RoutingStep, Status, StepError, decode, encode
from slipstream.slip.kit import Kit
from slipstream.slip.ledger import Ledger
from slipstream.slip.reporter import Reporter
from slipstream.slip.slip import find, given_up, life_of, run_of, settled, with_step

log = logging.getLogger(__name__)


class Waiting:
    """The message is kept in the store while it waits, and nothing of it is on the bus."""

    def __init__(self, kit: Kit, go_on: Callable[[Event], Awaitable[None]]) -> None:
        self._ledger, self._reporter = kit.ledger, kit.reporter
        self._go_on = go_on

    async def begin(self, event: Event, step: RoutingStep) -> None:
        correlation_id = event.envelope.correlation_id
        deadline_ms = deadline_of(step)
        # Before it is looked whether a word is there: one that comes meanwhile finds the message.
        await self._ledger.hold(correlation_id, f"waiting:{step.id}", encode(event), longest_ms(event, step))
        if deadline_ms is not None:
            await schedule_deadline(self._ledger, event, step, deadline_ms)
        what = step.attributes[hints.WAIT]
        await self._reporter.tell("waiting", event, step, step.started_at or clock.now(), detail=what)
        word = await self._ledger.get(correlation_id, f"signal:{step.id}")
        if word is not None:
            await self._decide(event, step, msgspec.json.decode(word, type=Signal))

    async def hear(self, signal: Signal) -> None:
        """The first word counts. One that comes before the message is kept for it."""
        name = f"signal:{signal.step}"
        word = await self._ledger.claim(signal.correlation_id, name, msgspec.json.encode(signal))
        waiting = await self._ledger.get_held(signal.correlation_id, f"waiting:{signal.step}")
        if waiting is None:
            log.info("%s does not wait at %s yet: the word is kept", signal.correlation_id, signal.step)
            return
        event = decode(waiting)
        step = find(event, signal.step)
        assert step is not None
        await self._decide(event, step, msgspec.json.decode(word, type=Signal))

    async def deadline(self, deadline: Deadline) -> None:
        waiting = await self._ledger.get_held(deadline.correlation_id, f"waiting:{deadline.step}")
        step = None if waiting is None else find(event := decode(waiting), deadline.step)
        if step is None or run_of(event) != deadline.run:
            return
        after = passed_deadline(step, "nobody has decided in time")
        await self._settle(event, step, after, event.payload)

    async def _decide(self, event: Event, step: RoutingStep, signal: Signal) -> None:
        payload = event.payload
        if isinstance(payload, dict):
            word: dict[str, Any] = {"decision": signal.decision, "by": signal.by, "note": signal.note}
            payload = {**payload, step.id: {**word, "data": signal.data}}
        if signal.decision == "deny":
            reason = f"denied by {signal.by or 'somebody'}" + (f": {signal.note}" if signal.note else "")
            after = given_up(step, clock.now(), StepError("denied", reason))
        else:
            after = settled(step, Status.OK, clock.now())
        notes = msgspec.json.encode({"decision": signal.decision, "by": signal.by, "note": signal.note}).decode()
        await self._settle(event, step, replace(after, notes=notes), payload)

    async def _settle(self, event: Event, step: RoutingStep, after: RoutingStep, payload: Any) -> None:
        await settle(self._ledger, self._reporter, with_step(replace(event, payload=payload), after), step, self._go_on)


# Also for branches, which are waited for


def deadline_of(step: RoutingStep) -> int | None:
    text = step.attributes.get(hints.DEADLINE_MS)
    return None if text is None else int(text)


def longest_ms(event: Event, step: RoutingStep) -> int | None:
    """How long a step may wait; None if neither it nor its message says."""
    deadline_ms, timeout_at = deadline_of(step), event.envelope.timeout_at
    if deadline_ms is not None or timeout_at is None:
        return deadline_ms
    return max(0, round((timeout_at - clock.now()).total_seconds() * 1000))


async def schedule_deadline(ledger: Ledger, event: Event, step: RoutingStep, deadline_ms: int) -> None:
    """The first time counts: a message that comes again, for whatever reason, does not begin to wait anew."""
    correlation_id, run = event.envelope.correlation_id, run_of(event)
    mine = str(clock.now_ms() + deadline_ms).encode()
    due_ms = int(await ledger.claim(correlation_id, f"due:{run}:{step.id}", mine, for_ms=deadline_ms))
    errand = Deadline(correlation_id, step.id, run)
    await ledger.store.schedule(QUEUE, errand_timer(_deadline_id(event, step), due_ms, errand))


def _deadline_id(event: Event, step: RoutingStep) -> str:
    return f"deadline:{life_of(event)}:{step.id}"


def passed_deadline(step: RoutingStep, reason: str) -> RoutingStep:
    match step.attributes.get(hints.ON_DEADLINE, "fail"):
        case "skip":
            return replace(settled(step, Status.SKIP, clock.now()), notes=reason)
        case "go on":
            return replace(settled(step, Status.OK, clock.now()), notes=reason)
        case _:
            return given_up(step, clock.now(), StepError("deadline", reason))


async def settle(
    ledger: Ledger,
    reporter: Reporter,
    after: Event,
    step: RoutingStep,
    go_on: Callable[[Event], Awaitable[None]],
) -> None:
    """What the step has come to, unless it had come to something before; the message goes on with that."""
    attempt = step.attempt or 0
    kept = await ledger.settle(after, step.id, attempt)
    ended = find(kept, step.id)
    assert ended is not None
    for told in reporter.tell_outcome(kept, step, ended, ended.notes or ""):
        await told
    # First: should this process die, whoever is given the word or the deadline again must still find the message.
    await go_on(kept)
    await ledger.store.unschedule(QUEUE, _deadline_id(after, step))
    await _let_go(ledger, after, f"waiting:{step.id}")


async def _let_go(ledger: Ledger, event: Event, name: str) -> None:
    """Unless it is another run that waits there by now."""
    held = await ledger.get_held(event.envelope.correlation_id, name)
    if held is not None and run_of(decode(held)) == run_of(event):
        await ledger.let_go(event.envelope.correlation_id, name)
