"""Runs the handler of a subscription: the same on every driver, which only hands out messages and takes them back."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from slipstream import handlers
from slipstream.bus.contract import Handler
from slipstream.bus.dead_letter import TOPIC as DEAD_LETTER_TOPIC
from slipstream.bus.dead_letter import dead_letter, short
from slipstream.bus.drivers.driver import Delivery, Outgoing, Source
from slipstream.bus.errors import BusError, InvalidArgument
from slipstream.bus.failure import Failure
from slipstream.bus.metrics import BusMetrics
from slipstream.bus.options import SubscribeOptions, seconds
from slipstream.bus.run import Run
from slipstream.handling import HANDLED, NOTED
from slipstream.outcome import Duration, Postpone, Reject, Retry
from slipstream.threads import DaemonThreads

log = logging.getLogger(__name__)

FAILURE_PAUSE_S = 1.0
BURIAL_PAUSE_S_MAX = 5.0
CLOSED = "the subscriber was closed before the handler was done"
UNSETTLED = "handed out {} times, and never settled: its consumers died, or were closed before they were done"
TOO_LONG = "its handler has taken longer than extend_for"
LAST_WORDS_S = 2.0
"""How long a subscription that gives up tries to hand back what it has."""


class Burier(Protocol):
    """Publishes a dead letter, and returns when the engine has it safely."""

    def __call__(self, message: Outgoing) -> Awaitable[object]: ...


class Subscription:
    """A handler at work on the messages of a topic, for a group. Made by `bus.subscribe`, ended by `close`."""

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        handler: Handler,
        options: SubscribeOptions,
        source: Source,
        bury: Burier,
        metrics: BusMetrics,
        driver: str,
        on_closed: Callable[[Subscription], None],
    ) -> None:
        self.topic = topic
        """As the application calls it."""
        self.group = group
        self.options = options
        """With the dead-letter topic as the engine calls it; "" if there is none."""
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.failure: Exception | None = None
        """Why no messages can be taken, as long as they cannot."""
        self._source = source
        self._bury = bury
        self._on_closed = on_closed
        self._handler: Callable[[Any], Any] = handler
        self._is_async = handlers.is_async(handler)
        self._threads = DaemonThreads(0 if self._is_async else options.max_in_flight, f"slipstream-{topic}")
        self._runs: set[Run] = set()
        self._by_id: dict[str, Run] = {}
        self._freed = asyncio.Event()
        self._stopping = False
        self._giving_up = False
        self._closing: asyncio.Future[None] | None = None
        self._deadline_s = seconds(options.ack_deadline)
        self._extend_for_s = seconds(options.extend_for)
        labels = (driver, topic, group)
        self._received = metrics.messages.labels(driver, topic, "received")
        self._acked = metrics.messages.labels(driver, topic, "acked")
        self._nacked = metrics.messages.labels(driver, topic, "nacked")
        self._postponed = metrics.messages.labels(driver, topic, "postponed")
        self._dead_lettered = metrics.messages.labels(driver, topic, "dead_lettered")
        self._redelivered = metrics.redeliveries.labels(*labels)
        self._in_flight = metrics.in_flight.labels(*labels)
        self._lag = metrics.lag.labels(*labels)
        self._dead_letters = metrics.dead_letters
        self._labels = labels
        # In a context of its own: what was active where somebody subscribed, a span say, is not that of the messages.
        self._intake = self.loop.create_task(self._take(), context=contextvars.Context())
        self._renewal = asyncio.create_task(self._renew())

    @property
    def in_flight(self) -> int:
        """Messages in the hands of the handler now."""
        return len(self._runs)

    @property
    def trouble(self) -> str:
        """Why no messages come, as long as they cannot; "" where all is well, as far as the driver can tell."""
        return str(self.failure) if self.failure is not None else self._source.trouble

    def __str__(self) -> str:
        return f"{self.topic} (group {self.group})"

    def __repr__(self) -> str:
        return f"<Subscription {self}, {self.in_flight} in flight>"

    # Its end

    async def close(self, drain_timeout_s: float = 30.0) -> None:
        """Takes nothing more, lets the handlers finish, tells the engine, and leaves the group. Handlers that are not
        done after the time are cancelled, and their messages given back."""
        self.check_not_inside()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(drain_timeout_s))
        await asyncio.shield(self._closing)

    def check_not_inside(self) -> None:
        """Raises InvalidArgument where a handler would wait for its own end."""
        task = asyncio.current_task()
        if any(run.task is task for run in self._runs):
            raise InvalidArgument("a handler cannot close what runs it: let it return, and close from outside")

    async def _close(self, drain_timeout_s: float) -> None:
        self._stopping = True
        self._freed.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain_timeout_s):
                    await self._source.stop()
                    await asyncio.wait({self._intake})
                    await self._drained()
            if self._runs:
                log.warning("%s: %d handlers are not done after %g s", self, len(self._runs), drain_timeout_s)
                self._giving_up = True
                for run in list(self._runs):
                    run.give_up(CLOSED)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LAST_WORDS_S):
                        await self._drained()
        finally:
            # What a handler has said, and the engine has not heard, too: a thread may wait for it.
            telling = [run.telling for run in self._runs if run.telling is not None]
            tasks = [self._intake, self._renewal, *(run.task for run in self._runs), *telling]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._threads.close()
            await self._source.close()
            self._on_closed(self)

    async def _drained(self) -> None:
        while self._runs:
            self._freed.clear()
            await self._freed.wait()

    async def sample_lag(self) -> bool:
        """Whether it is known."""
        lag = await self._source.lag()
        if lag is not None:
            self._lag.set(lag)
        return lag is not None

    # Taking messages

    async def _take(self) -> None:
        """Never more than there are slots for: what waits here would be on lease with nobody at it."""
        while True:
            free = self.options.max_in_flight - len(self._runs)
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            try:
                deliveries = await self._source.pull(free)
                self.failure = None
            except Exception as error:
                # A subscription that is deaf and says nothing would be found by its backlog, at two in the morning.
                if self.failure is None:
                    log.exception("%s: no messages can be taken; trying on", self)
                self.failure = error
                if self._stopping:
                    return
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            for delivery in deliveries:
                self._begin(delivery)
            if self._stopping and not deliveries:
                return

    def _begin(self, delivery: Delivery) -> None:
        self._received.inc()
        if delivery.attempt > 1:
            self._redelivered.inc()
        held = self._by_id.get(delivery.id)
        if held is not None and not held.settled and self.loop.time() >= self._kept_until(held):
            self._lose(held, TOO_LONG)
        if held is not None and not held.settled and not held.lost:
            # Its lease ran out while the engine could not be told, and it was handed out again: to us. The handler is
            # at it, and what it says will be said with the lease we have now.
            log.info("%r came again while its handler is at it", held.message)
            held.delivery = delivery
            return
        run = Run(self, delivery, self.loop.time())
        self._runs.add(run)
        self._by_id[delivery.id] = run
        self._in_flight.inc()
        run.task = self.loop.create_task(self._work(run, held))

    async def _work(self, run: Run, before: Run | None) -> None:
        try:
            if before is not None:
                await asyncio.wait({before.task})  # never two at the same message
            if self._giving_up:
                run.give_up(CLOSED)
            if run.given_up:
                failure: Failure | None = Failure(run.given_up, delay_s=0)
            elif self._has_grave(run) and self.options.is_exhausted(run.delivery.attempt - 1):
                # Each time it was handed out, whoever had it died or fell silent.
                attempts = run.delivery.attempt - 1
                failure = Failure(UNSETTLED.format(attempts), final=True)
            else:
                failure = await self._handle(run)
            if run.telling is not None:
                await asyncio.wait({run.telling})
            await self.settle(run, failure)
        finally:
            self._runs.discard(run)
            if self._by_id.get(run.delivery.id) is run:
                del self._by_id[run.delivery.id]
            self._in_flight.dec()
            self._freed.set()

    # Handling

    async def _handle(self, run: Run) -> Failure | None:
        """Runs the handler and says how it failed; None if it did not."""
        message = run.message
        HANDLED.set(run.delivery.attributes)
        NOTED.set({"attempt": run.delivery.attempt})
        run.is_handled = True
        try:
            if self._is_async:
                await self._handler(message)
            else:
                answer = await self._threads.call(self._handler, message)
                if inspect.isawaitable(answer):
                    await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if run.given_up:
                task.uncancel()
                return Failure(run.given_up, delay_s=0)
            if task.cancelling():
                raise  # the program ends
            return self._failed(run, Failure("the handler was cancelled"))
        except Reject as rejection:
            return self._failed(run, Failure(handlers.said(rejection) or "rejected", final=True))
        except Retry as retry:
            return self._failed(run, Failure(handlers.said(retry) or "retry", self._delay_s(run, retry)))
        except Postpone as postponed:
            delay_s = self._delay_s(run, postponed)
            reason = handlers.said(postponed) or "postponed"
            return self._failed(run, Failure(reason, delay_s, is_counted=delay_s is None))
        except Exception as error:
            if not run.settled:
                log.error("the handler of %s failed on %r", self, message, exc_info=error)  # noqa: TRY400 - the task's
            return self._failed(run, Failure(handlers.reason(error)))
        finally:
            run.is_handled = False
        return None

    def _delay_s(self, run: Run, retry: Retry | Postpone) -> float | None:
        try:
            return None if retry.delay_ms is None else seconds(retry.delay_ms / 1000)
        except (InvalidArgument, TypeError):
            log.warning(
                "%r comes again as the backoff says: no delay_ms of %s is %.80r",
                run.message,
                type(retry).__name__,
                retry.delay_ms,
            )
            return None

    def _failed(self, run: Run, failure: Failure) -> Failure:
        if run.settled:
            log.warning("%r was settled, and then its handler failed: %s", run.message, failure.reason)
        return failure

    # Settling

    async def settle(self, run: Run, failure: Failure | None) -> None:
        """Tells the engine what became of the message; the first word counts."""
        if run.settled or run.lost:
            return
        run.settled = True
        try:
            if failure is None:
                await self._source.ack(run.delivery)
                self._acked.inc()
            elif self._is_last(run, failure):
                await self._give_to_dead_letters(run, failure)
            else:
                await self._nack(run, failure)
        except BusError as error:
            log.warning("what became of %r is not heard, and it will come again: %s", run.message, error)

    def _is_last(self, run: Run, failure: Failure) -> bool:
        if run.given_up or not failure.is_counted or not self._has_grave(run):
            return False  # it was not the handler's fault; or it is a dead letter already, and stays one
        return failure.final or self.options.is_exhausted(run.delivery.attempt)

    def _has_grave(self, run: Run) -> bool:
        """A dead letter has none, under whatever name its topic goes; one that was sent back to its own topic has."""
        died_in = run.delivery.attributes.get(DEAD_LETTER_TOPIC, self.topic)
        return bool(self.options.dead_letter_topic) and died_in == self.topic

    async def _nack(self, run: Run, failure: Failure) -> None:
        pause_s = self.options.pause(run.delivery.attempt) if failure.delay_s is None else failure.delay_s
        # Short: what an engine cannot take would be refused for ever, and with it what is told in the same request.
        reason = short(failure.reason)
        if failure.is_counted:
            await self._source.nack(run.delivery, pause_s, reason)
            self._nacked.inc()
        else:
            await self._source.postpone(run.delivery, pause_s, reason)
            self._postponed.inc()

    async def _give_to_dead_letters(self, run: Run, failure: Failure) -> None:
        """The message is finished at the engine only when its dead letter is safe; until then its lease is extended."""
        to = self.options.dead_letter_topic
        assert to
        letter = dead_letter(run.delivery, to, topic=self.topic, group=self.group, reason=failure.reason)
        tries = 0
        while True:
            try:
                await self._bury(letter)
                break
            except BusError as error:
                tries += 1
                log.log(
                    logging.WARNING if tries == 1 else logging.DEBUG,
                    "the dead letter of %r is not published: %s; trying on",
                    run.message,
                    error,
                )
                if self._giving_up or isinstance(error, InvalidArgument):
                    await self._nack(run, failure)
                    return
                await asyncio.sleep(min(0.1 * 2 ** min(tries, 10), BURIAL_PAUSE_S_MAX))
        await self._source.ack(run.delivery)
        reason = "rejected" if failure.final else "exhausted"
        log.warning("%r is a dead letter in %s: %s", run.message, to, failure.reason)
        self._dead_letters.labels(*self._labels, reason).inc()
        self._dead_lettered.inc()

    # Leases

    async def extend_one(self, run: Run, duration: Duration | None) -> None:
        """`message.extend()`: the handler says that it is at it, and how long for."""
        if run.settled or run.lost:
            return  # it is not ours to keep
        deadline_s = self._deadline_s if duration is None else seconds(duration)
        run.extended_until = self.loop.time() + deadline_s
        if await self._source.extend([run.delivery], deadline_s):
            self._lose(run, "another has it by now")

    async def _renew(self) -> None:
        """All leases together, every third of their time, so that one lost word loses none of them."""
        third_s = self._deadline_s / 3
        while True:
            await asyncio.sleep(third_s)
            now = self.loop.time()
            kept = []
            for run in self._runs:
                until = self._kept_until(run)
                if run.lost or run.is_told:
                    continue
                if now < until or run.settled:
                    kept.append(run)
                elif now >= until + self._deadline_s:
                    self._lose(run, TOO_LONG)
            if kept:
                await self._extend(kept)

    def _kept_until(self, run: Run) -> float:
        """So long its lease is extended, if it is not settled; after that it runs out."""
        return max(run.began_at + self._extend_for_s, run.extended_until)

    async def _extend(self, runs: list[Run]) -> None:
        by_delivery = {run.delivery: run for run in runs}
        try:
            lost = await self._source.extend(list(by_delivery), self._deadline_s)
        except BusError as error:
            log.warning("%s: %d leases are not extended: %s", self, len(runs), error)
            return
        except Exception:
            log.exception("%s: extending %d leases failed", self, len(runs))  # the next time is not far, and is needed
            return
        for delivery in lost:
            run = by_delivery[delivery]
            if not run.settled and run.delivery is delivery:  # and not handed to us anew while this was asked
                self._lose(run, "another has it by now")

    def _lose(self, run: Run, reason: str) -> None:
        """Whatever its handler still does is done twice. One that awaits is cancelled; a function in a thread cannot
        be, and may ask `message.lease_lost`. Either way it is not acked."""
        if not run.lost:
            log.warning("%r is no longer ours: %s", run.message, reason)
            run.lost = True
            if self._is_async:
                run.give_up("the lease was lost")
