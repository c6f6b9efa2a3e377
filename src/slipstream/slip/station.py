"""A step at work: takes a message, does the work, writes down how it ended, and sends the message on."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from slipstream import handlers
from slipstream.bus import InvalidArgument, Message, Reject, Retry, Subscription
from slipstream.endings import end_tasks
from slipstream.handling import NOTED
from slipstream.slip import clock, hints
from slipstream.slip.advance import Send, advance
from slipstream.slip.errors import Pause, Skip, StepFailed
from slipstream.slip.event import Event, Malformed, RoutingStep, Status, StepError, encode
from slipstream.slip.identity import dedupe_key
from slipstream.slip.incoming import receive
from slipstream.slip.kit import Kit
from slipstream.slip.ledger import Held
from slipstream.slip.progress import duration_ms
from slipstream.slip.retries import Retries, early_ms
from slipstream.slip.routes.condition import ConditionFailed
from slipstream.slip.settings import subscribe_options
from slipstream.slip.slip import (
    active,
    find,
    given_up,
    is_late,
    life_of,
    may_retry,
    next_attempt,
    run_of,
    settled,
    topic_of,
    with_step,
)
from slipstream.slip.topics import INGRESS, ROUTER
from slipstream.slip.tracing import span
from slipstream.slip.work import Work
from slipstream.spans import mark_failed
from slipstream.threads import DaemonThreads

log = logging.getLogger(__name__)

PAUSED_RETRY_S = 1.0


class Station(msgspec.Struct, frozen=True, kw_only=True):
    """A step as a worker does it: which, with what, how."""

    step_id: str
    handler: Callable[..., Any] | None = None
    """None where the work is not done by a function, but by pieces that come."""
    topic: str
    group: str
    undoes: bool = False
    timeout_s: float | None = None
    max_in_flight: int | None = None
    retries: Retries | None = None


class RunningStation:
    """A step at work."""

    def __init__(self, station: Station, kit: Kit) -> None:
        settings = kit.settings
        self._station = station
        self._bus = kit.bus
        self._settings = settings
        self._ledger, self._reporter, self._outbox, self._metrics = kit.ledger, kit.reporter, kit.outbox, kit.metrics
        self._rules = kit.rules
        self._unserved = kit.unserved
        self._max_in_flight = station.max_in_flight or settings.max_in_flight
        self._retries = station.retries or Retries(settings.retry_base_ms, settings.retry_longest_ms)
        self._handler = station.handler or _no_function
        self._is_async = station.handler is None or handlers.is_async(station.handler)
        self._threads = DaemonThreads(0 if self._is_async else self._max_in_flight, f"slipstream-{station.step_id}")
        self._subscription: Subscription | None = None
        self._watch: asyncio.Task[None] | None = None
        self._attempts = self._metrics.attempts.labels(station.step_id)
        self._durations = self._metrics.duration_ms.labels(station.step_id)

    async def start(self) -> None:
        await self._follow_pauses()
        self._watch = asyncio.create_task(self._watch_pauses())

    async def stop(self) -> None:
        if self._watch is not None:
            await end_tasks(self._watch)
        await self._leave()
        self._threads.close()

    # Pauses: a step that is paused is not subscribed to, and its messages wait where they are

    async def _watch_pauses(self) -> None:
        told = False
        while True:
            await asyncio.sleep(self._settings.poll_ms / 1000)
            try:
                await self._follow_pauses()
                told = False
            except Exception:
                if not told:
                    log.exception("step %s: its pauses are not known; trying on", self._station.step_id)
                told = True

    async def _follow_pauses(self) -> None:
        held = (await self._ledger.pauses()).get(self._station.step_id)
        if held is not None and self._subscription is not None:
            log.warning("step %s is paused: %s", self._station.step_id, held.reason or "no reason was given")
            await self._leave()
        elif held is None and self._subscription is None:
            self._subscription = await self._bus.subscribe(
                self._station.topic,
                self._station.group,
                self._handle,
                subscribe_options(self._settings, self._max_in_flight),
            )

    async def _leave(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close(self._bus.settings.drain_timeout_ms / 1000)

    # A message

    async def _handle(self, message: Message) -> None:
        try:
            event = receive(message.data)
        except Malformed:
            await self._outbox.to_router(message)
            return
        step = active(event)
        is_timed = event.envelope.timeout_at is not None and not self._station.undoes  # to undo may take any time
        if step is None or step.status is not Status.PENDING or (is_timed and is_late(event, clock.now())):
            await self._outbox.to_router(message)  # it is done, or its time is over
            return
        if not self._is_ours(step):
            await self._conclude(event, with_step(event, self._misrouted(step)), step, [])
            return
        if left_ms := early_ms(step):
            raise Retry("the pause before this attempt is not over", delay_ms=left_ms)
        kept, is_over = await self._ledger.outcome_and_end(event, step.id, step.attempt or 0)
        if kept is not None:
            # Done before, by somebody who may have died before he could say so.
            await self._pass_on(event, kept, step, [])
            return
        if is_over and not self._station.undoes:
            await self._outbox.to_router(message)  # somebody has cancelled it meanwhile, or run it again
            return
        await self._attempt(event, step, message)

    def _is_ours(self, step: RoutingStep) -> bool:
        undoes = step.attributes.get(hints.UNDOES)
        if self._station.undoes:
            return undoes == self._station.step_id
        return undoes is None and step.id == self._station.step_id

    def _misrouted(self, step: RoutingStep) -> RoutingStep:
        """Sent back, it would come again at once, and so for ever."""
        station = self._station
        reason = f"it was sent to {station.topic}, where {station.step_id} is done: mend nextTopic, or the worker"
        return given_up(step, clock.now(), StepError("misrouted", reason))

    async def _attempt(self, event: Event, step: RoutingStep, message: Message) -> None:
        began = clock.now()
        attempt, most = step.attempt or 0, step.max_attempts or self._settings.max_attempts
        step = replace(step, started_at=began, attempt=attempt, max_attempts=most)
        told: list[asyncio.Future[Any]] = [self._reporter.tell("started", event, step, began)]
        if message.attempt > 1:
            # A worker has died of this message, or with it in hand. The next one may die at once: until it is known
            # who has taken the message, the handler does not begin.
            await told[0]
        if message.attempt > 1 and (death := await self._died_of(event, step)):
            await self._conclude(event, with_step(event, given_up(step, clock.now(), death)), step, told)
            return
        self._attempts.inc()
        NOTED.set({"correlationId": event.envelope.correlation_id, "stepId": step.id, "attempt": attempt})
        log.debug("step %s: PENDING, and begun", step.id)
        work = Work(event, step, message, self._bus, self._ledger)
        envelope, traceparent = event.envelope, message.attributes.get("traceparent", "")
        about: dict[str, str | int] = {"correlation_id": envelope.correlation_id, "step": step.id, "attempt": attempt}
        with span(f"step {step.id}", traceparent, envelope.trace_id, about) as active_span:
            after, data = await self._do(work, step)
            if data is None and (ended := find(after, step.id)) is not None and ended.error is not None:
                mark_failed(active_span, ended.error.message or ended.error.code)
            await self._conclude(event, after, step, told, data)

    async def _do(self, work: Work, step: RoutingStep) -> tuple[Event, bytes | None]:
        """The event as the attempt leaves it, and as bytes: what cannot be sent is a failure of the step."""
        try:
            after = await self._call_in_time(work, step)
            return after, encode(after)
        except Pause as pause:
            await self._pause(work, step, pause)
            raise Retry(str(pause), delay=PAUSED_RETRY_S) from pause
        except Retry as retry:
            return self._failed(work, step, StepError("retry", str(retry), retryable=True), retry.delay_ms), None
        except Reject as rejection:
            return self._failed(work, step, StepError("rejected", str(rejection), retryable=False)), None
        except StepFailed as failed:
            return self._failed(work, step, StepError(failed.code, failed.message or None, failed.retryable)), None
        except Exception as error:
            log.exception("step %s failed, attempt %d of %s", step.id, step.attempt, work.correlation_id)
            return self._failed(work, step, _step_error(error)), None

    async def _call_in_time(self, work: Work, step: RoutingStep) -> Event:
        timeout_s = self._timeout_s(step)
        try:
            if timeout_s is None:
                returned = await (self._handler(work) if self._is_async else self._call(work))
            else:
                async with asyncio.timeout(timeout_s):
                    returned = await self._call(work)
        except Skip as skip:
            work.note(str(skip))
            return work.done(settled(step, Status.SKIP, clock.now()), None)
        except TimeoutError as error:
            # Ours has a cause: the cancellation of the handler. One that the handler raised is like any other error.
            if timeout_s is None or not isinstance(error.__cause__, asyncio.CancelledError):
                raise
            raise StepFailed("step_timeout", f"not done after {timeout_s:g} s") from error
        return work.done(settled(step, Status.OK, clock.now()), returned)

    async def _call(self, work: Work) -> object:
        if self._is_async:
            return await self._handler(work)
        returned = await self._threads.call(self._handler, work)
        return await returned if inspect.isawaitable(returned) else returned

    def _failed(self, work: Work, step: RoutingStep, error: StepError, delay_ms: int | None = None) -> Event:
        self._metrics.errors.labels(self._station.step_id, error.code).inc()
        failed = replace(step, error=error)
        if may_retry(failed, self._settings.max_attempts):
            pause_ms = self._retries.pause_ms(step.attempt or 0) if delay_ms is None else delay_ms
            return work.failed(next_attempt(failed, clock.now_ms() + pause_ms))
        return work.failed(given_up(step, clock.now(), error))

    def _timeout_s(self, step: RoutingStep) -> float | None:
        said = step.attributes.get(hints.TIMEOUT_MS)
        return int(said) / 1000 if said is not None else self._station.timeout_s

    async def _died_of(self, event: Event, step: RoutingStep) -> StepError | None:
        """A message that was handed out before, and nobody said how it ended: each time, somebody has died of it. The
        first time is known without being written down, except of a retry, which was handed out to wait."""
        name = _deaths(event, step)
        kept = await self._ledger.get(event.envelope.correlation_id, name)
        begun = int(kept or b"0")
        deaths = begun + (0 if hints.NOT_BEFORE in step.attributes else 1)
        if deaths < self._settings.max_deaths:
            await self._ledger.put(event.envelope.correlation_id, name, str(begun + 1).encode())
            return None
        reason = f"{deaths} workers have died while they were at it, or were stopped before they were done"
        return StepError("worker_lost", reason, retryable=False)

    async def _pause(self, work: Work, step: RoutingStep, pause: Pause) -> None:
        until_ms = clock.now_ms() + round(pause.seconds * 1000)
        await self._ledger.pause(self._station.step_id, Held(str(pause), until_ms))
        await self._ledger.remove(work.correlation_id, _deaths(work.event, step))

    # What became of it

    async def _conclude(
        self, before: Event, after: Event, step: RoutingStep, told: list[asyncio.Future[Any]], data: bytes | None = None
    ) -> None:
        kept = await self._ledger.settle(after, step.id, step.attempt or 0, data)
        await self._pass_on(before, kept, step, told, data if kept is after else None)

    async def _pass_on(
        self, before: Event, after: Event, step: RoutingStep, told: list[asyncio.Future[Any]], data: bytes | None = None
    ) -> None:
        """Where the outcome says. It may be another's, and what he has said is said again: with the same id."""
        ended = find(after, step.id)
        assert ended is not None
        told += self._tell(after, step, ended)
        for one in _taken_off(after, ended):
            told.append(self._reporter.tell("skipped", after, one, one.ended_at or clock.now(), detail=one.notes or ""))
        topic, going = self._next(after, ended)
        attempt = step.attempt or 0
        message_id = f"{dedupe_key(life_of(after), step.id, attempt)}:outcome"
        outcome = f"{step.id}:{attempt}"
        try:
            data = data if going is after else None
            sent = await self._outbox.send(topic, going, message_id, data=data, outcome=outcome)
            if topic != ROUTER and (following := active(going)) is not None:
                self._unserved.sent(topic, following.id)
            for future in told:  # which take longer: once woken up, it need not wait again
                await future
            await sent
        except InvalidArgument as refusal:  # and so it would be every time
            await self._return_unsendable(before, ended, message_id, outcome, refusal)
            for future in told:
                await future

    async def _return_unsendable(
        self, before: Event, ended: RoutingStep, message_id: str, outcome: str, refusal: InvalidArgument
    ) -> None:
        """What the step made is too large for the engine, or goes nowhere: it has failed, with what it was given."""
        log.warning("what step %s of %s has made cannot be sent: %s", ended.id, before.envelope.correlation_id, refusal)
        begun = replace(ended, status=Status.PENDING, notes=None)
        failed = given_up(begun, ended.ended_at or clock.now(), StepError("unsendable", str(refusal)))
        returned = f"{message_id}:unsendable"
        await (await self._outbox.send(ROUTER, with_step(before, failed), returned, outcome=outcome))

    def _next(self, after: Event, ended: RoutingStep) -> tuple[str, Event]:
        if ended.status is Status.PENDING:
            return topic_of(ended), after
        if self._settings.decentralised:
            try:
                decision = advance(after, clock.now(), self._rules)
            except ConditionFailed:
                return ROUTER, after  # which makes a dead letter of it
            if isinstance(decision, Send) and not decision.skipped and decision.topic not in {INGRESS, ROUTER}:
                return decision.topic, decision.event
        return ROUTER, after

    def _tell(self, after: Event, step: RoutingStep, ended: RoutingStep) -> list[asyncio.Future[None]]:
        took = duration_ms(ended.started_at or step.started_at, ended.ended_at or clock.now())
        if took is not None:
            self._durations.observe(took)
        _log_outcome(ended)
        return self._reporter.tell_outcome(after, step, ended)


