"""The router: a service that plans the slips of new events, and sends messages from step to step."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from slipstream.bus import Bus, Message, Subscription
from slipstream.endings import end_tasks
from slipstream.handling import note, noting
from slipstream.slip import clock, elsewhere, hints
from slipstream.slip.control import QUEUE, Begin, Cancel, Deadline, Errand, Signal, TimedOut, decode_errand
from slipstream.slip.dead_letter import dead_letter
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event, Malformed, StepError, encode
from slipstream.slip.identity import identity
from slipstream.slip.incoming import receive, receive_signal
from slipstream.slip.itinerary import Itinerary
from slipstream.slip.kit import Kit
from slipstream.slip.known_types import KnownTypes
from slipstream.slip.planning import PLANNED, Planning, Unplannable
from slipstream.slip.retries import early_ms
from slipstream.slip.routes.table import RouteTable
from slipstream.slip.routes.watch import WatchedRoutes
from slipstream.slip.routing import Routing
from slipstream.slip.service import run
from slipstream.slip.settings import SlipSettings, load_settings, subscribe_options
from slipstream.slip.slip import ROUTER as ROUTER_STEP
from slipstream.slip.slip import active, run_of, with_slip
from slipstream.slip.store import Store, Timer
from slipstream.slip.timers import Timers
from slipstream.slip.topics import INGRESS, ROUTER, SIGNALS
from slipstream.slip.tracing import span
from slipstream.slip.tracker import Tracker
from slipstream.spans import continued, mark_failed

log = logging.getLogger(__name__)

Planner: TypeAlias = Callable[[Event, Itinerary], None] | Callable[[Event, Itinerary], Awaitable[None]]
PlannerT = TypeVar("PlannerT", bound=Callable[..., object])

GROUP = "router"


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
    """At work: listens, and does what is due."""

    def __init__(self, router: Router, bus: Bus, store: Store, settings: SlipSettings) -> None:
        self._router = router
        self._bus, self._settings = bus, settings
        self._kit = Kit(bus, store, settings, router.name)
        self._planning = Planning(self._kit, lambda: router.table, router.planners)
        self._routing = Routing(self._kit, self._planning)
        self._timers = Timers(store, QUEUE, self._run_errand, settings)
        self._tracker = Tracker(store, settings) if router.track else None
        self._known_types = KnownTypes(store, self._types, check_s=settings.poll_ms / 1000)
        self._tasks: list[asyncio.Task[None]] = []
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        for topic, handler in ((INGRESS, self._handle), (ROUTER, self._handle), (SIGNALS, self._hear)):
            options = subscribe_options(self._settings, self._settings.router_max_in_flight)
            subscription = await self._bus.subscribe(topic, GROUP, handler, options)
            self._subscriptions.append(subscription)
        if self._tracker is not None:
            self._subscriptions.append(await self._tracker.start(self._bus))
        self._tasks.append(asyncio.create_task(self._timers.run()))
        self._tasks.append(asyncio.create_task(self._kit.unserved.run()))
        await self._known_types.refresh()
        self._tasks.append(asyncio.create_task(self._known_types.run()))
        routes = self._router.routes
        if isinstance(routes, WatchedRoutes):
            if self._router.names_file:
                routes.interval_s = self._settings.poll_ms / 1000
            self._kit.metrics.routes_refused.set_function(lambda: routes.problem is not None)
            self._tasks.append(asyncio.create_task(routes.run()))

    async def stop(self) -> None:
        await end_tasks(*self._tasks)
        await self._known_types.withdraw()
        drain_s = self._bus.settings.drain_timeout_ms / 1000
        await asyncio.gather(*(subscription.close(drain_s) for subscription in self._subscriptions))

    def _types(self) -> tuple[str, ...]:
        return (*self._router.table.types, *(pattern for pattern, _ in self._router.planners))

    # Messages

    async def _handle(self, message: Message) -> None:
        try:
            event = receive(message.data)
        except Malformed as malformed:
            await self._take_garbled(message, malformed)
            return
        envelope, traceparent = event.envelope, message.attributes.get("traceparent", "")
        if message.correlation_id != envelope.correlation_id:
            note(correlationId=envelope.correlation_id)
        is_new = message.topic == INGRESS or not envelope.routing_slip
        if is_new:
            traceparent = continued(traceparent, envelope.trace_id)
        about = {"correlation_id": envelope.correlation_id, "type": event.type}
        with span("route", traceparent, envelope.trace_id, about) as active_span:
            told: list[asyncio.Future[None]] = []
            planned_now = False
            from_elsewhere = not is_new and elsewhere.comes_from_elsewhere(message)
            if is_new:
                try:
                    event, planned_now = await self._planning.plan(event, traceparent)
                except Unplannable as unplannable:
                    mark_failed(active_span, unplannable.error.message or unplannable.error.code)
                    await self._refuse(event, message, unplannable.error)
                    return
                told = self._planning.announce(event)
                await self._routing.ends.watch_time(event)
            elif from_elsewhere:
                try:
                    await elsewhere.check(event, message, self._kit)
                except Malformed as malformed:
                    await self._take_garbled(message, malformed)
                    return
                event = await elsewhere.note(event, self._kit)
                await self._routing.ends.watch_time(event)
                step = active(event)
                if step is not None and (left_ms := early_ms(step)):
                    # Whoever does the step need know nothing of pauses: it waits here.
                    await message.nack(left_ms / 1000, "the pause before the next attempt is not over")
                    return
            first_time = message.attempt == 1 and not from_elsewhere
            await self._routing.go_on(event, first_time=first_time, planned_now=planned_now)
            for future in told:
                await future

    async def _take_garbled(self, message: Message, malformed: Malformed) -> None:
        """Of a message that is under way, only its step has failed by that; what came is a dead letter in any case."""
        event = malformed.event
        known = None
        if message.topic == ROUTER:
            correlation_id = message.correlation_id or message.key if event is None else event.envelope.correlation_id
            known = await self._kit.ledger.newest(correlation_id) if correlation_id else None
        error = StepError("malformed", str(malformed), retryable=False)
        if event is not None and known is None:
            await self._refuse(event, message, error)
            return
        await self._kit.outbox.bury_undecoded(message, error)
        if known is not None:
            await self._routing.go_on(await elsewhere.garbled(known, message, malformed, self._kit))

    async def _refuse(self, event: Event, message: Message, error: StepError) -> None:
        """It never began. Nothing is written down, so that it can be sent again when the route is there."""
        log.warning("%s is a dead letter: %s", event.envelope.correlation_id, error.message)
        self._kit.metrics.slips.labels("dead_lettered").inc()
        letter = dead_letter(event, None, error, clock.now())
        refusal = identity(message.topic, message.id, error.code)
        await self._kit.outbox.bury(letter, refusal)
        if error.code != "correlation_id_reused":
            # Without its slip, which may be the very thing that makes no sense; and by a name of its own: sent again,
            # it may come to its end, which is to be told as well.
            bare, now = with_slip(event, ()), clock.now()
            await self._kit.reporter.tell_end("dead-lettered", bare, None, now, error=error, name=refusal)

    async def _hear(self, message: Message) -> None:
        try:
            signal = receive_signal(message.data)
        except Malformed as error:
            await self._kit.outbox.bury_undecoded(message, StepError("malformed", str(error), retryable=False))
            return
        note(correlationId=signal.correlation_id)
        await self._routing.waiting.hear(signal)

    # What is due

    async def _run_errand(self, timer: Timer) -> None:
        errand = decode_errand(timer.value)
        about = errand.event.envelope if isinstance(errand, Begin) else errand
        with noting(correlationId=about.correlation_id):
            await self._run(errand, timer)

    async def _run(self, errand: Errand, timer: Timer) -> None:
        routing = self._routing
        match errand:
            case Signal() as signal:
                await routing.waiting.hear(signal)
            case Deadline() as deadline:
                await routing.waiting.deadline(deadline)
                await routing.branches.deadline(deadline)
            case TimedOut(correlation_id, run):
                await routing.ends.time_out(correlation_id, run)
            case Cancel(correlation_id, run, reason):
                await routing.ends.cancel(correlation_id, run, reason)
            case Begin(event) if not event.envelope.routing_slip:
                attributes = {"correlationId": event.envelope.correlation_id}
                key = event.envelope.correlation_id
                await self._bus.publish(INGRESS, encode(event), attributes, key, message_id=timer.id)
            case Begin(event):
                await self._begin(event)

    async def _begin(self, event: Event) -> None:
        """A message that is run again, or a copy of one."""
        kept = await self._kit.ledger.settle(event, ROUTER_STEP, PLANNED)
        if run_of(event):
            await self._routing.ends.supersede(event)
        copy_of = kept.envelope.routing_slip[0].attributes.get(hints.COPY_OF)
        detail = f"a copy of {copy_of}" if copy_of else ""
        ids = tuple(step.id for step in kept.envelope.routing_slip)
        await self._kit.reporter.tell("rerun", kept, None, clock.now(), detail=detail, steps=ids)
        await self._routing.go_on(kept)
