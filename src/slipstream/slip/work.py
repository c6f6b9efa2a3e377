"""What a step has in hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from slipstream.bus import Bus, Message, Reject
from slipstream.slip import clock, hints
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event, RoutingStep, Status, decode, encode
from slipstream.slip.identity import identity
from slipstream.slip.itinerary import Itinerary
from slipstream.slip.ledger import Ledger
from slipstream.slip.slip import life_of, with_step
from slipstream.slip.topics import CHUNKS


class Work:
    """One attempt at a step of a message. The handler changes `payload`, or returns fields to put into it."""

    def __init__(self, event: Event, step: RoutingStep, message: Message, bus: Bus, ledger: Ledger) -> None:
        self.event = event
        """As it came, except that its payload is the one at hand."""
        self.step = step
        self.payload: Any = event.payload
        self.message = message
        self.bus = bus
        self._ledger = ledger
        self._itinerary: Itinerary | None = None
        self._hints: dict[str, str] = {}
        self._notes: str | None = None

    @property
    def correlation_id(self) -> str:
        return self.event.envelope.correlation_id

    @property
    def attempt(self) -> int:
        """0 the first time."""
        return self.step.attempt or 0

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt + 1 >= (self.step.max_attempts or 1)

    @property
    def itinerary(self) -> Itinerary:
        """What lies ahead, to be changed: `work.itinerary.skip("formatter")`."""
        if self._itinerary is None:
            self._itinerary = Itinerary(self.event, clock.now(), at_hand=self.step.id)
        return self._itinerary

    def note(self, notes: object) -> None:
        """What others should know of this step: text, or something that is sent as JSON."""
        self._notes = notes if isinstance(notes, str) else msgspec.json.encode(notes).decode()

    # Undoing

    def undo_with(self, record: object) -> None:
        """Should the message fail, at a later step or at the last attempt at this one, whoever undoes this one is given
        the record."""
        if hints.UNDOES in self.step.attributes:
            raise InvalidSlip(f"{self.step.id} undoes a step: it cannot be undone itself")
        self._hints[hints.UNDO] = msgspec.json.encode(record).decode()

    @property
    def record(self) -> Any:
        """In a step that undoes another: what that one has left for it."""
        text = self.step.attributes.get(hints.UNDO)
        return None if text is None else msgspec.json.decode(text)

    # Side effects

    def idempotency_key(self, name: str = "") -> str:
        """For services that take one. It is the same at every attempt, and another for every step and message; also in
        a rerun, unless the step was undone before."""
        return identity(self.correlation_id, self.step.id, name, *self._redo)

    async def once(self, name: str, act: Callable[[], Any]) -> Any:
        """What `act` returns; if that was written down at an earlier attempt, without doing it again. A process that
        dies between doing it and writing it down does it again: give it `idempotency_key(name)` where it takes one.

        Example:
            receipt = await work.once("charge", lambda: bank.charge(card, work.idempotency_key("charge")))
        """
        fact = ":".join(("once", self.step.id, name, *self._redo))
        kept = await self._ledger.get(self.correlation_id, fact)
        if kept is None:
            done = act()
            if inspect.isawaitable(done):
                done = await done
            kept = await self._ledger.claim(self.correlation_id, fact, _encoded_once(name, done))
        return msgspec.json.decode(kept)

    @property
    def _redo(self) -> tuple[str, ...]:
        """Else a charge that was refunded would be taken for one that need not be made again."""
        redo = self.step.attributes.get(hints.REDO)
        return () if redo is None else (redo,)

    def delivered(self) -> None:
        """The artefact is where it should be: the router need not deliver it."""
        self._hints[hints.DELIVERED] = "true"

    async def emit_chunk(self, index: int, text: str, total: int | None = None) -> None:
        """A piece of what this step makes, for those who want it before it is whole, and for the aggregator. `total` is
        said with the last, at the latest."""
        if index < 0 or (total is not None and index >= total):
            raise InvalidSlip(f"chunk {index} of {total}: they count from 0, and the last is total - 1")
        payload: dict[str, Any] = {"chunkIndex": index, "text": text}
        if total is not None:
            payload["totalChunks"] = total
        chunk = replace(self.event, type=CHUNKS, payload=payload)
        await self.bus.publish(
            CHUNKS,
            encode(chunk),
            {"correlationId": self.correlation_id, "stepId": self.step.id},
            key=self.correlation_id,
            message_id=identity(life_of(self.event), self.step.id, self.attempt, "chunk", index),
        )

    # For the harness

    def done(self, step: RoutingStep, returned: object) -> Event:
        """The event as the step leaves it."""
        if returned is not None:
            if not isinstance(returned, dict) or not isinstance(self.payload, dict):
                kind = type(returned).__name__
                raise InvalidSlip(f"a step returns None, or a dict of fields to put into the payload, and not {kind}")
            # Into a copy: what was returned may contain the payload itself.
            self.payload = {**self.payload, **returned}
        step = self._with_notes(step)
        if self._hints:
            step = replace(step, attributes=step.attributes | self._hints)
        event = self.event if self._itinerary is None else self._itinerary.apply(self.event)
        steps = tuple([step if step.id == other.id else other for other in event.envelope.routing_slip])
        return replace(event, payload=self.payload, envelope=replace(event.envelope, routing_slip=steps))

    def failed(self, step: RoutingStep) -> Event:
        """What the attempt has done to the payload and to what lies ahead is not kept. The record by which to undo it
        is, if there is no other attempt."""
        if step.status is not Status.PENDING and hints.UNDO in self._hints:
            step = replace(step, attributes=step.attributes | {hints.UNDO: self._hints[hints.UNDO]})
        return with_step(decode(self.message.data), self._with_notes(step))

    def _with_notes(self, step: RoutingStep) -> RoutingStep:
        return step if self._notes is None else replace(step, notes=self._notes)


def _encoded_once(name: str, done: object) -> bytes:
    """Another attempt would do it again, and fail in the same way: there is none."""
    try:
        return msgspec.json.encode(done)
    except (TypeError, ValueError, RecursionError) as error:
        raise Reject(f"{name} is done, and what it returned cannot be kept as JSON: {error}") from error
