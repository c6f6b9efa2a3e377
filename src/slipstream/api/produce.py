"""Producing: one message or many in one request."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from slipstream.api.retry import RetryPolicyFields

PayloadT = TypeVar("PayloadT")
"""str in JSON, bytes in MessagePack."""

Time = Annotated[dt.datetime, msgspec.Meta(tz=True, description="RFC 3339, with a time zone.")]
Encoding = Literal["base64"]


class EnvelopeFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The envelope a producer may set. Every field is optional."""

    run_id: str | None = None
    step_id: str | None = None
    parent_step_id: str | None = None
    tenant_id: str | None = None
    idempotency_key: str | None = None
    """A second message with this key is not stored while the first is remembered."""
    target_topic: str | None = None
    deadline: Time | None = None
    retry_policy: RetryPolicyFields | None = None
    partition_override: int | None = None
    labels: dict[str, str] | None = None


class ProduceMessage(
    msgspec.Struct, Generic[PayloadT], forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True
):
    """One message to be stored."""

    value: PayloadT
    key: PayloadT | None = None
    encoding: Encoding | None = None
    """JSON only: `value` is base64."""
    key_encoding: Encoding | None = None
    """JSON only: `key` is base64."""
    attributes: dict[str, str] | None = None
    envelope: EnvelopeFields | None = None
    deliver_at: Time | None = None
    """Consumers get it no earlier than this."""
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Consumers get it no earlier than this long from now."""


class ProduceRequest(
    msgspec.Struct, Generic[PayloadT], forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True
):
    """`POST /v2/produce`: all of the messages are stored, or none."""

    topic: str
    messages: list[ProduceMessage[PayloadT]]
    idempotency_key: str | None = None
    """Of the whole batch: repeated, it stores nothing and answers as the first time."""


class Placed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a message went."""

    partition: int
    offset: int
    deduplicated: bool = False
    """It was stored before, there; this time nothing was stored."""
    topic: str | None = None
    """Only if it is not the topic of the request: a router or the envelope sent it there."""


class ProduceResponse(msgspec.Struct, frozen=True):
    """One place for each message, in the order of the request. They are as safe as the durability promises."""

    topic: str
    messages: list[Placed]
