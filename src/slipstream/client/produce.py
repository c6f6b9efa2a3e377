"""Producing: one message, or some in one request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TypeAlias, TypedDict, Unpack

import msgspec

from slipstream.api import (
    EnvelopeFields,
    Placed,
    ProduceMessage,
    ProduceRequest,
    ProduceResponse,
    RetryPolicyFields,
)
from slipstream.client.errors import InvalidArgument, SlipstreamError
from slipstream.client.part import Part
from slipstream.client.retry import Repeat, Retries

Payload: TypeAlias = bytes | str
"""str is sent as UTF-8."""

Outgoing: TypeAlias = "Payload | ProduceMessage[bytes]"


class MessageFields(TypedDict, total=False):
    """What a message may have besides its value."""

    key: Payload | None
    """Messages with the same key go to the same partition, in order."""
    attributes: dict[str, str] | None
    deliver_at: dt.datetime | None
    """Consumers get it no earlier than this."""
    delay_ms: int | None
    """Consumers get it no earlier than this long from now."""
    idempotency_key: str | None
    """A second message with this key is not stored while the first is remembered."""
    tenant_id: str | None
    run_id: str | None
    step_id: str | None
    parent_step_id: str | None
    target_topic: str | None
    deadline: dt.datetime | None
    retry_policy: RetryPolicyFields | None
    partition_override: int | None
    labels: dict[str, str] | None


_BESIDE = {"key", "attributes", "deliver_at", "delay_ms"}
"""What travels beside the envelope; the other fields are in it."""


def compose(value: Payload, **fields: Unpack[MessageFields]) -> ProduceMessage[bytes]:
    """A message for `produce_batch`.

    Example:
        await client.produce_batch("orders", [compose("two books", key="user:1"), compose("one lamp", key="user:2")])
    """
    key = fields.get("key")
    envelope = {name: given for name, given in fields.items() if name not in _BESIDE}
    try:
        return ProduceMessage(
            value=_bytes(value),
            key=None if key is None else _bytes(key),
            attributes=fields.get("attributes"),
            deliver_at=fields.get("deliver_at"),
            delay_ms=fields.get("delay_ms"),
            envelope=msgspec.convert(envelope, EnvelopeFields) if envelope else None,
        )
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"the message cannot be right: {error}") from error


def composed(messages: Iterable[Outgoing]) -> list[ProduceMessage[bytes]]:
    """Each as a message; one that is only a value gets nothing else."""
    if isinstance(messages, str | bytes):
        raise InvalidArgument("messages are several: put the one into a list")
    return [message if isinstance(message, ProduceMessage) else compose(message) for message in messages]


class Produce(Part):
    async def produce(self, topic: str, value: Payload, **fields: Unpack[MessageFields]) -> Placed:
        """Stores a message and returns where; when it returns, the message is as safe as the server promises.

        Repeated after a failure only where that cannot store it twice: give it an `idempotency_key` and it always is.
        For many messages there is `producer`.

        Example:
            await client.produce("orders", "two books", key="user:1", idempotency_key="order-17")
        """
        (placed,) = await self.produce_batch(topic, [compose(value, **fields)])
        return placed

    async def produce_batch(
        self, topic: str, messages: Iterable[Outgoing], *, idempotency_key: str | None = None
    ) -> list[Placed]:
        """Stores all of them or none, and returns where each went. A batch with an `idempotency_key` is stored once,
        however often it is sent.

        Example:
            await client.produce_batch("orders", ["a", "b", compose("c", key="user:1")], idempotency_key="import-7")
        """
        return await self._produce(topic, composed(messages), idempotency_key, None)

    async def _produce(
        self, topic: str, messages: list[ProduceMessage[bytes]], idempotency_key: str | None, retries: Retries | None
    ) -> list[Placed]:
        if not messages:
            return []
        request = ProduceRequest(topic=topic, messages=messages, idempotency_key=idempotency_key)
        # Without keys a second request stores everything a second time. 429 has stored nothing, and neither has a
        # server that was never reached; after anything else nobody knows, and the caller is told so.
        keyed = idempotency_key or all(message.envelope and message.envelope.idempotency_key for message in messages)
        repeat = Repeat.KEYED if keyed else Repeat.UNDONE
        response = await self._transport.call(
            "POST", "/v2/produce", ProduceResponse, repeat, body=request, retries=retries
        )
        if len(response.messages) != len(messages):
            raise SlipstreamError(
                f"the answer to POST /v2/produce makes no sense: {len(response.messages)} places for {len(messages)} "
                "messages; whether they were stored is not known"
            )
        return response.messages


def _bytes(payload: Payload) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload
