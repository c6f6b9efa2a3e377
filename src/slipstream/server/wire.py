"""The bodies and query parameters of `/v1`, as DriftQ has them: unknown fields are refused, null means absent."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Annotated, TypeVar
from urllib.parse import parse_qsl

import msgspec

from slipstream.api import EnvelopeFields, RetryPolicyFields
from slipstream.broker import Envelope, InvalidArgument, RetryPolicy, Routing

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}\Z")

RETRY_NUMBER_MAX = 2**53
"""Larger than any sense, and what every JSON library can carry."""

Deadline = Annotated[dt.datetime, msgspec.Meta(tz=True)]


class WireRetryPolicy(msgspec.Struct, forbid_unknown_fields=True):
    max_attempts: int | None = None
    backoff_ms: int | None = None
    max_backoff_ms: int | None = None


class WireEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    run_id: str | None = None
    step_id: str | None = None
    parent_step_id: str | None = None
    tenant_id: str | None = None
    idempotency_key: str | None = None
    target_topic: str | None = None
    deadline: Deadline | None = None
    retry_policy: WireRetryPolicy | None = None
    partition_override: int | None = None


def to_envelope(fields: WireEnvelope | EnvelopeFields) -> Envelope:
    return Envelope(
        run_id=fields.run_id or "",
        step_id=fields.step_id or "",
        parent_step_id=fields.parent_step_id or "",
        tenant_id=fields.tenant_id or "",
        idempotency_key=fields.idempotency_key or "",
        target_topic=fields.target_topic or "",
        deadline=None if fields.deadline is None else _in_utc(fields.deadline, "deadline"),
        retry_policy=_retry_policy(fields.retry_policy),
        partition_override=fields.partition_override,
        labels=fields.labels if isinstance(fields, EnvelopeFields) else None,
    )


class ProduceRequest(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    key: str | None = None
    value: str | None = None
    envelope: WireEnvelope | None = None


class TopicRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    partitions: int | None = None


class ConsumeRequest(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    group: str | None = None
    owner: str | None = None
    lease_ms: int | None = None
    # Ours, the one addition to DriftQ's contract: how many messages the stream holds at a time.
    prefetch: int | None = None


class AckRequest(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    group: str | None = None
    owner: str | None = None
    # A Go client leaves out what is zero, so in a body absent means 0; in a query both are required.
    partition: int | None = None
    offset: int | None = None


class NackRequest(AckRequest):
    reason: str | None = None


class ConsumeItem(msgspec.Struct, omit_defaults=False):
    """One line of the stream. `routing` and `envelope` stand there only when the message has them."""

    partition: int
    offset: int
    attempts: int
    key: str
    value: str
    last_error: str
    encoding: str | msgspec.UnsetType = msgspec.UNSET
    key_encoding: str | msgspec.UnsetType = msgspec.UNSET
    routing: Routing | msgspec.UnsetType = msgspec.UNSET
    envelope: Envelope | msgspec.UnsetType = msgspec.UNSET


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def readable(error: Exception) -> str:
    """Return why a body is not such a request, without what only a reader of the types would understand."""
    text = str(error).replace(" | null", "")
    if text == "Input data was truncated":
        return "the JSON ends too early, or a string in it ends with half of a surrogate pair"
    return text


RequestT = TypeVar("RequestT", bound=msgspec.Struct)


def body_decoder(request: type[RequestT]) -> Callable[[bytes], RequestT]:
    """Return a function that decodes a body, or raises one of UNREADABLE.

    Names of fields may be in any case, as in Go, whose structs send `Topic` where no tag says `topic`.
    """
    decode_exactly = msgspec.json.Decoder(request).decode

    def decode(body: bytes) -> RequestT:
        try:
            return decode_exactly(body)
        except msgspec.ValidationError as error:
            if "unknown field" not in str(error):
                raise
        return msgspec.convert(_fold_names(msgspec.json.decode(body), request), request)

    return decode


def _fold_names(value: object, request: type[msgspec.Struct]) -> object:
    """Return a decoded object with its keys spelled as the fields of the struct, where they differ only in case."""
    if not isinstance(value, dict):
        return value
    given: dict[str, object] = value
    fields: dict[str, str] = {name.lower(): name for name in request.__struct_fields__}
    folded: dict[str, object] = {}
    for key, inner in given.items():
        name = fields.get(key.lower(), key)
        nested = _NESTED.get(name)
        folded[name] = _fold_names(inner, nested) if nested is not None else inner
    return folded


_NESTED: dict[str, type[msgspec.Struct]] = {"envelope": WireEnvelope, "retry_policy": WireRetryPolicy}


def parse_query(query: bytes) -> dict[str, str]:
    """The first value of each parameter; what is not UTF-8 is refused."""
    values: dict[str, str] = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64)
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidArgument(f"the query cannot be read: {error}") from error
    for name, value in pairs:
        values.setdefault(name, value)
    return values


def integer(query: dict[str, str], name: str) -> int | None:
    text = _trimmed(query, name)
    if not text:
        return None
    if not _INTEGER.match(text):  # int() would take "1_000" and the digits of every script
        raise InvalidArgument(f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


def _trimmed(query: dict[str, str], name: str) -> str:
    """Return a parameter as DriftQ reads it: without the space around it."""
    return query.get(name, "").strip()


def topic_from_query(query: dict[str, str]) -> TopicRequest:
    return TopicRequest(query.get("name"), integer(query, "partitions"))


def produce_from_query(query: dict[str, str]) -> ProduceRequest:
    envelope = WireEnvelope(
        run_id=_trimmed(query, "run_id"),
        step_id=_trimmed(query, "step_id"),
        parent_step_id=_trimmed(query, "parent_step_id"),
        tenant_id=_trimmed(query, "tenant_id") or _trimmed(query, "tenant"),
        idempotency_key=_trimmed(query, "idempotency_key") or _trimmed(query, "idem_key"),
        target_topic=_trimmed(query, "target_topic"),
        deadline=_deadline(query),
        retry_policy=_query_retry_policy(query),
        partition_override=integer(query, "partition_override"),
    )
    empty = all(getattr(envelope, field) in (None, "") for field in envelope.__struct_fields__)
    return ProduceRequest(query.get("topic"), query.get("key"), query.get("value"), None if empty else envelope)


def consume_from_query(query: dict[str, str]) -> ConsumeRequest:
    return ConsumeRequest(
        query.get("topic"),
        query.get("group"),
        query.get("owner"),
        integer(query, "lease_ms"),
        integer(query, "prefetch"),
    )


def ack_from_query(query: dict[str, str]) -> AckRequest:
    return AckRequest(query.get("topic"), query.get("group"), query.get("owner"), *_place(query))


def nack_from_query(query: dict[str, str]) -> NackRequest:
    place = _place(query)
    return NackRequest(query.get("topic"), query.get("group"), query.get("owner"), *place, query.get("reason"))


def _place(query: dict[str, str]) -> tuple[int, int]:
    partition, offset = integer(query, "partition"), integer(query, "offset")
    if partition is None or offset is None:
        raise InvalidArgument("partition and offset are required")
    return partition, offset


def _deadline(query: dict[str, str]) -> dt.datetime | None:
    """The document says `deadline`; clients in the wild send the other two (ruling 14)."""
    at_ms = integer(query, "deadline_ms")
    if at_ms is not None:
        try:
            return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
        except (ValueError, OverflowError, OSError):
            raise InvalidArgument("deadline_ms must be milliseconds since 1970") from None
    text = _trimmed(query, "deadline") or _trimmed(query, "deadline_rfc3339")
    if not text:
        return None
    try:
        return msgspec.convert(text, Deadline)
    except msgspec.ValidationError:
        raise InvalidArgument(f"deadline must be an RFC 3339 time, not {text[:40]!r}") from None


def _in_utc(time: dt.datetime, what: str) -> dt.datetime:
    """The last day of the year 9999 in the west is in the year 10000 here, which cannot be stored."""
    try:
        return time.astimezone(dt.UTC)
    except OverflowError:
        raise InvalidArgument(f"{what} must lie within the years 1 to 9999 UTC") from None


def time_ms(time: dt.datetime, what: str) -> int:
    # Rounded: as a float, .121 s may be a hair less than 121 ms.
    return round(_in_utc(time, what).timestamp() * 1000)


def _query_retry_policy(query: dict[str, str]) -> WireRetryPolicy | None:
    policy = WireRetryPolicy(
        integer(query, "retry_max_attempts"), integer(query, "retry_backoff_ms"), integer(query, "retry_max_backoff_ms")
    )
    if not policy.max_attempts and (policy.backoff_ms is not None or policy.max_backoff_ms is not None):
        raise InvalidArgument("retry_backoff_ms and retry_max_backoff_ms need retry_max_attempts > 0")
    return None if policy == WireRetryPolicy() else policy


def _retry_policy(policy: WireRetryPolicy | RetryPolicyFields | None) -> RetryPolicy | None:
    if policy is None:
        return None
    values = (policy.max_attempts or 0, policy.backoff_ms or 0, policy.max_backoff_ms or 0)
    if min(values) < 0:
        raise InvalidArgument("retry_policy: max_attempts, backoff_ms and max_backoff_ms must not be negative")
    if max(values) > RETRY_NUMBER_MAX:
        raise InvalidArgument(f"retry_policy: no number may be larger than {RETRY_NUMBER_MAX}")
    return RetryPolicy(*values)
