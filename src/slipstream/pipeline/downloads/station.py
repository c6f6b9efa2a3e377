"""Where bundles are done: a process of Spark, with a bus, connections and storages that are kept between them.

Spark uses a Python process for one task after the other. To open all of it anew for each would take longer than a
bundle of small downloads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from pyspark import TaskContext

from slipstream.bus import BusError, open_bus
from slipstream.jobs.burials import Burials
from slipstream.jobs.download.fetch import Fetcher
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.handed import Handed
from slipstream.jobs.messages import DownloadTask, decode
from slipstream.jobs.plan import Planner
from slipstream.jobs.storage import Storages
from slipstream.jobs.streams import streams
from slipstream.jobs.task_runner import TaskRunner, host_named
from slipstream.jobs.tuning import tune
from slipstream.pipeline.downloads.gathering import GatheringReporter
from slipstream.pipeline.downloads.order import Answer, Broken, Cut, Left, Order, Report, Setup

T = TypeVar("T")

_station: Station | None = None
_stations = threading.Lock()


def run_bundle(data: bytes) -> bytes:
    """An Order, and its Answer. What a task fails of is in the answer; only the death of a process is Spark's."""
    order = msgspec.msgpack.decode(data, type=Order)
    if _is_repeated():
        again = [msgspec.structs.replace(task, is_repeated=True) for task in order.tasks]
        order = msgspec.structs.replace(order, tasks=again)
    return msgspec.msgpack.encode(_station_of(order.setup).run(order))


def _is_repeated() -> bool:
    """Whether Spark has lost the process that had this bundle before."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def _station_of(setup: bytes) -> Station:
    """The one of this process, anew where the setup is another's."""
    global _station  # noqa: PLW0603 - it is there as long as the process
    with _stations:
        if _station is not None and _station.setup != setup:
            _station.close()
            _station = None
        if _station is None:
            _station = Station(setup)
        return _station


class Station:
    """A thread with an event loop, and what bundles need in it. Nothing is opened before the first bundle; what cannot
    be opened is tried again with the next."""

    def __init__(self, setup: bytes) -> None:
        tune()
        self.setup = setup
        self._found = msgspec.msgpack.decode(setup, type=Setup)
        self._loop = _new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        self._desk: _Desk | None = None
        threading.Thread(target=self._loop.run_forever, name="slipstream-downloads", daemon=True).start()

    def run(self, order: Order) -> Answer:
        return self._wait(self._run(order))

    def close(self) -> None:
        self._wait(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _run(self, order: Order) -> Answer:
        try:
            if self._desk is None:
                self._desk = await self._open()
        except Exception as error:  # noqa: BLE001 - it is the answer: the driver says it, where somebody reads it
            await self._stack.aclose()
            return Answer([Broken(f"{type(error).__name__}: {error}") for _ in order.tasks])
        return await self._desk.run(order)

    async def _open(self) -> _Desk:
        for name, value in self._found.environment.items():
            os.environ.setdefault(name, value)
        settings, config = self._found.jobs, self._found.config
        stack, topics = self._stack, streams(settings.namespace)
        storages = Storages(settings.storage, config, sync=settings.storage_sync)
        stack.callback(storages.close)
        bus = await stack.enter_async_context(open_bus(self._found.bus))
        reporter = GatheringReporter(bus, topics.logs.topic)
        await stack.enter_async_context(reporter.running())
        fetcher = await stack.enter_async_context(
            Fetcher(settings, hosts=config.hosts, hold_s_max=settings.hold_ms / 1000)
        )
        burials = Burials(bus, topics.dlq.topic, reporter)
        runner = TaskRunner(bus, settings, Planner(config, storages), fetcher, reporter, burials)
        return _Desk(runner, fetcher, reporter, settings.max_in_flight)


class _Desk:
    """At which one bundle is done after the other."""

    def __init__(self, runner: TaskRunner, fetcher: Fetcher, reporter: GatheringReporter, in_hand_max: int) -> None:
        self._runner = runner
        self._fetcher = fetcher
        self._reporter = reporter
        self._in_hand_max = in_hand_max

    async def run(self, order: Order) -> Answer:
        hosts = self._fetcher.hosts
        hosts.share(order.shares)
        for name, for_s in order.held_s.items():
            hosts.hold(name, for_s)
        bundle = _Bundle(self._runner, order, self._in_hand_max)
        reports = await bundle.run()
        try:
            await self._reporter.flush()
        except BusError as error:
            reports = [Broken(f"{type(error).__name__}: {error}") for _ in reports]
        return Answer(reports, hosts.held_s(), hosts.resting_s())


class _Bundle:
    """Tasks wait here for their hosts, where nothing is begun, rather than in the runner's hands: when the shift is
    over, those go back as they are."""

    def __init__(self, runner: TaskRunner, order: Order, in_hand_max: int) -> None:
        self._runner = runner
        self._order = order
        self._reports: list[Report] = [Left() for _ in order.tasks]
        self._places = asyncio.Semaphore(in_hand_max)
        self._ends_at = asyncio.get_running_loop().time() + order.shift_ms / 1000

    async def run(self) -> list[Report]:
        by_host: dict[str, deque[int]] = {}
        for number, task in enumerate(self._order.tasks):
            by_host.setdefault(host_of(task), deque()).append(number)
        hands = [
            asyncio.create_task(self._go_on(numbers))
            for host, numbers in by_host.items()
            for _ in range(self._at_a_time(host, len(numbers)))
        ]
        cut_ms = self._order.cut_ms
        _, late = await asyncio.wait(hands, timeout=cut_ms / 1000 if cut_ms else None)
        for hand in late:
            hand.cancel()
        for result in await asyncio.gather(*hands, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        return self._reports

    def _at_a_time(self, host: str, tasks: int) -> int:
        share = self._order.shares.get(host)
        return min(tasks, share.concurrency) if share is not None and share.concurrency else tasks

    async def _go_on(self, numbers: deque[int]) -> None:
        loop = asyncio.get_running_loop()
        while numbers:
            async with self._places:
                if not numbers or loop.time() >= self._ends_at:
                    return
                number = numbers.popleft()
                self._reports[number] = Cut()  # unless it comes to another end
                self._reports[number] = await self._do(self._order.tasks[number])

    async def _do(self, task: Handed) -> Report:
        try:
            return await self._runner.run(task)
        except Exception as error:  # noqa: BLE001 - of this task nothing is known, and the others go on
            return Broken(f"{type(error).__name__}: {error}")


def host_of(task: Handed) -> str:
    return job_and_host_of(task)[1]


def job_and_host_of(task: Handed) -> tuple[str, str]:
    """Return the job of a task and the host whose turn it needs first; two empty texts for data that is no task, which
    the runner reports."""
    try:
        found = decode(DownloadTask, task.data)
    except MalformedMessage:
        return "", ""
    return found.job_id, host_named(found.url)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
