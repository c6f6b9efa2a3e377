"""The steps of a service, and the functions that do them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from slipstream import handlers
from slipstream.bus import Bus
from slipstream.bus.names import check_name
from slipstream.endings import end_tasks
from slipstream.slip.aggregator import Aggregation, RunningAggregator
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.kit import Kit
from slipstream.slip.presence import Heartbeat
from slipstream.slip.retries import Retries
from slipstream.slip.routes.duration import seconds
from slipstream.slip.service import run
from slipstream.slip.settings import SlipSettings, load_settings
from slipstream.slip.slip import ROUTER, UNDO_ID
from slipstream.slip.station import RunningStation, Station
from slipstream.slip.store import Store
from slipstream.slip.topics import default_topic, undo_topic

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class Worker:
    """The steps of a service.

    Example:
        worker = Worker()

        @worker.step("retrieval")
        async def retrieval(work: Work) -> None:
            work.payload["documents"] = await search(work.payload["text"])

        worker.run()
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._stations: list[tuple[Station, Aggregation | None]] = []

    def step(
        self,
        step_id: str,
        *,
        topic: str | None = None,
        timeout: float | str | dt.timedelta | None = None,
        max_in_flight: int | None = None,
        retries: Retries | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """The function does this step: `async`, or an ordinary one, which runs in a thread. `timeout` is for one
        attempt, in seconds; a slip may say its own. `topic` is where the slip sends it, by default
        `internal.<id>.v1`."""
        return self._station(step_id, topic or default_topic(step_id), False, timeout, max_in_flight, retries)

    def undo(
        self,
        step_id: str,
        *,
        timeout: float | str | dt.timedelta | None = None,
        max_in_flight: int | None = None,
        retries: Retries | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """The function undoes this step, by `work.record`, when a later one has failed for good."""
        return self._station(step_id, undo_topic(step_id), True, timeout, max_in_flight, retries)

    def aggregator(
        self,
        step_id: str = "aggregator",
        *,
        into: str = "reply",
        timeout: float | str | dt.timedelta = 60.0,
        partial: bool = False,
        topic: str | None = None,
    ) -> None:
        """This step puts together the chunks that earlier steps have sent, into this field of the payload. If some have
        not come after `timeout`, the step fails, or with `partial` does with those that have."""
        _check_step_id(step_id)
        station = Station(step_id=step_id, topic=topic or default_topic(step_id), group=f"step-{step_id}")
        self._add(station, Aggregation(into, seconds("timeout", timeout), partial))

    def _station(
        self,
        step_id: str,
        topic: str,
        undoes: bool,
        timeout: float | str | dt.timedelta | None,
        max_in_flight: int | None,
        retries: Retries | None,
    ) -> Callable[[HandlerT], HandlerT]:
        _check_step_id(step_id)
        timeout_s = None if timeout is None else seconds("timeout", timeout)
        if max_in_flight is not None and max_in_flight < 1:
            raise InvalidSlip(f"max_in_flight={max_in_flight}: at least one message is worked at")

        def register(handler: HandlerT) -> HandlerT:
            if refusal := handlers.why_not(handler):
                raise InvalidSlip(refusal)
            station = Station(
                step_id=step_id,
                handler=handler,
                topic=topic,
                group=f"{'undo' if undoes else 'step'}-{step_id}",
                undoes=undoes,
                timeout_s=timeout_s,
                max_in_flight=max_in_flight,
                retries=retries,
            )
            self._add(station, None)
            return handler

        return register

    def _add(self, station: Station, aggregation: Aggregation | None) -> None:
        check_name("topic", station.topic)
        check_name("group", station.group)
        if any(station.topic == other.topic for other, _ in self._stations):
            raise InvalidSlip(f"this worker has a function for {station.topic} already")
        self._stations.append((station, aggregation))

    @contextlib.asynccontextmanager
    async def running(self, bus: Bus, store: Store, settings: SlipSettings | None = None) -> AsyncIterator[None]:
        """At work on this bus, until the end of the `async with`, which lets handlers finish."""
        if not self._stations:
            raise InvalidSlip("this worker has no step: give it a function with @worker.step(…)")
        settings = settings or load_settings({})
        kit = Kit(bus, store, settings, self.name)
        steps = {station.step_id: station.topic for station, _ in self._stations if not station.undoes}
        heartbeat = Heartbeat(store, kit.reporter.by, steps, settings.ttl_ms)
        watching: list[asyncio.Task[None]] = []
        running = [
            RunningStation(station, kit) if aggregation is None else RunningAggregator(station, aggregation, kit)
            for station, aggregation in self._stations
        ]
        try:
            for station in running:
                await station.start()
            await heartbeat.start()
            if settings.decentralised:  # then it sends messages to their next step itself
                watching.append(asyncio.create_task(kit.unserved.run()))
            yield
        finally:
            await end_tasks(*watching)
            await asyncio.gather(*(station.stop() for station in running))
            await heartbeat.stop()

    def run(self) -> None:
        """A whole service, on the bus and the store that the environment names, until SIGTERM or Ctrl-C."""
        run(self)


def _check_step_id(step_id: object) -> None:
    if callable(step_id):
        raise InvalidSlip(f"which step does {step_id!r} do? Write @worker.step(…) with the id of the step")
    if not isinstance(step_id, str) or not step_id:
        raise InvalidSlip(f"a step has an id, such as retrieval, and not {step_id!r}")
    if step_id == ROUTER:
        raise InvalidSlip(f"the step {ROUTER} is the router's, which is done when the slip is planned")
    if step_id.startswith(UNDO_ID):
        undone = step_id.removeprefix(UNDO_ID)
        raise InvalidSlip(f"ids that begin with {UNDO_ID} are the router's: write @worker.undo({undone!r})")
