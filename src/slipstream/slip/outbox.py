"""Sends events on the bus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from slipstream.bus import Bus, InvalidArgument, Message
from slipstream.slip import clock, hints
from slipstream.slip.dead_letter import DeadLetter, encode_dead_letter, shortened, undecoded
from slipstream.slip.event import Event, RoutingStep, StepError, encode
from slipstream.slip.identity import identity
from slipstream.slip.slip import active
from slipstream.slip.topics import DEAD_LETTERS, ROUTER
from slipstream.slip.tracing import joined

log = logging.getLogger(__name__)

RETURNED_FROM = "returnedFrom"
"""The attribute of what a worker sends back to the router as it came."""


class Outbox:
    """The `message_id` says which message it is, however often it is sent: engines that can tell store it once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def send(
        self,
        topic: str,
        event: Event,
        message_id: str,
        *,
        step: RoutingStep | None = None,
        data: bytes | None = None,
        outcome: str = "",
    ) -> Awaitable[asyncio.Future[str]]:
        """On its way when it is awaited, and safe when the future is done. `step` is where it is, and `data` the event,
        if these are known; `outcome` names the attempt whose outcome it is, if that is written down."""
        correlation_id = event.envelope.correlation_id
        step = step or active(event)
        attributes = hints.transport(step) if step is not None else {}
        attributes["correlationId"] = correlation_id
        attributes["stepId"] = step.id if step is not None else ""
        if outcome and topic == ROUTER:
            # So that the router can tell it from what comes from services that keep no outcomes in the store.
            attributes["outcome"] = outcome
        traceparent = joined(event.envelope.trace_id)
        if traceparent is not None:
            attributes.setdefault("traceparent", traceparent)
        return self._bus.send(topic, data or encode(event), attributes, correlation_id, message_id=message_id)

    async def bury(self, letter: DeadLetter, message_id: str) -> None:
        envelope = letter.envelope
        correlation_id = envelope.correlation_id if envelope is not None else None
        attributes = {"correlationId": correlation_id, "code": letter.error.code}
        data = encode_dead_letter(letter)
        try:
            await self._bus.publish(DEAD_LETTERS, data, attributes, correlation_id, message_id=message_id)
        except InvalidArgument as refusal:
            # It has all that the message had, and more: what just fitted may not fit in it.
            log.warning("the dead letter of %.80s is sent without its contents: %s", correlation_id, refusal)
            data = encode_dead_letter(shortened(letter))
            await self._bus.publish(DEAD_LETTERS, data, {"code": letter.error.code}, message_id=message_id)

    async def bury_undecoded(self, message: Message, error: StepError) -> None:
        log.warning("%r is a dead letter: %s", message, error.message)
        letter = undecoded(message.attributes.get(RETURNED_FROM, message.topic), message.data, error, clock.now())
        await self.bury(letter, identity(message.topic, message.id))

    async def to_router(self, message: Message) -> None:
        """As it came, whatever it is: the router knows what is to be done about it."""
        attributes = {"correlationId": message.correlation_id, RETURNED_FROM: message.topic}
        message_id = identity(message.topic, message.id, "returned")
        try:
            await self._bus.publish(ROUTER, message.data, attributes, message.key, message_id=message_id)
        except InvalidArgument as refusal:  # it has just fitted where it came from
            await self.bury_undecoded(message, StepError("unsendable", str(refusal), retryable=False))
