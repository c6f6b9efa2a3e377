"""The plans of new messages, and what planners make of them on their way."""

from __future__ import annotations

import asyncio
import datetime as dt
import fnmatch
import inspect
import logging
from collections.abc import Callable

from msgspec.structs import replace

from slipstream.slip import clock
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event, RoutingStep, Status, StepError
from slipstream.slip.itinerary import Itinerary
from slipstream.slip.kit import Kit
from slipstream.slip.routes.condition import ConditionFailed
from slipstream.slip.routes.table import NoRoute, RouteTable
from slipstream.slip.slip import ROUTER, is_undoing, plan
from slipstream.spans import trace_id

log = logging.getLogger(__name__)

PLANNED = -1
"""The attempt under which the plan of a message is written down."""


class Unplannable(Exception):
    """There is no plan for a message: it is a dead letter, and the error says why."""

    def __init__(self, error: StepError) -> None:
        super().__init__(error.message)
        self.error = error


class Planning:
    def __init__(
        self, kit: Kit, table: Callable[[], RouteTable], planners: list[tuple[str, Callable[..., object]]]
    ) -> None:
        """`table` returns the one that is in use now."""
        self._kit = kit
        self._table = table
        self._planners = planners
        self._planned = kit.metrics.slips.labels("planned")

    async def plan(self, event: Event, traceparent: str) -> tuple[Event, bool]:
        """The event with its slip, as it was first written down, and whether that was now. Raises Unplannable."""
        try:
            planned = await self._plan(event, traceparent, clock.now())
        except NoRoute as error:
            raise Unplannable(StepError("no_route", str(error), retryable=False)) from error
        except (ConditionFailed, InvalidSlip) as error:
            raise Unplannable(StepError("planning_failed", str(error), retryable=False)) from error
        kept = await self._kit.ledger.settle(planned, ROUTER, PLANNED)
        if kept is not planned and (kept.type, kept.payload) != (event.type, event.payload):
            reason = "there is another message with this correlationId, which names a message and its whole itinerary"
            raise Unplannable(StepError("correlation_id_reused", reason, retryable=False))
        is_first = kept is planned
        if is_first:
            self._planned.inc()
        return kept, is_first

    async def _plan(self, event: Event, traceparent: str, now: dt.datetime) -> Event:
        envelope = event.envelope
        if not envelope.routing_slip:
            event = plan(event, self._steps(event), now)
            timeout = self._table().timeout(event.type)
            if envelope.timeout_at is None and timeout is not None:
                envelope = replace(envelope, timeout_at=now + timeout)
        trace = trace_id(traceparent) if envelope.trace_id is None else envelope.trace_id
        envelope = replace(envelope, trace_id=trace, routing_slip=event.envelope.routing_slip)
        return await self.revise(replace(event, envelope=envelope), now)

    def _steps(self, event: Event) -> tuple[RoutingStep, ...]:
        try:
            return self._table().plan(event)
        except NoRoute:
            if any(fnmatch.fnmatchcase(event.type, pattern) for pattern, _ in self._planners):
                return ()
            raise

    def announce(self, event: Event) -> list[asyncio.Future[None]]:
        """Safe when these are done."""
        reporter, steps = self._kit.reporter, event.envelope.routing_slip
        ids = tuple([step.id for step in steps])
        began = steps[0].started_at or clock.now()
        told = [reporter.tell("planned", event, None, began, steps=ids)]
        for step in steps:
            if step.status is Status.SKIP:  # by a planner
                told.append(reporter.tell("skipped", event, step, began, detail=step.notes or ""))
        return told

    async def revise(self, event: Event, now: dt.datetime) -> Event:
        """What the planners make of it. Raises InvalidSlip."""
        for pattern, planner in self._planners:
            if not fnmatch.fnmatchcase(event.type, pattern) or is_undoing(event.envelope.routing_slip):
                continue
            itinerary = Itinerary(event, now)
            try:
                answer = planner(event, itinerary)
                if inspect.isawaitable(answer):
                    await answer
            except InvalidSlip:
                raise
            except Exception as error:
                log.exception("the planner of %s failed on %s", pattern, event.envelope.correlation_id)
                raise InvalidSlip(f"the planner of {pattern} failed: {type(error).__name__}: {error}") from error
            event = itinerary.apply(event)
        return event
