"""Puts together what a step has sent in pieces: `llm.chunk.v1`, in whatever order and however often the pieces come."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from slipstream.bus import Message, Subscription
from slipstream.endings import end_tasks
from slipstream.slip import clock
from slipstream.slip.control import Deadline
from slipstream.slip.event import Event, Malformed, RoutingStep, Status, StepError, decode, encode
from slipstream.slip.incoming import receive
from slipstream.slip.kit import Kit
from slipstream.slip.settings import subscribe_options
from slipstream.slip.slip import active, find, given_up, life_of, run_of, settled, with_step
from slipstream.slip.station import RunningStation, Station
from slipstream.slip.store import Timer
from slipstream.slip.timers import Timers
from slipstream.slip.topics import CHUNKS
from slipstream.slip.waiting import deadline_of

log = logging.getLogger(__name__)

MISSING_SHOWN = 20


class Chunk(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The payload of a piece. `text` is what is put together; a piece that is no text is `data`."""

    chunk_index: Annotated[int, msgspec.Meta(ge=0)]
    total_chunks: Annotated[int, msgspec.Meta(ge=1)] | None = None
    text: str | None = None
    data: Any = None


class Aggregation(msgspec.Struct, frozen=True):
    """How an aggregator does its step."""

    into: str = "reply"
    """The field of the payload for the whole."""
    timeout_s: float = 60.0
    partial: bool = False
    """Whether a whole with gaps is better than none, when the time is over."""


