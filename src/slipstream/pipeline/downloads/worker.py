"""The driver: takes tasks from the bus as any worker does, has them done on Spark, and settles them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import msgspec

from slipstream.bus import Bus, Message, Postpone, Retry
from slipstream.jobs.config import JobConfig
from slipstream.jobs.controls import Controls, Held
from slipstream.jobs.download.limits import HostLimits, Share
from slipstream.jobs.given_back import Attempts
from slipstream.jobs.groups import worker_options
from slipstream.jobs.handed import Handed, handed
from slipstream.jobs.metrics import metrics_in
from slipstream.jobs.provision import ensure_topics
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.streams import WORKERS, streams
from slipstream.jobs.task_runner import CANCELLED, PAUSED, Ended, GivenBack, Outcome, paused_ms
from slipstream.pipeline.downloads.order import Answer, Broken, Cut, Left, Order, Report, setup_of
from slipstream.pipeline.downloads.places import Places
from slipstream.pipeline.downloads.station import job_and_host_of
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
CROWDED = "more tasks wait than there is room for, and most of them for its host"
CROWDED_MS = 5_000
"""How long a task waits in the stream while too many wait here."""


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
        limits = HostLimits(config.hosts, Share(settings.host_concurrency, settings.host_rate_per_s))
        self._places = Places(slots, limits=limits)
        self._waiting = Waiting(self._places)
        self._slow = Waiting(self._places)
        """Those that took too long for a bundle with others."""
        self._attempts = Attempts()
        self._suspects: dict[str, int] = {}
        """Tasks that were in a bundle whose process died, and how many may be together with one next time: half of
        what there were. So the one that did it is soon alone, and the others are done."""
        self._running: dict[asyncio.Task[None], bool] = {}
        """Bundles, and whether they are of the slow."""
        self._is_stopping = False

    @contextlib.asynccontextmanager
    async def running(self, bus: Bus) -> AsyncIterator[SparkWorker]:
        settings = self._settings
        self._metrics = metrics_in(bus.registry)
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._setup = setup_of(bus.settings, settings, self._config, self._slots)
        await ensure_topics(bus, self._streams)
        self._in_hand = max(settings.max_in_flight, AHEAD * self._slots * settings.spark_bundle)
        options = msgspec.structs.replace(worker_options(settings), max_in_flight=self._in_hand)
        self._controls = Controls(bus, self._streams.control.topic, self._on_control)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._controls.running())
            self._threads = DaemonThreads(self._slots, "slipstream-bundles")
            stack.callback(self._threads.close)
            subscription = await bus.subscribe(self._streams.tasks.topic, WORKERS, self._take, options)
            sending = asyncio.create_task(self._send())
            try:
                yield self
            finally:
                self._stop()
                await subscription.close(bus.settings.drain_timeout_ms / 1000)
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    # A message

    async def _take(self, message: Message) -> None:
        if self._is_stopping:
            raise Postpone(STOPPED, delay_ms=0)
        found = handed(message, self._attempts.known(message.id))
        job_id, host = job_and_host_of(found)
        if (outcome := self._held(job_id, found)) is None:
            outcome = await self._until_ended(found, job_id, host)
        if isinstance(outcome, GivenBack):
            self._attempts.remember(message.id, outcome.past)
            again = Retry if outcome.is_counted else Postpone
            raise again(outcome.why, delay_ms=outcome.delay_ms)

    def _held(self, job_id: str, task: Handed) -> Outcome | None:
        """Return what becomes of a task whose job operators have cancelled or paused; None for any other."""
        held = self._controls.held(job_id, task.control_ms)
        if held == "cancelled":
            self._metrics.tasks.labels("cancelled", "").inc()
            return Ended(CANCELLED)
        if held == "paused":
            return GivenBack(PAUSED, paused_ms(self._controls.word(job_id)), task.past, is_counted=False)
        return None

    async def _on_control(self, job_id: str, held: Held, at_ms: int) -> None:
        """Take the tasks of a job out that was cancelled or paused. A bundle that runs is finished."""
        if held:
            for waiting in (self._waiting, self._slow):
                waiting.remove_where(lambda task: task.job_id == job_id and self._is_out(task))

    def _is_out(self, task: Task) -> bool:
        """Settle a task whose job is held; return whether it is settled."""
        if not task.ended.done() and (outcome := self._held(task.job_id, task.handed)) is not None:
            task.ended.set_result(outcome)
        return task.ended.done()

    async def _until_ended(self, found: Handed, job_id: str, host: str) -> Outcome:
        asked_s = self._places.asked_s(host, self._loop.time())
        if asked_s > self._settings.hold_ms / 1000:
            return GivenBack(HELD, round(asked_s * 1000), found.past, is_counted=False)
        ended: asyncio.Future[Outcome] = self._loop.create_future()
        together_max = self._suspects.get(found.id, self._settings.spark_bundle)
        self._waiting.put(Task(found, host, job_id, ended, together_max))
        self._changed.set()
        return await ended

    def _make_room(self) -> None:
        """Half of the tasks in hand may wait, of all hosts together: hosts that never answer must leave room to look at
        the tasks of others."""
        while len(self._waiting) and len(self._waiting) + len(self._slow) > self._in_hand // 2:
            task = self._waiting.pop_surplus()
            if not task.ended.done():
                task.ended.set_result(GivenBack(CROWDED, CROWDED_MS, task.handed.past, is_counted=False))

    def _stop(self) -> None:
        """What runs is finished, and the rest given back."""
        self._is_stopping = True
        for task in (*self._waiting.clear(), *self._slow.clear()):
            _fail(task, Postpone(STOPPED, delay_ms=0))

    # Bundles

    async def _send(self) -> None:
        while True:
            self._changed.clear()
            while len(self._running) < self._slots and (bundle := self._next()).tasks:
                running = asyncio.create_task(self._run(bundle))
                self._running[running] = bundle.is_slow
                running.add_done_callback(self._on_ended)
            self._make_room()
            await self._until_changed()

    def _on_ended(self, running: asyncio.Task[None]) -> None:
        del self._running[running]
        self._changed.set()

    def _next(self) -> Bundle:
        """What waits is for all slots that are free, so that none has everything and the others nothing. The slow come
        first, and have all slots but one: that is for those that come after them."""
        now = self._loop.time()
        self._places.forget(now)
        if len(self._slow) and sum(self._running.values()) < self._slots - 1:
            slow = self._slow.bundle(-(-self._settings.concurrency // self._slots), now, at_once=True)
            if slow.tasks:
                return msgspec.structs.replace(slow, is_slow=True)
        free = self._slots - len(self._running)
        return self._waiting.bundle(min(self._settings.spark_bundle, -(-len(self._waiting) // free) or 1), now)

    def _give_back(self, bundle: Bundle) -> None:
        for host, share in bundle.shares.items():
            self._places.give_back(host, share)

    async def _until_changed(self) -> None:
        """Or until a host that was held may be asked."""
        now = self._loop.time()
        times = [at for each in (self._waiting, self._slow) if (at := each.ready_at(now)) is not None]
        is_free = len(self._running) < self._slots
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(times) if times and is_free else None):
                await self._changed.wait()

    async def _run(self, bundle: Bundle) -> None:
        bundle.tasks = [task for task in bundle.tasks if not self._is_out(task)]
        if not bundle.tasks:
            self._give_back(bundle)
            return
        try:
            answer = await self._ask(bundle)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises, its tasks are done by the next
            why = (str(error).splitlines() or [type(error).__name__])[0]
            log.warning("a bundle of %d tasks is given back: Spark has given it up: %s", len(bundle.tasks), why)
            self._suspect(bundle)
            for task in bundle.tasks:
                self._try_again(task, f"Spark has given up the bundle it was in: {type(error).__name__}")
        else:
            self._settle(bundle, answer)
        finally:
            self._give_back(bundle)

    async def _ask(self, bundle: Bundle) -> Answer:
        held_s = self._places.held_s(set(bundle.shares), self._loop.time())
        tasks = [task.handed for task in bundle.tasks]
        settings = self._settings
        order = Order(self._setup, tasks, bundle.shares, held_s, settings.spark_shift_ms, self._cut_ms(bundle))
        data = await self._threads.call(self._run_order, msgspec.msgpack.encode(order))
        return msgspec.msgpack.decode(data, type=Answer)

    def _cut_ms(self, bundle: Bundle) -> int:
        """With one slot there is none for the others, whoever is cut."""
        if bundle.is_slow or self._slots == 1:
            return 0
        return max(self._settings.spark_cut_ms, self._settings.spark_shift_ms)

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
            self._hold(host, for_s)
        for host, for_s in answer.resting_s.items():
            self._places.rest(host, now + for_s)
        broken = [report for report in answer.reports if isinstance(report, Broken)]
        if broken:
            log.warning(
                "%d tasks of a bundle are given back, as their end cannot be told: %s", len(broken), broken[0].why
            )
        left = []
        for task, report in zip(bundle.tasks, answer.reports, strict=True):
            if isinstance(report, Left) and not self._is_stopping:
                left.append(task)
            else:
                self._note(task, report)
        (self._slow if bundle.is_slow else self._waiting).put_back(left)

    def _hold(self, host: str, for_s: float) -> None:
        """Who would have to wait for long waits in the stream: here it would keep others out."""
        self._places.hold(host, self._loop.time() + for_s)
        if for_s > self._settings.hold_ms / 1000:
            for task in (*self._waiting.remove(host), *self._slow.remove(host)):
                self._note(task, GivenBack(HELD, round(for_s * 1000), task.handed.past, is_counted=False))

    def _note(self, task: Task, report: Report) -> None:
        self._suspects.pop(task.handed.id, None)
        if isinstance(report, Broken):
            self._try_again(task, report.why)
        elif self._is_stopping and isinstance(report, Left | Cut):
            _fail(task, Postpone(STOPPED, delay_ms=0))
        elif isinstance(report, Cut):
            self._slow.put(task)
        elif not isinstance(report, Left):
            if isinstance(report, Ended):
                self._count(report)
            if not task.ended.done():
                task.ended.set_result(report)

    def _try_again(self, task: Task, why: str) -> None:
        """As often as JOBS_MAX_DELIVERIES says."""
        settings = self._settings
        pause_ms = min(settings.retry_base_ms * 2 ** min(task.handed.attempt - 1, 32), settings.retry_longest_ms)
        self._attempts.remember(task.handed.id, task.handed.past)
        _fail(task, Retry(why, delay_ms=pause_ms))

    def _count(self, ended: Ended) -> None:
        """Here, as nobody asks an executor for its metrics."""
        self._metrics.tasks.labels("failed" if ended.code else "stored", ended.code).inc()
        self._metrics.bytes.inc(ended.size)
        self._metrics.seconds.observe(ended.took_s)


def _fail(task: Task, error: Exception) -> None:
    if not task.ended.done():
        task.ended.set_exception(error)
