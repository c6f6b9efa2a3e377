"""Sends messages from step to step, until they are complete or failed."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from typing import Any

from msgspec.structs import replace

from slipstream.bus import InvalidArgument
from slipstream.slip import clock, hints
from slipstream.slip.advance import Complete, Decision, Fail, Fork, Send, Wait, advance, with_undoing
from slipstream.slip.branches import Branches, parent_of
from slipstream.slip.ends import Ends, state_of
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event, Status, StepError
from slipstream.slip.identity import dedupe_key
from slipstream.slip.kit import Kit
from slipstream.slip.ledger import End
from slipstream.slip.planning import Planning
from slipstream.slip.routes.condition import ConditionFailed
from slipstream.slip.slip import (
    active,
    given_up,
    is_late,
    is_undoing,
    life_of,
    run_of,
    settled,
    skipped_since,
    with_slip,
    with_step,
)
from slipstream.slip.topics import INGRESS, ROUTER
from slipstream.slip.tracing import rejoined
from slipstream.slip.waiting import Waiting

log = logging.getLogger(__name__)


class Routing:
    """Nothing of it is kept in memory: whoever has a message in hand knows what to do from its slip and the store."""

    def __init__(self, kit: Kit, planning: Planning) -> None:
        self._kit = kit
        self._planning = planning
        self._ledger, self._reporter, self._outbox = kit.ledger, kit.reporter, kit.outbox
        self.waiting = Waiting(kit, self._go_on_again)
        self.branches = Branches(kit, self._go_on_again, self._undo)
        self.ends = Ends(kit, self.branches, self._go_on_again, self._drop)
        self._late = kit.metrics.slips.labels("late")

    async def go_on(self, event: Event, *, first_time: bool = False, planned_now: bool = False) -> None:
        """Returns when whatever is next for the message is safe. With `first_time` it is handed out for the first time
        as it is now."""
        end = None
        if not planned_now and (not first_time or _may_be_over(event)):
            end = await self._ledger.end(event.envelope.correlation_id, run_of(event))
            if await self._is_over(event, end):
                return
        now = clock.now()
        if end is not None and end.outcome == "completed" and is_late(event, now):
            # It was complete in time, and whoever wrote that down has not delivered it.
            now = event.envelope.timeout_at - dt.timedelta.resolution if event.envelope.timeout_at else now
        changed, decision = await self._decide(event, now)
        if end is not None and end.outcome == "failed" and not end.told and not _is_end(decision, event):
            # It was written down that it has failed. What planners and conditions would say now comes too late.
            decision = self._planning_failed(event, "it could not be planned when it ended", now)
        told: list[asyncio.Future[Any]] = []
        planned_away = skipped_since(event, changed) if changed is not event else ()
        for step in (*planned_away, *decision.skipped):
            told.append(self._reporter.tell("skipped", event, step, now, error=step.error, detail=step.notes or ""))
        match decision:
            case Send() | Wait() | Fork():
                try:
                    await self._hand_on(decision)
                except InvalidArgument as refusal:  # and so it would be every time
                    await self._unsendable(decision, refusal)
            case Complete():
                await self.ends.complete(decision, event)
            case Fail():
                await self.ends.fail(decision, event)
        for future in told:
            await future

    async def _go_on_again(self, event: Event) -> None:
        """One that has waited, for people, a timer or its branches: no span of its trace may be active."""
        envelope = event.envelope
        about = {"correlation_id": envelope.correlation_id, "type": event.type}
        with rejoined("route", envelope.trace_id, about):
            await self.go_on(event)

    async def _is_over(self, event: Event, end: End | None) -> bool:
        """It has ended, or nobody waits for it any more; all that is to be done about it is done then."""
        is_undone = is_undoing(event.envelope.routing_slip)
        # What undoes goes on after the end; and a router that died before all was told of the end goes on with it.
        if end is not None:
            if is_undone or (not end.told and end.cause == state_of(event)):
                return False
            await self._drop(event, end)
            return True
        if is_undone or not await self.branches.is_orphan(event):
            return False
        await self._drop(event, None)
        await self._reporter.tell_end("dropped", event, active(event), clock.now())
        return True

    async def _decide(self, event: Event, now: dt.datetime) -> tuple[Event, Decision]:
        """Also the event as the planners have changed it."""
        try:
            changed = await self._planning.revise(event, now)
            return changed, advance(changed, now, self._kit.rules)
        except (ConditionFailed, InvalidSlip) as error:
            return event, self._planning_failed(event, str(error), now)

    def _planning_failed(self, event: Event, reason: str, now: dt.datetime) -> Decision:
        """The step at hand has failed by it, be it optional or not: a message always fails at one of its steps."""
        step = active(event)
        if step is None:
            return Complete(event)  # nothing lies ahead that could have been planned
        if step.status is Status.PENDING:
            error = StepError("planning_failed", reason, retryable=False)
            event = with_step(event, settled(step, Status.ERROR, now, error))
        return advance(event, now, self._kit.rules)

    async def _hand_on(self, decision: Send | Wait | Fork) -> None:
        event, step = decision.event, decision.step
        match decision:
            case Send(topic=topic):
                if topic in {INGRESS, ROUTER}:
                    raise InvalidArgument(f"{topic} is the router's own: it would come back at once, and so for ever")
                message_id = f"{dedupe_key(life_of(event), step.id, step.attempt or 0)}:sent"
                log.debug("step %s: PENDING, and sent to %s", step.id, topic)
                await (await self._outbox.send(topic, event, message_id, step=step))
                self._kit.unserved.sent(topic, step.id)
            case Wait():
                await self.waiting.begin(event, step)
            case Fork():
                await self.branches.begin(event, step)

    async def _unsendable(self, decision: Send | Wait | Fork, refusal: InvalidArgument) -> None:
        """To a topic that cannot be, or too large for the engine: the step has failed, and the message goes on so."""
        failed = given_up(decision.step, clock.now(), StepError("unsendable", str(refusal)))
        for told in self._reporter.tell_outcome(decision.event, decision.step, failed):
            await told
        await self.go_on(with_step(decision.event, failed))

    async def _drop(self, event: Event, end: End | None) -> None:
        """It comes too late: its message is over, or nobody waits for its branch. What it has done is undone, unless
        the message was completed with it."""
        self._late.inc()
        log.info("%s came to the router after its end", event.envelope.correlation_id)
        if end is None or end.outcome == "failed":
            await self._undo(event if end is None else await self.branches.without_undone(event), end)

    async def _undo(self, event: Event, end: End | None = None) -> None:
        """What a message has done that is over, or a branch that nobody waits for; besides what its end undoes."""
        first, *rest = event.envelope.routing_slip
        late = replace(first, attributes=first.attributes | {hints.LATE: "true"})
        undoing = with_undoing(with_slip(event, [late, *rest]), () if end is None else end.undoes)
        if is_undoing(undoing.envelope.routing_slip):
            await self.go_on(undoing)


def _may_be_over(event: Event) -> bool:
    """Somebody may have cancelled it, or run it again, while a step was at it. It need not be looked up before a worker
    gets it, who does so himself; nor where the message ends, as whoever has ended it before is seen by that."""
    step = active(event)
    if step is not None and (hints.WAIT in step.attributes or hints.BRANCHES in step.attributes):
        return True
    return event.envelope.timeout_at is not None or run_of(event) > 0 or parent_of(event) is not None


def _is_end(decision: Decision, event: Event) -> bool:
    return isinstance(decision, Fail) or is_undoing(event.envelope.routing_slip)