class RunningAggregator(RunningStation):
    """A step that waits for its pieces. They are facts in the store, and so is the message while it waits: whichever
    process has the last piece in hand finds all the others."""

    def __init__(
        self,
        station: Station,
        aggregation: Aggregation,
        kit: Kit,
    ) -> None:
        super().__init__(station, kit)
        self._aggregation = aggregation
        self._queue = f"aggregator:{station.step_id}"
        self._timers = Timers(kit.store, self._queue, self._deadline, kit.settings)
        self._chunks: Subscription | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._looks: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        self._chunks = await self._bus.subscribe(
            CHUNKS,
            self._station.group,
            self._take_chunk,
            subscribe_options(self._settings, self._max_in_flight),
        )
        await super().start()
        self._ticking = asyncio.create_task(self._timers.run())

    async def stop(self) -> None:
        if self._chunks is not None:
            await self._chunks.close(self._bus.settings.drain_timeout_ms / 1000)
        if self._ticking is not None:
            await end_tasks(self._ticking)
        await super().stop()

    # Pieces

    async def _take_chunk(self, message: Message) -> None:
        try:
            event = receive(message.data)
            chunk = msgspec.convert(event.payload, Chunk)
        except (Malformed, msgspec.ValidationError) as error:
            await self._outbox.bury_undecoded(message, StepError("malformed", f"no chunk: {error}", retryable=False))
            return
        if max(chunk.chunk_index, (chunk.total_chunks or 1) - 1) >= self._settings.chunks_max:
            reason = (
                f"chunk {chunk.chunk_index} of {chunk.total_chunks}: SLIP_CHUNKS_MAX is {self._settings.chunks_max}"
            )
            await self._outbox.bury_undecoded(message, StepError("too_many_chunks", reason, retryable=False))
            return
        correlation_id = event.envelope.correlation_id
        name = f"{_stream(event)}{chunk.chunk_index}"
        await self._ledger.claim(correlation_id, name, msgspec.json.encode(chunk))
        await self._look(correlation_id)

    async def _look(self, correlation_id: str) -> None:
        """Whether all pieces are there: once for all that came meanwhile, since each look reads all of them."""
        running = self._looks.get(correlation_id)
        if running is not None:
            await asyncio.wait({running})  # it may have looked before our piece was there
        task = self._looks.get(correlation_id)
        if task is None or task is running:
            task = self._looks[correlation_id] = asyncio.create_task(self._gather(correlation_id, timed_out=False))
            task.add_done_callback(lambda done: self._looked(correlation_id, done))
        await asyncio.shield(task)

    def _looked(self, correlation_id: str, task: asyncio.Task[None]) -> None:
        if self._looks.get(correlation_id) is task:
            del self._looks[correlation_id]

    # The message

    async def _attempt(self, event: Event, step: RoutingStep, message: Message) -> None:
        began = clock.now()
        correlation_id = event.envelope.correlation_id
        step = replace(step, started_at=began, attempt=step.attempt or 0)
        event = with_step(event, step)
        deadline_ms = deadline_of(step) or round(self._aggregation.timeout_s * 1000)
        await self._ledger.put(correlation_id, self._gathering, encode(event), for_ms=deadline_ms)
        errand = Deadline(correlation_id, step.id, run_of(event))
        due_ms = clock.now_ms() + deadline_ms
        await self._ledger.store.schedule(
            self._queue, Timer(f"{life_of(event)}:{step.attempt}", due_ms, msgspec.json.encode(errand))
        )
        await self._reporter.tell("waiting", event, step, began, detail="chunks")
        await self._look(correlation_id)

    @property
    def _gathering(self) -> str:
        return f"gathering:{self._station.step_id}"

    async def _deadline(self, timer: Timer) -> None:
        deadline = msgspec.json.decode(timer.value, type=Deadline)
        await self._gather(deadline.correlation_id, timed_out=True, run=deadline.run)

    async def _gather(self, correlation_id: str, *, timed_out: bool, run: int | None = None) -> None:
        waiting = await self._ledger.get(correlation_id, self._gathering)
        if waiting is None:
            return  # the message has not come yet, or is done
        event = decode(waiting)
        if run is not None and run != run_of(event):
            return  # the time of an earlier run is over
        step = find(event, self._station.step_id)
        assert step is not None
        chunks = await self._chunks_of(event)
        total = next((chunk.total_chunks for chunk in chunks.values() if chunk.total_chunks is not None), None)
        missing = [index for index in range(total or max(chunks, default=0) + 1) if index not in chunks]
        if total is not None and not missing:
            await self._settle(event, step, settled(step, Status.OK, clock.now()), _whole(chunks, total))
        elif timed_out and self._aggregation.partial and chunks:
            after = replace(settled(step, Status.OK, clock.now()), notes=_gaps(missing, total))
            await self._settle(event, step, after, _whole(chunks, total))
        elif timed_out:
            error = StepError("chunks_missing", _gaps(missing, total))
            await self._settle(event, step, given_up(step, clock.now(), error), None)

    async def _chunks_of(self, event: Event) -> dict[int, Chunk]:
        """Those of the attempt that succeeded: of one that failed in the middle there may be some, too. The last step
        that has sent any has them."""
        for step in reversed(event.envelope.routing_slip):
            if facts := await self._facts(event, _stream_of(run_of(event), step)):
                return facts
        return await self._facts(event, _stream_of(0, None))

    async def _facts(self, event: Event, stream: str) -> dict[int, Chunk]:
        facts = await self._ledger.facts(event.envelope.correlation_id, stream)
        # Those of a step whose name starts with this one's and goes on with a colon are not its own.
        own = {int(index): value for index, value in facts.items() if index.isdecimal()}
        return {index: msgspec.json.decode(value, type=Chunk) for index, value in own.items()}

    async def _settle(self, event: Event, step: RoutingStep, after: RoutingStep, whole: Any) -> None:
        before = event
        if whole is not None and isinstance(event.payload, dict):
            event = replace(event, payload={**event.payload, self._aggregation.into: whole})
        await self._conclude(before, with_step(event, after), step, [])
        correlation_id = event.envelope.correlation_id
        await self._ledger.store.unschedule(self._queue, f"{life_of(event)}:{step.attempt}")
        await self._ledger.remove(correlation_id, self._gathering)


def _stream(event: Event) -> str:
    """The pieces of one attempt belong together; those of who sends no slip along, too."""
    return _stream_of(run_of(event), active(event))


def _stream_of(run: int, step: RoutingStep | None) -> str:
    return "chunk::" if step is None else f"chunk:{run}:{step.id}:{step.attempt or 0}:"


def _whole(chunks: dict[int, Chunk], total: int | None) -> Any:
    ordered = [chunks[index] for index in sorted(chunks) if total is None or index < total]
    texts = [chunk.text for chunk in ordered if chunk.text is not None]
    return "".join(texts) if len(texts) == len(ordered) else [chunk.data for chunk in ordered]


def _gaps(missing: list[int], total: int | None) -> str:
    if total is None and not missing:
        return "the last chunk has not come: none has said how many there are"
    shown = ", ".join(map(str, missing[:MISSING_SHOWN])) + (" …" if len(missing) > MISSING_SHOWN else "")
    return f"{len(missing)} chunks have not come, of {total or 'unknown'}: {shown}"
