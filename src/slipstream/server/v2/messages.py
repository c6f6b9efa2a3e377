"""Messages between the wire and the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from slipstream.api import AttemptInfo, DeadLetterItem, FetchedMessage, LogMessage, ProduceMessage, ProduceRequest
from slipstream.api.codec import MSGPACK_CODEC, Codec
from slipstream.broker import NO_META, Delivery, Envelope, Evidence, InvalidArgument, NewMessage, decode_meta
from slipstream.record import Record
from slipstream.server.v2.codec import Form, payload_bytes
from slipstream.server.wire import time_ms, to_envelope

_decode_json_request = msgspec.json.Decoder(ProduceRequest[str]).decode
_decode_json_list = msgspec.json.Decoder(list[ProduceMessage[str]]).decode
_decode_json_one = msgspec.json.Decoder(ProduceMessage[str])
_decode_msgpack_request = msgspec.msgpack.Decoder(ProduceRequest[bytes]).decode
_decode_msgpack_list = msgspec.msgpack.Decoder(list[ProduceMessage[bytes]]).decode
_decode_msgpack_one = msgspec.msgpack.Decoder(ProduceMessage[bytes]).decode
# Some libraries write text as `str`; then the bytes are looked for one by one.
_decode_loose_request = msgspec.msgpack.Decoder(ProduceRequest[Any]).decode
_decode_loose_list = msgspec.msgpack.Decoder(list[ProduceMessage[Any]]).decode
_decode_loose_one = msgspec.msgpack.Decoder(ProduceMessage[Any]).decode


def decode_produce(form: Form, body: bytes, topic: str, idempotency_key: str) -> ProduceRequest[Any]:
    """A whole request; or, where the query names the topic, a message, an array of messages, or lines of them."""
    if form == "ndjson":
        if not topic:
            raise InvalidArgument("name the topic in the query: /v2/produce?topic=…")
        messages: list[ProduceMessage[Any]] = list(_decode_json_one.decode_lines(body))
        return ProduceRequest(topic=topic, messages=messages, idempotency_key=idempotency_key or None)
    if not topic:
        if form == "json":
            return _decode_json_request(body)
        try:
            return _decode_msgpack_request(body)
        except msgspec.ValidationError:
            return _decode_loose_request(body)
    messages = _decode_messages(form, body)
    return ProduceRequest(topic=topic, messages=messages, idempotency_key=idempotency_key or None)


def count_at_most(form: Form, body: bytes) -> int:
    """How many messages there can be, about, without decoding any: each has a value, or a line."""
    if form == "ndjson":
        return body.count(b"\n") + 1
    return body.count(b'"value"' if form == "json" else b"\xa5value")


def _decode_messages(form: Form, body: bytes) -> list[ProduceMessage[Any]]:
    if form == "json":
        if body.lstrip()[:1] == b"[":
            return list(_decode_json_list(body))
        return [_decode_json_one.decode(body)]
    if body[:1] and (0x90 <= body[0] <= 0x9F or body[0] in {0xDC, 0xDD}):  # a MessagePack array
        try:
            return list(_decode_msgpack_list(body))
        except msgspec.ValidationError:
            return _decode_loose_list(body)
    try:
        return [_decode_msgpack_one(body)]
    except msgspec.ValidationError:
        return [_decode_loose_one(body)]


def new_messages(messages: Sequence[ProduceMessage[Any]], now_ms: int) -> list[NewMessage]:
    found: list[NewMessage] = []
    try:
        for message in messages:
            found.append(new_message(message, now_ms))
    except InvalidArgument as error:
        if len(messages) == 1:
            raise
        raise InvalidArgument(f"message {len(found)} of the batch (nothing was stored): {error.message}") from error
    return found


def new_message(message: ProduceMessage[Any], now_ms: int) -> NewMessage:
    value, key = message.value, message.key
    # Nearly always one of the first two, and this is asked of every message.
    if type(value) is str and message.encoding is None:
        value = value.encode()
    elif type(value) is not bytes or message.encoding is not None:
        value = payload_bytes(value, message.encoding, "value")
    if key is None:
        key = b""
    elif type(key) is str and message.key_encoding is None:
        key = key.encode()
    elif type(key) is not bytes or message.key_encoding is not None:
        key = payload_bytes(key, message.key_encoding, "key")
    envelope = message.envelope
    return NewMessage(
        key,
        value,
        None if envelope is None else to_envelope(envelope),
        message.attributes,
        None if message.deliver_at is None and message.delay_ms is None else _due(message, now_ms),
    )


def _due(message: ProduceMessage[Any], now_ms: int) -> int | None:
    """When it is to be delivered; None for at once."""
    if message.deliver_at is not None and message.delay_ms is not None:
        raise InvalidArgument("deliver_at and delay_ms both say when: give one of them")
    if message.deliver_at is None:
        return now_ms + message.delay_ms if message.delay_ms else None
    at_ms = time_ms(message.deliver_at, "deliver_at")
    return at_ms if at_ms > now_ms else None


def fetched_message(delivery: Delivery, codec: Codec) -> FetchedMessage[Any]:
    record, meta = delivery.record, delivery.meta
    if meta is NO_META and codec is MSGPACK_CODEC and not delivery.last_error:
        # Most messages: half the cost of naming every field.
        return FetchedMessage(
            partition=delivery.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            attempts=delivery.attempts,
            key=record.key,
            value=record.value,
        )
    key, key_encoding = codec.payload(record.key)
    value, encoding = codec.payload(record.value)
    return FetchedMessage(
        partition=delivery.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        attempts=delivery.attempts,
        key=key,
        value=value,
        encoding=encoding,
        key_encoding=key_encoding,
        last_error=delivery.last_error,
        attributes=meta.attributes,
        envelope=meta.envelope,
        routing=meta.routing,
        redriven_from=meta.redriven_from,
    )


def log_message(partition: int, record: Record, codec: Codec) -> LogMessage[Any]:
    meta = decode_meta(record.meta)
    key, key_encoding = codec.payload(record.key)
    value, encoding = codec.payload(record.value)
    return LogMessage(
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=key,
        value=value,
        encoding=encoding,
        key_encoding=key_encoding,
        attributes=meta.attributes,
        envelope=meta.envelope,
        routing=meta.routing,
        deliver_at_ms=meta.deliver_at_ms,
        redriven_from=meta.redriven_from,
        only_group=meta.only_group,
    )


def attempt_infos(evidence: Evidence) -> list[AttemptInfo]:
    return [
        AttemptInfo(
            each.number,
            each.started_ms or None,
            each.ended_ms,
            max(0, each.ended_ms - each.started_ms) if each.started_ms else None,
            each.owner,
            each.error,
            each.traceback,
        )
        for each in evidence
    ]


def dead_letter(
    topic: str, partition: int, record: Record, redriven: bool, codec: Codec, *, history: bool = False
) -> DeadLetterItem[Any]:
    """Describe a dead letter; its `history` is as large as a hundred others without."""
    meta = decode_meta(record.meta)
    key, key_encoding = codec.payload(record.key)
    value, encoding = codec.payload(record.value)
    return DeadLetterItem(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        redriven=redriven,
        key=key,
        value=value,
        encoding=encoding,
        key_encoding=key_encoding,
        envelope=meta.envelope or Envelope(),
        attributes=meta.attributes,
        routing=meta.routing,
        history=attempt_infos(meta.evidence) if history else [],
    )
