"""The router: plans the slips of new events, and sends messages from step to step until they are complete or failed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import fnmatch
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from slipstream.bus import Bus, InvalidArgument, Message, Subscription
from slipstream.slip import elsewhere, hints
from slipstream.slip.advance import CANCELLED, Complete, Decision, Fail, Fork, Send, Wait, abort, advance, with_undoing
from slipstream.slip.branches import Branches, parent_of
from slipstream.slip.control import (
    QUEUE,
    Begin,
    Cancel,
    Deadline,
    Signal,
    TimedOut,
    decode_errand,
    errand_timer,
)
from slipstream.slip.dead_letter import dead_letter
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event, Malformed, RoutingStep, Status, StepError, encode
from slipstream.slip.itinerary import Itinerary
from slipstream.slip.ledger import End, Ledger
from slipstream.slip.metrics import metrics_in
from slipstream.slip.outbox import Outbox
from slipstream.slip.progress import Kind, Reporter, duration_ms, identity
from slipstream.slip.routes.condition import ConditionFailed
from slipstream.slip.routes.table import NoRoute, RouteTable
from slipstream.slip.routes.watch import WatchedRoutes
from slipstream.slip.rules import rules_of
from slipstream.slip.sense import why_not
from slipstream.slip.service import run
from slipstream.slip.settings import SlipSettings, load_settings, subscribe_options
from slipstream.slip.slip import ROUTER as ROUTER_STEP
from slipstream.slip.slip import (
    active,
    in_run,
    is_late,
    is_undoing,
    may_retry,
    plan,
    run_of,
    settled,
    skipped_since,
    with_slip,
    with_step,
)
from slipstream.slip.sound import receive, receive_signal
from slipstream.slip.store import Store, Timer
from slipstream.slip.timers import Timers
from slipstream.slip.topics import EGRESS, INGRESS, ROUTER, SIGNALS
from slipstream.slip.tracing import continued, span, trace_id
from slipstream.slip.tracker import Tracker
from slipstream.slip.waiting import Waiting

log = logging.getLogger(__name__)

Planner: TypeAlias = Callable[[Event, Itinerary], None] | Callable[[Event, Itinerary], Awaitable[None]]
PlannerT = TypeVar("PlannerT", bound=Callable[..., object])

GROUP = "router"
PLANNED = -1
"""The attempt under which the plan of a message is written down."""


class Router:
    """Routes by a table, and by planners for what no table can say.

    Example:
        router = Router("routes.yaml")

        @router.planner("chat.message.v1")
        def add_retrieval(event: Event, itinerary: Itinerary) -> None:
            if event.payload.get("userId") and "retrieval" not in [step.id for step in itinerary.steps]:
                itinerary.insert(RoutingStep("retrieval", Status.PENDING), before="llm-bot")
    """

    def __init__(self, routes: RouteTable | WatchedRoutes | Path | str, *, name: str = "", track: bool = True) -> None:
        """Of a file name, the file is watched. With `track` it also keeps the history that `slipstream slip` shows."""
        if not isinstance(routes, RouteTable | WatchedRoutes | Path | str):
            raise InvalidSlip(f"routes are the name of a file, or RouteTable.of(…), and not {type(routes).__name__}")
        self.names_file = isinstance(routes, Path | str)
        self.routes = WatchedRoutes(routes) if isinstance(routes, Path | str) else routes
        self.name = name
        self.track = track
        self.planners: list[tuple[str, Callable[..., object]]] = []

    @property
    def table(self) -> RouteTable:
        """As it is now."""
        return self.routes.table if isinstance(self.routes, WatchedRoutes) else self.routes

    def planner(self, event_type: str) -> Callable[[PlannerT], PlannerT]:
        """The function is asked for every event of this type (`chat.*` for several), when it is planned and each time
        it comes back from a step. It may change what lies ahead; asked again, it must not do so twice."""

        if not isinstance(event_type, str) or not event_type:
            raise InvalidSlip(
                f"which events does it plan? Write @router.planner(…) with a type, and not {event_type!r}"
            )

        def register(planner: PlannerT) -> PlannerT:
            try:
                inspect.signature(planner).bind(None, None)
            except TypeError as error:
                raise InvalidSlip(
                    f"a planner is called with event and itinerary; {planner!r} cannot be: {error}"
                ) from error
            self.planners.append((event_type, planner))
            return planner

        return register

    @contextlib.asynccontextmanager
    async def running(
        self, bus: Bus, store: Store, settings: SlipSettings | None = None
    ) -> AsyncIterator[RunningRouter]:
        """At work on this bus, until the end of the `async with`."""
        running = RunningRouter(self, bus, store, settings or load_settings({}))
        try:
            await running.start()
            yield running
        finally:
            await running.stop()

    def run(self) -> None:
        """A whole service, on the bus and the store that the environment names, until SIGTERM or Ctrl-C."""
        run(self)


class RunningRouter:
    def __init__(self, router: Router, bus: Bus, store: Store, settings: SlipSettings) -> None:
        self._router = router
        self._bus = bus
        self._store = store
        self._settings = settings
        self._ledger = Ledger(store, settings.ttl_ms)
        self._reporter = Reporter(bus, router.name)
        self._outbox = Outbox(bus)
        self._metrics = metrics_in(bus.registry)
        self._rules = rules_of(settings)
        self._waiting = Waiting(self._ledger, self._reporter, self.go_on)
        self._branches = Branches(self._ledger, self._reporter, self._outbox, self.go_on, self._undo)
        self._timers = Timers(store, QUEUE, self._run_errand, settings)
        self._tracker = Tracker(store, settings.ttl_ms) if router.track else None
        self._tasks: list[asyncio.Task[None]] = []
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        for topic, handler in ((INGRESS, self._handle), (ROUTER, self._handle), (SIGNALS, self._hear)):
            options = subscribe_options(self._settings, self._settings.max_in_flight)
            subscription = await self._bus.subscribe(topic, GROUP, handler, options)
            self._subscriptions.append(subscription)
        if self._tracker is not None:
            self._subscriptions.append(await self._tracker.start(self._bus))
        self._tasks.append(asyncio.create_task(self._timers.run()))
        routes = self._router.routes
        if isinstance(routes, WatchedRoutes):
            if self._router.names_file:
                routes.interval_s = self._settings.poll_ms / 1000
            self._metrics.routes_refused.set_function(lambda: routes.problem is not None)
            self._tasks.append(asyncio.create_task(routes.run()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        drain_s = self._bus.settings.drain_timeout_ms / 1000
        await asyncio.gather(*(subscription.close(drain_s) for subscription in self._subscriptions))

    # Messages

    async def _handle(self, message: Message) -> None:
        try:
            event = receive(message.data)
        except Malformed as error:
            await self._outbox.bury_undecoded(message, StepError("malformed", str(error), retryable=False))
            return
        if nonsense := why_not(event.envelope):
            await self._refuse(event, message, StepError("malformed", nonsense, retryable=False))
            return
        attributes = {"slip.correlation_id": event.envelope.correlation_id, "slip.type": event.type}
        traceparent = continued(message.attributes.get("traceparent", ""), event.envelope.trace_id)
        with span("route", traceparent, attributes):
            planned: Event | None = event
            if message.topic == INGRESS or not event.envelope.routing_slip:
                planned = await self._plan(event, message, traceparent)
            elif elsewhere.comes_from_elsewhere(event, message):
                planned = await elsewhere.note(event, self._ledger, self._reporter, self._settings.max_attempts)
            if planned is not None:
                await self.go_on(planned, first_time=message.attempt == 1)

    async def _hear(self, message: Message) -> None:
        try:
            signal = receive_signal(message.data)
        except Malformed as error:
            await self._outbox.bury_undecoded(message, StepError("malformed", str(error), retryable=False))
            return
        await self._waiting.hear(signal)

    async def _run_errand(self, timer: Timer) -> None:
        match decode_errand(timer.value):
            case Signal() as signal:
                await self._waiting.hear(signal)
            case Deadline() as deadline:
                await self._waiting.deadline(deadline)
                await self._branches.deadline(deadline)
            case TimedOut(correlation_id, run):
                await self._time_out(correlation_id, run)
            case Cancel(correlation_id, run, reason):
                await self._cancel(correlation_id, run, reason)
            case Begin(event) if not event.envelope.routing_slip:
                attributes = {"correlationId": event.envelope.correlation_id}
                key = event.envelope.correlation_id
                await self._bus.publish(INGRESS, encode(event), attributes, key, message_id=timer.id)
            case Begin(event):
                await self._begin(event)

    # Planning

    async def _plan(self, event: Event, message: Message, traceparent: str) -> Event | None:
        """None if there is no plan for it; it is a dead letter then."""
        now = _now()
        try:
            planned = await self._planned(event, traceparent, now)
        except NoRoute as error:
            await self._refuse(event, message, StepError("no_route", str(error), retryable=False))
            return None
        except (ConditionFailed, InvalidSlip) as error:
            await self._refuse(event, message, StepError("planning_failed", str(error), retryable=False))
            return None
        kept = await self._ledger.settle(planned, ROUTER_STEP, PLANNED)
        if (kept.type, kept.payload) != (event.type, event.payload):
            reason = "there is another message with this correlationId, which names a message and its whole itinerary"
            await self._refuse(event, message, StepError("correlation_id_reused", reason, retryable=False))
            return None
        self._metrics.slips.labels("planned").inc()
        await self._announce(kept)
        return kept

    async def _planned(self, event: Event, traceparent: str, now: dt.datetime) -> Event:
        envelope = event.envelope
        if not envelope.routing_slip:
            event = plan(event, self._steps(event), now)
            timeout = self._router.table.timeout(event.type)
            if envelope.timeout_at is None and timeout is not None:
                envelope = replace(envelope, timeout_at=now + timeout)
        if envelope.trace_id is None:
            envelope = replace(envelope, trace_id=trace_id(traceparent))
        envelope = replace(envelope, routing_slip=event.envelope.routing_slip)
        return await self._ask_planners(replace(event, envelope=envelope), now)

    def _steps(self, event: Event) -> tuple[RoutingStep, ...]:
        try:
            return self._router.table.plan(event)
        except NoRoute:
            if any(fnmatch.fnmatchcase(event.type, pattern) for pattern, _ in self._router.planners):
                return ()
            raise

    async def _ask_planners(self, event: Event, now: dt.datetime) -> Event:
        for pattern, planner in self._router.planners:
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

    async def _refuse(self, event: Event, message: Message, error: StepError) -> None:
        """It never began. Nothing is written down, so that it can be sent again when the route is there."""
        log.warning("%s is a dead letter: %s", event.envelope.correlation_id, error.message)
        self._metrics.slips.labels("dead_lettered").inc()
        letter = dead_letter(event, None, error, _now())
        await self._outbox.bury(letter, identity(message.topic, message.id, error.code))
        if error.code != "correlation_id_reused":
            # Without its slip, which may be the very thing that makes no sense.
            await self._reporter.tell("dead-lettered", with_slip(event, ()), None, _now(), error=error)

    async def _announce(self, event: Event) -> None:
        envelope = event.envelope
        steps = envelope.routing_slip
        ids = tuple(step.id for step in steps)
        began = steps[0].started_at or _now()
        told = [self._reporter.tell("planned", event, None, began, steps=ids)]
        for step in steps:
            if step.status is Status.SKIP:  # by a planner
                told.append(self._reporter.tell("skipped", event, step, began, detail=step.notes or ""))
        for future in told:
            await future
        if envelope.timeout_at is not None:
            due_ms = round(envelope.timeout_at.timestamp() * 1000)
            timer_id = _timeout_id(envelope.correlation_id, run_of(event))
            errand = TimedOut(envelope.correlation_id, run_of(event))
            await self._store.schedule(QUEUE, errand_timer(timer_id, due_ms, errand))

    async def _begin(self, event: Event) -> None:
        """A message that is run again, or a copy of one."""
        kept = await self._ledger.settle(event, ROUTER_STEP, PLANNED)
        if run_of(event):
            # Should the run before still be under way somewhere, it is over with this, and nothing of it is undone.
            superseded = End("completed", "rerun", told=True)
            correlation_id, before = event.envelope.correlation_id, run_of(event) - 1
            if (await self._ledger.claim_end(correlation_id, before, superseded)).cause == superseded.cause:
                await self._reporter.tell("dropped", in_run(event, before), None, _now(), detail="it was run again")
        copy_of = kept.envelope.routing_slip[0].attributes.get(hints.COPY_OF)
        detail = f"a copy of {copy_of}" if copy_of else ""
        ids = tuple(step.id for step in kept.envelope.routing_slip)
        await self._reporter.tell("rerun", kept, None, _now(), detail=detail, steps=ids)
        await self.go_on(kept)

    # Advancing

    async def go_on(self, event: Event, *, first_time: bool = False) -> None:
        """Returns when whatever is next for the message is safe."""
        correlation_id, run = event.envelope.correlation_id, run_of(event)
        end = None
        if not first_time or may_be_over(event):
            end = await self._ledger.end(correlation_id, run)
        if end is not None and not self._continues(event, end):
            await self._drop(event, end)
            return
        # A branch that has ended and not told so may have ended its parent by it: it goes on with that.
        is_over = end is not None or is_undoing(event.envelope.routing_slip)
        if not is_over and await self._branches.is_orphan(event):
            await self._drop(event, None)
            await self._reporter.tell("dropped", event, active(event), _now())
            return
        now = _now()
        if end is not None and end.outcome == "completed" and is_late(event, now):
            # It was complete in time, and whoever wrote that down has not delivered it.
            now = event.envelope.timeout_at - dt.timedelta.resolution if event.envelope.timeout_at else now
        try:
            changed = await self._ask_planners(event, now) if self._router.planners else event
            decision = advance(changed, now, self._rules)
        except (ConditionFailed, InvalidSlip) as error:
            changed, decision = event, self._planning_failed(event, str(error), now)
        if end is not None and end.outcome == "failed" and not end.told and not _is_end(decision, event):
            # It was written down that it has failed. What planners and conditions would say now comes too late.
            decision = self._planning_failed(event, "it could not be planned when it ended", now)
        told: list[asyncio.Future[Any]] = []
        planned_away = skipped_since(event, changed) if changed is not event else []
        for step in (*planned_away, *decision.skipped):
            told.append(self._reporter.tell("skipped", event, step, now, error=step.error, detail=step.notes or ""))
        match decision:
            case Send() | Wait() | Fork():
                try:
                    await self._hand_on(decision)
                except InvalidArgument as refusal:  # and so it would be every time
                    await self._unsendable(decision, refusal)
            case Complete():
                await self._complete(decision, event)
            case Fail():
                await self._fail(decision, event)
        for future in told:
            await future

    async def _hand_on(self, decision: Send | Wait | Fork) -> None:
        event, step = decision.event, decision.step
        match decision:
            case Send(topic=topic):
                if topic in {INGRESS, ROUTER}:
                    raise InvalidArgument(f"{topic} is the router's own: it would come back at once, and so for ever")
                message_id = identity(event.envelope.correlation_id, run_of(event), step.id, step.attempt or 0, "sent")
                await (await self._outbox.send(topic, event, message_id))
            case Wait():
                await self._waiting.begin(event, step)
            case Fork():
                await self._branches.begin(event, step)

    async def _unsendable(self, decision: Send | Wait | Fork, refusal: InvalidArgument) -> None:
        """To a topic that cannot be, or too large for the engine: the step has failed, and the message goes on so."""
        now = _now()
        error = StepError("unsendable", str(refusal), retryable=False)
        failed = settled(decision.step, Status.ERROR, now, error)
        kind: Kind = "compensation-failed" if hints.UNDOES in failed.attributes else "failed"
        await self._reporter.tell(kind, decision.event, failed, now, error=error)
        await self.go_on(with_step(decision.event, failed))

    def _continues(self, event: Event, end: End) -> bool:
        """What undoes goes on after the end; and a router that died before all was told of the end goes on with it."""
        return is_undoing(event.envelope.routing_slip) or (not end.told and end.cause == _state(event))

    def _planning_failed(self, event: Event, reason: str, now: dt.datetime) -> Decision:
        """The step at hand has failed for it: that of a message must be one of its steps."""
        step = active(event)
        if step is None:
            return Complete(event)  # nothing lies ahead that could have been planned
        if step.status is not Status.PENDING:
            if may_retry(step, self._rules.max_attempts) or step.attributes.get(hints.OPTIONAL) != "true":
                return advance(event, now, self._rules)
            return self._planning_failed(with_step(event, replace(step, status=Status.SKIP)), reason, now)
        error = StepError("planning_failed", reason, retryable=False)
        required = replace(step, attributes=step.attributes | {hints.OPTIONAL: "false"})
        return advance(with_step(event, settled(required, Status.ERROR, now, error)), now, self._rules)

    async def _drop(self, event: Event, end: End | None) -> None:
        """It comes too late: its message is over, or nobody waits for its branch. What it has done is undone, unless
        the message was completed with it."""
        self._metrics.slips.labels("late").inc()
        correlation_id = event.envelope.correlation_id
        log.info("%s came to the router after its end", correlation_id)
        if end is None or end.outcome == "failed":
            await self._undo(event if end is None else await self._branches.without_undone(event), end)

    async def _undo(self, event: Event, end: End | None = None) -> None:
        """What a message has done that is over, or a branch that nobody waits for; besides what its end undoes."""
        first, *rest = event.envelope.routing_slip
        late = replace(first, attributes=first.attributes | {hints.LATE: "true"})
        undoing = with_undoing(with_slip(event, [late, *rest]), () if end is None else end.undoes)
        if is_undoing(undoing.envelope.routing_slip):
            await self.go_on(undoing)

    # Ends

    async def _time_out(self, correlation_id: str, run: int) -> None:
        if await self._ledger.end(correlation_id, run) is None:
            event = await self._ledger.latest(correlation_id, run)
            if event is not None:
                await self.go_on(event)

    async def _cancel(self, correlation_id: str, run: int, reason: str) -> None:
        event = await self._ledger.latest(correlation_id, run)
        if event is None or is_undoing(event.envelope.routing_slip):
            return
        error = StepError(CANCELLED, reason or "somebody has ended it", retryable=False)
        decision = abort(event, _now(), error)
        for step in decision.skipped:
            await self._reporter.tell("skipped", event, step, _now(), error=step.error, detail=step.notes or "")
        if isinstance(decision, Fail):
            await self._fail(decision, event)

    async def _complete(self, decision: Complete, before: Event) -> None:
        event = decision.event
        end = await self._claim_end(before, "completed")
        if end is None:
            return
        if await self._branches.ended(event, None):
            await self._tell_end(event, end, None)
            return
        if self._has_artefact(event):
            envelope = event.envelope
            delivery = replace(event, type=EGRESS)
            message_id = identity(envelope.correlation_id, run_of(event), "end")
            try:
                await (await self._outbox.send(envelope.reply_to or EGRESS, delivery, message_id))
            except InvalidArgument as refusal:  # and so it would be every time
                await self._undeliverable(event, end, refusal)
                return
        await self._tell_end(event, end, None)

    async def _undeliverable(self, event: Event, end: End, refusal: InvalidArgument) -> None:
        """All steps are done, and what came of it is too large for the engine: it is a dead letter, and not lost."""
        correlation_id, last = event.envelope.correlation_id, event.envelope.routing_slip[-1]
        failed = Fail(event, last, StepError("unsendable", str(refusal), retryable=False))
        log.warning("%s is a dead letter: %s failed: %s", correlation_id, last.id, refusal)
        await self._outbox.bury(
            dead_letter(event, last, failed.error, _now()), identity(correlation_id, run_of(event), "end")
        )
        await self._tell_end(event, end, failed)

    async def _fail(self, decision: Fail, before: Event) -> None:
        event = decision.event
        steps = event.envelope.routing_slip
        correlation_id, run = event.envelope.correlation_id, run_of(event)
        if steps[0].attributes.get(hints.LATE) == "true":
            return
        if not is_undoing(steps):
            undoing = with_undoing(event)
            end = await self._claim_end(before, "failed", _undoes(undoing))
            if end is not None:
                # After the end is written down: a branch that ends later sees it, and undoes itself.
                undoing = with_undoing(await self._branches.with_ended(event))
            if end is not None and is_undoing(undoing.envelope.routing_slip):
                await self.go_on(undoing)
                return
        else:
            # Undoing may have taken longer than its end was kept. Without one, this is it.
            end = await self._ledger.end(correlation_id, run) or await self._claim_end(before, "failed")
        if end is None or end.told:
            return
        if not await self._branches.ended(event, decision.error):
            letter = dead_letter(event, decision.step, decision.error, _now())
            log.warning("%s is a dead letter: %s failed: %s", correlation_id, decision.step.id, decision.error.message)
            await self._outbox.bury(letter, identity(correlation_id, run, "end"))
        await self._tell_end(event, end, decision)

    async def _claim_end(self, before: Event, outcome: str, undoes: tuple[str, ...] = ()) -> End | None:
        """None if the message has ended otherwise, or everybody knows."""
        correlation_id, run = before.envelope.correlation_id, run_of(before)
        mine = End("completed" if outcome == "completed" else "failed", _state(before), undoes=undoes)
        kept = await self._ledger.claim_end(correlation_id, run, mine, before.envelope.timeout_at)
        if kept.cause != mine.cause or kept.outcome != mine.outcome:
            await self._drop(before, kept)
            return None
        return None if kept.told else kept

    async def _tell_end(self, event: Event, end: End, failed: Fail | None) -> None:
        correlation_id, run = event.envelope.correlation_id, run_of(event)
        now = _now()
        took = duration_ms(event.envelope.routing_slip[0].started_at, now)
        if failed is None:
            self._metrics.slips.labels("completed").inc()
            told = self._reporter.tell("completed", event, None, now, duration_ms=took)
        else:
            self._metrics.slips.labels("dead_lettered").inc()
            told = self._reporter.tell("dead-lettered", event, failed.step, now, duration_ms=took, error=failed.error)
        await told
        await self._ledger.end_told(correlation_id, run, end, event.envelope.timeout_at)
        if event.envelope.timeout_at is not None:
            await self._store.unschedule(QUEUE, _timeout_id(correlation_id, run))

    def _has_artefact(self, event: Event) -> bool:
        if any(step.attributes.get(hints.DELIVERED) == "true" for step in event.envelope.routing_slip):
            return False
        return isinstance(event.payload, dict) and event.payload.get(self._settings.artefact) is not None


def may_be_over(event: Event) -> bool:
    """Before it comes to its last step: by its time, or with its parent. One that is handed out for the first time need
    not be looked up otherwise; should it be the double of one that is over, its steps are all done, and its end is."""
    return event.envelope.timeout_at is not None or parent_of(event) is not None or run_of(event) > 0


def _is_end(decision: Decision, event: Event) -> bool:
    return isinstance(decision, Fail) or is_undoing(event.envelope.routing_slip)


def _state(event: Event) -> str:
    """The same for a message that comes again, and another after every step."""
    steps = event.envelope.routing_slip
    return identity(*(f"{step.id}:{step.status}:{step.attempt or 0}" for step in steps))


def _undoes(event: Event) -> tuple[str, ...]:
    attributes = [step.attributes for step in event.envelope.routing_slip]
    return tuple(each[hints.UNDOES] for each in attributes if hints.UNDOES in each)


def _timeout_id(correlation_id: str, run: int) -> str:
    return f"timeout:{correlation_id}:{run}"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
