"""How messages end: each once, whoever comes to it and however often."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec.structs import replace

from slipstream.bus import InvalidArgument
from slipstream.slip import clock, hints
from slipstream.slip.advance import CANCELLED, Complete, Fail, abort, with_undoing
from slipstream.slip.branches import Branches
from slipstream.slip.control import QUEUE, TimedOut, errand_timer
from slipstream.slip.dead_letter import dead_letter
from slipstream.slip.event import Event, StepError, decode
from slipstream.slip.identity import end_id
from slipstream.slip.kit import Kit
from slipstream.slip.ledger import End
from slipstream.slip.progress import duration_ms
from slipstream.slip.slip import in_run, is_undoing, life_of, run_of
from slipstream.slip.topics import EGRESS
from slipstream.slip.tracing import span_within

log = logging.getLogger(__name__)


class Ends:
    """An end is written down first, with the state of the slip that led to it, then told. A router that dies in between
    leaves it to whoever gets the message in that state again; one that comes in another is too late."""

    def __init__(
        self,
        kit: Kit,
        branches: Branches,
        go_on: Callable[[Event], Awaitable[None]],
        drop: Callable[[Event, End | None], Awaitable[None]],
    ) -> None:
        self._kit = kit
        self._ledger, self._reporter, self._outbox = kit.ledger, kit.reporter, kit.outbox
        self._branches = branches
        self._go_on = go_on
        self._drop = drop
        self._completed = kit.metrics.slips.labels("completed")
        self._dead_lettered = kit.metrics.slips.labels("dead_lettered")

    async def complete(self, decision: Complete, before: Event) -> None:
        event = decision.event
        end = await self._claim(before, "completed")
        if end is None:
            return
        if not await self._branches.ended(event, None) and self._has_artefact(event):
            try:
                await self._deliver(event)
            except InvalidArgument as refusal:  # and so it would be every time
                await self._undeliverable(event, refusal)
                return
        await self._tell(event, None)

    async def _deliver(self, event: Event) -> None:
        envelope = event.envelope
        topic = envelope.reply_to or EGRESS
        about = {"correlation_id": envelope.correlation_id, "topic": topic}
        with span_within("deliver", envelope.trace_id, "producer", about):
            await (await self._outbox.send(topic, replace(event, type=EGRESS), end_id(life_of(event))))

    async def _undeliverable(self, event: Event, refusal: InvalidArgument) -> None:
        """All steps are done, and what came of it is too large for the engine: it is a dead letter, and not lost."""
        error = StepError("unsendable", str(refusal), retryable=False)
        failed = Fail(event, event.envelope.routing_slip[-1], error)
        await self._bury(failed)
        await self._tell(event, failed)

    async def fail(self, decision: Fail, before: Event) -> None:
        event = decision.event
        steps = event.envelope.routing_slip
        if steps[0].attributes.get(hints.LATE) == "true":
            return
        if not is_undoing(steps):
            end = await self._claim(before, "failed", _undoes(with_undoing(event)))
            if end is not None:
                # After the end is written down: a branch that ends later sees it, and undoes itself.
                undoing = with_undoing(await self._branches.with_ended(event))
                if is_undoing(undoing.envelope.routing_slip):
                    await self._go_on(await self._ledger.begin_undoing(undoing))
                    return
        else:
            # Undoing may have taken longer than its end was kept. Without one, this is it.
            end = await self._ledger.end(event.envelope.correlation_id, run_of(event))
            end = end or await self._claim(before, "failed")
        if end is None or end.told:
            return
        if not await self._branches.ended(event, decision.error):
            await self._bury(decision)
        await self._tell(event, decision)

    async def _bury(self, failed: Fail) -> None:
        event, step, error = failed.event, failed.step, failed.error
        correlation_id = event.envelope.correlation_id
        log.warning("%s is a dead letter: %s failed: %s", correlation_id, step.id, error.message)
        letter = dead_letter(event, step, error, clock.now())
        await self._outbox.bury(letter, end_id(life_of(event)))

    async def _claim(
        self, before: Event, outcome: Literal["completed", "failed"], undoes: tuple[str, ...] = ()
    ) -> End | None:
        """None if the message has ended otherwise, or everybody knows."""
        mine = End(outcome, state_of(before), undoes=undoes)
        envelope = before.envelope
        kept = await self._ledger.claim_end(envelope.correlation_id, run_of(before), mine, envelope.timeout_at)
        if kept.cause != mine.cause or kept.outcome != mine.outcome:
            await self._drop(before, kept)
            return None
        return None if kept.told else kept

    async def _tell(self, event: Event, failed: Fail | None) -> None:
        envelope, run, now = event.envelope, run_of(event), clock.now()
        took = duration_ms(envelope.routing_slip[0].started_at, now)
        if failed is None:
            self._completed.inc()
            log.debug("completed, at %s", envelope.routing_slip[-1].id)
            await self._reporter.tell_end("completed", event, None, now, duration_ms=took)
        else:
            self._dead_lettered.inc()
            step, error = failed.step, failed.error
            await self._reporter.tell_end("dead-lettered", event, step, now, duration_ms=took, error=error)
        await self._ledger.end_told(envelope.correlation_id, run, envelope.timeout_at)
        if envelope.timeout_at is not None:
            await self._kit.store.unschedule(QUEUE, _timeout_id(envelope.correlation_id, run))

    def _has_artefact(self, event: Event) -> bool:
        for step in event.envelope.routing_slip:
            if step.attributes and step.attributes.get(hints.DELIVERED) == "true":
                return False
        return isinstance(event.payload, dict) and event.payload.get(self._kit.settings.artefact) is not None

    # Ends that nobody at work has come to

    async def watch_time(self, event: Event) -> None:
        """It ends when its time is over, wherever it is then."""
        timeout_at = event.envelope.timeout_at
        if timeout_at is not None:
            correlation_id, run = event.envelope.correlation_id, run_of(event)
            due_ms, errand = round(timeout_at.timestamp() * 1000), TimedOut(correlation_id, run)
            timer = errand_timer(_timeout_id(correlation_id, run), due_ms, errand)
            await self._kit.store.schedule(QUEUE, timer)

    async def time_out(self, correlation_id: str, run: int) -> None:
        event = await self._to_end(correlation_id, run)
        if event is not None:
            await self._go_on(event)

    async def cancel(self, correlation_id: str, run: int, reason: str) -> None:
        event = await self._to_end(correlation_id, run)
        if event is None or is_undoing(event.envelope.routing_slip):
            return
        now = clock.now()
        decision = abort(event, now, StepError(CANCELLED, reason or "somebody has ended it", retryable=False))
        for step in decision.skipped:
            await self._reporter.tell("skipped", event, step, now, error=step.error, detail=step.notes or "")
        if isinstance(decision, Fail):
            await self.fail(decision, event)

    async def _to_end(self, correlation_id: str, run: int) -> Event | None:
        """Where the message is; None if it is over. It is written down which state that is: should the router die when
        the end is written and not told, only the errand that comes again can tell it, and the message may have moved on
        since. An end that came by a message is told by whoever gets that again."""
        end = await self._ledger.end(correlation_id, run)
        name = f"ending:{run}"
        if end is None:
            event = await self._ledger.latest(correlation_id, run)
            if event is not None:
                await self._ledger.put(correlation_id, name, state_of(event).encode())
            return event
        if end.told or await self._ledger.get(correlation_id, name) != end.cause.encode():
            return None
        of_run = [decode(each.event) for each in await self._ledger.outcomes(correlation_id) if each.run == run]
        return next((event for event in of_run if state_of(event) == end.cause), None)

    async def supersede(self, event: Event) -> None:
        """By a run of the same message. Should the run before still be under way somewhere, it is over with this, and
        nothing of it is undone."""
        mine = End("completed", "rerun")
        correlation_id, before = event.envelope.correlation_id, run_of(event) - 1
        if (await self._ledger.claim_end(correlation_id, before, mine)).cause == mine.cause:
            run_before = in_run(event, before)
            await self._reporter.tell_end("dropped", run_before, None, clock.now(), detail="it was run again")
            await self._ledger.end_told(correlation_id, before)


def state_of(event: Event) -> str:
    """The same for a message that comes again, and another after every step."""
    return "\n".join([f"{step.id} {step.attempt or 0} " + step.status for step in event.envelope.routing_slip])


def _undoes(event: Event) -> tuple[str, ...]:
    attributes = [step.attributes for step in event.envelope.routing_slip]
    return tuple(each[hints.UNDOES] for each in attributes if hints.UNDOES in each)


def _timeout_id(correlation_id: str, run: int) -> str:
    return f"timeout:{correlation_id}:{run}"