def _log_outcome(ended: RoutingStep) -> None:
    """What is as it should be is for who looks closely: there may be thousands a second."""
    if ended.error is None or ended.status is Status.SKIP:
        log.debug("step %s: from PENDING to %s", ended.id, ended.status)
    elif ended.status is Status.PENDING:
        log.info("step %s: ERROR, and PENDING once more: %s", ended.id, ended.error.message or ended.error.code)
    else:
        log.warning("step %s: from PENDING to ERROR: %s", ended.id, ended.error.message or ended.error.code)


def _taken_off(after: Event, ended: RoutingStep) -> list[RoutingStep]:
    """What this attempt has taken off the itinerary."""
    # Those that were begun have come to it otherwise.
    skipped = [step for step in after.envelope.routing_slip if step.status is Status.SKIP and step.started_at is None]
    began = ended.started_at
    return [step for step in skipped if began is not None and step.ended_at is not None and step.ended_at >= began]


def _no_function(work: Work) -> Any:
    raise AssertionError(f"{work.step.id} is done by what comes in pieces")


def _deaths(event: Event, step: RoutingStep) -> str:
    return f"deaths:{run_of(event)}:{step.id}:{step.attempt}"


def _step_error(error: BaseException) -> StepError:
    return StepError(type(error).__name__, handlers.said(error) or None, retryable=True)
