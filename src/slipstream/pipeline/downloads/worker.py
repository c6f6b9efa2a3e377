"""The driver: takes tasks from the bus as any worker does, has them done on Spark, and settles them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import msgspec

from slipstream.bus import Bus, Message, Retry
from slipstream.jobs.config import JobConfig
from slipstream.jobs.given_back import Attempts
from slipstream.jobs.groups import worker_options
from slipstream.jobs.handed import handed
from slipstream.jobs.metrics import metrics_in
from slipstream.jobs.provision import ensure_topics
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.streams import WORKERS, streams
from slipstream.jobs.task_runner import Ended, GivenBack, Outcome
from slipstream.pipeline.downloads.order import Answer, Broken, Left, Order, Report, setup_of
from slipstream.pipeline.downloads.places import Places
from slipstream.pipeline.downloads.station import host_of
from slipstream.pipeline.downloads.waiting import Bundle, Task, Waiting
from slipstream.threads import DaemonThreads

log = logging.getLogger(__name__)

RunOrder: TypeAlias = Callable[[bytes], bytes]
"""Has an Order done somewhere on the cluster, and returns its Answer. Called from threads, as many at a time as there
are slots; raises if the cluster has given it up."""

AHEAD = 2
"""Bundles in hand for each slot, one of which waits: so that a slot that is free has something to do at once."""
SUSPECTS_MAX = 10_000
STOPPED = "the worker was stopped before it was begun"
HELD = "its host asked to wait"


class SparkWorker:
    """One for a cluster, whose executors together are to the streams what one worker is. More may join.

    Example:
        worker = SparkWorker(settings, config, run_order, slots=8)
        async with open_bus() as bus, worker.running(bus):
            await bus.until_stopped()
    """

    def __init__(self, settings: JobSettings, config: JobConfig, run_order: RunOrder, slots: int) -> None:
        self._settings = settings
        self._config = config
        self._run_order = run_order
        self._slots = slots
        self._streams = streams(settings.namespace)
        self._places = Places(slots, settings.host_concurrency, settings.host_rate_per_s)
        self._waiting = Waiting(self._places)
        self._attempts = Attempts()
        self._suspects: dict[str, int] = {}
        """Tasks that were in a bundle whose process died, and how many may be together with one next time: half of
        what there were. So the one that did it is soon alone, and the others are done."""
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @contextlib.asynccontextmanager
    async def running(self, bus: Bus) -> AsyncIterator[SparkWorker]:
        settings = self._settings
        self._metrics = metrics_in(bus.registry)
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._setup = setup_of(bus.settings, settings, self._config, self._slots)
        self._threads = DaemonThreads(self._slots, "slipstream-bundles")
        await ensure_topics(bus, self._streams)
        in_hand = max(settings.max_in_flight, AHEAD * self._slots * settings.spark_bundle)
        options = msgspec.structs.replace(worker_options(settings), max_in_flight=in_hand)
        subscription = await bus.subscribe(self._streams.tasks.topic, WORKERS, self._take, options)
        sending = asyncio.create_task(self._send())
        try:
            yield self
        finally:
            self._stop()
            await subscription.close(bus.settings.drain_timeout_ms / 1000)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            self._threads.close()

    # A message

    async def _take(self, message: Message) -> None:
        if self._is_stopping:
            raise Retry(STOPPED, delay_ms=0)
        found = handed(message, self._attempts.known(message.id))
        host = host_of(found)
        asked_s = self._places.asked_s(host, self._loop.time())
        if asked_s > self._settings.hold_ms / 1000:
            self._attempts.remember(message.id, found.attempts)
            raise Retry(HELD, delay_ms=round(asked_s * 1000))
        ended: asyncio.Future[Outcome] = self._loop.create_future()
        together_max = self._suspects.get(message.id, self._settings.spark_bundle)
        self._waiting.put(Task(found, host, ended, together_max))
        self._changed.set()
        outcome = await ended
        if isinstance(outcome, GivenBack):
            self._attempts.remember(message.id, outcome.attempts)
            raise Retry(outcome.why, delay_ms=outcome.delay_ms)

    def _stop(self) -> None:
        """What runs is finished, and the rest given back."""
        self._is_stopping = True
        for task in self._waiting.clear():
            _fail(task, Retry(STOPPED, delay_ms=0))

    # Bundles

    async def _send(self) -> None:
        while True:
            self._changed.clear()
            while len(self._running) < self._slots and (bundle := self._next()).tasks:
                running = asyncio.create_task(self._run(bundle))
                self._running.add(running)
                running.add_done_callback(self._on_ended)
            await self._until_changed()

    def _next(self) -> Bundle:
        """What waits is for all slots that are free, so that none has everything and the others nothing."""
        now = self._loop.time()
        self._places.forget(now)
        free = self._slots - len(self._running)
        return self._waiting.bundle(min(self._settings.spark_bundle, -(-len(self._waiting) // free) or 1), now)

    async def _until_changed(self) -> None:
        """Or until a host that was held may be asked."""
        ready_at = self._waiting.ready_at(self._loop.time()) if len(self._running) < self._slots else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ready_at):
                await self._changed.wait()

    async def _run(self, bundle: Bundle) -> None:
        try:
            answer = await self._ask(bundle)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises, its tasks are done by the next
            why = (str(error).splitlines() or [type(error).__name__])[0]
            log.warning("a bundle of %d tasks is given back: Spark has given it up: %s", len(bundle.tasks), why)
            self._suspect(bundle)
            for task in bundle.tasks:
                _fail(task, Retry(f"Spark has given up the bundle it was in: {type(error).__name__}"))
        else:
            self._settle(bundle, answer)
        finally:
            for host, share in bundle.shares.items():
                self._places.give_back(host, share)

    def _on_ended(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        self._changed.set()

    async def _ask(self, bundle: Bundle) -> Answer:
        held_s = self._places.held_s(set(bundle.shares), self._loop.time())
        tasks = [task.handed for task in bundle.tasks]
        order = Order(self._setup, tasks, bundle.shares, held_s, self._settings.spark_shift_ms)
        data = await self._threads.call(self._run_order, msgspec.msgpack.encode(order))
        return msgspec.msgpack.decode(data, type=Answer)

    def _suspect(self, bundle: Bundle) -> None:
        half = max(1, len(bundle.tasks) // 2)
        for task in bundle.tasks:
            self._suspects[task.handed.id] = half
        while len(self._suspects) > SUSPECTS_MAX:
            del self._suspects[next(iter(self._suspects))]

    # What became of it

    def _settle(self, bundle: Bundle, answer: Answer) -> None:
        now = self._loop.time()
        for host, for_s in answer.held_s.items():
            self._places.hold(host, now + for_s)
        for host, for_s in answer.resting_s.items():
            self._places.rest(host, now + for_s)
        left = []
        for task, report in zip(bundle.tasks, answer.reports, strict=True):
            if isinstance(report, Left):
                left.append(task)
            else:
                self._note(task, report)
        if self._is_stopping:
            for task in left:
                _fail(task, Retry(STOPPED, delay_ms=0))
        else:
            self._waiting.put_back(left)

    def _note(self, task: Task, report: Report) -> None:
        self._suspects.pop(task.handed.id, None)
        if isinstance(report, Broken):
            _fail(task, Retry(report.why))
            return
        assert not isinstance(report, Left)
        if isinstance(report, Ended):
            self._count(report)
        if not task.ended.done():
            task.ended.set_result(report)

    def _count(self, ended: Ended) -> None:
        """Here, as nobody asks an executor for its metrics."""
        self._metrics.tasks.labels("failed" if ended.code else "stored", ended.code).inc()
        self._metrics.bytes.inc(ended.size)
        self._metrics.seconds.observe(ended.took_s)


def _fail(task: Task, error: Exception) -> None:
    if not task.ended.done():
        task.ended.set_exception(error)
