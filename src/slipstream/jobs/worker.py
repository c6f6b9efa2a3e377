"""A worker: takes tasks, has them done, and settles them.

A task is acked when its end is safe in the streams, and not before. If the worker dies another one does it again: to
store a resource twice leaves one object, and the ledger counts it once. A task that only waits for its host goes back
to the stream when others need the room, and that delivery is not counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from slipstream.bus import Bus, Message, Postpone, Retry
from slipstream.jobs.burials import Burials
from slipstream.jobs.config import JobConfig
from slipstream.jobs.controls import Controls
from slipstream.jobs.download.fetch import Fetcher
from slipstream.jobs.given_back import Attempts
from slipstream.jobs.groups import worker_options
from slipstream.jobs.handed import handed
from slipstream.jobs.plan import Planner
from slipstream.jobs.progress import Transfers
from slipstream.jobs.provision import ensure_topics
from slipstream.jobs.reporter import Reporter
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.storage import Storages
from slipstream.jobs.streams import WORKERS, streams
from slipstream.jobs.task_runner import GivenBack, TaskRunner


class Worker:
    """Any number of them share the tasks.

    Example:
        async with open_bus() as bus, Worker(settings, config, storages).running(bus):
            await bus.until_stopped()
    """

    def __init__(self, settings: JobSettings, config: JobConfig, storages: Storages) -> None:
        """Raises InvalidJobs."""
        self._settings = settings
        self._hosts = config.hosts
        self._planner = Planner(config, storages)
        self._streams = streams(settings.namespace)
        self._attempts = Attempts()
        self._runner: TaskRunner

    @contextlib.asynccontextmanager
    async def running(self, bus: Bus) -> AsyncIterator[Worker]:
        settings, found = self._settings, self._streams
        async with (
            contextlib.AsyncExitStack() as stack,
            Fetcher(
                settings,
                hosts=self._hosts,
                waiting_max=waiting_max(settings),
                hold_s_max=settings.hold_ms / 1000,
            ) as fetcher,
            Reporter(bus, found.logs.topic).running() as reporter,
        ):
            burials = Burials(bus, found.dlq.topic, reporter)
            runner = self._runner = TaskRunner(bus, settings, self._planner, fetcher, reporter, burials)
            await ensure_topics(bus, found)
            runner.transfers = await stack.enter_async_context(Transfers(reporter, fetcher.hosts).running())
            runner.controls = await stack.enter_async_context(
                Controls(bus, found.control.topic, runner.stop_cancelled).running()
            )
            subscription = await bus.subscribe(found.tasks.topic, WORKERS, self._take, worker_options(settings))
            try:
                yield self
            finally:
                fetcher.hosts.stop()  # downloads under way may finish, and no other begins
                await subscription.close(bus.settings.drain_timeout_ms / 1000)

    async def _take(self, message: Message) -> None:
        outcome = await self._runner.run(handed(message, self._attempts.known(message.id)))
        if isinstance(outcome, GivenBack):
            self._attempts.remember(message.id, outcome.past)
            if outcome.is_counted:
                raise Retry(outcome.why, delay_ms=outcome.delay_ms)
            raise Postpone(outcome.why, delay_ms=outcome.delay_ms)


def waiting_max(settings: JobSettings) -> int:
    """How many tasks may wait in a worker: half of the window beside the downloads, so that the other half is free to
    look at tasks of other hosts."""
    return max(0, settings.max_in_flight - settings.concurrency) // 2
