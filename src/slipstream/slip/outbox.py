"""Sends events on the bus."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging

from slipstream.bus import Bus, InvalidArgument, Message
from slipstream.slip import hints
from slipstream.slip.dead_letter import DeadLetter, dead_letter, encode_dead_letter, shortened, undecoded
from slipstream.slip.event import Event, StepError, encode
from slipstream.slip.progress import identity
from slipstream.slip.slip import active, outcome_name
from slipstream.slip.topics import DEAD_LETTERS, ROUTER
from slipstream.slip.tracing import joined

log = logging.getLogger(__name__)


class Outbox:
    """The `message_id` says which message it is, however often it is sent: engines that can tell store it once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def send(self, topic: str, event: Event, message_id: str, data: bytes | None = None) -> asyncio.Future[str]:
        """On its way when this returns, and safe when the future is done. `data` is the event, if it is encoded."""
        correlation_id = event.envelope.correlation_id
        step = active(event)
        attributes = hints.transport(step) if step is not None else {}
        attributes["correlationId"] = correlation_id
        attributes["stepId"] = step.id if step is not None else ""
        if topic == ROUTER:
            # So that the router can tell it from what comes from services that keep no outcomes in the store.
            attributes["outcome"] = outcome_name(event)
        traceparent = joined(event.envelope.trace_id)
        if traceparent is not None:
            attributes.setdefault("traceparent", traceparent)
        return await self._bus.send(topic, data or encode(event), attributes, correlation_id, message_id=message_id)

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
        letter = undecoded(message.topic, message.data, error, dt.datetime.now(dt.UTC))
        await self.bury(letter, identity(message.topic, message.id))

    async def bury_unfollowed(self, message: Message, event: Event, error: StepError) -> None:
        """An event whose slip makes no sense."""
        log.warning("%r is a dead letter: %s", message, error.message)
        letter = dead_letter(event, None, error, dt.datetime.now(dt.UTC))
        await self.bury(letter, identity(message.topic, message.id))
