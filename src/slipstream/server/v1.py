"""`/v1`: the DriftQ contract, route by route. Answered inside the connection; no framework in between."""

from __future__ import annotations

import asyncio
import base64
import logging

import msgspec

from slipstream import __version__
from slipstream.broker import BrokerError, Delivery, Envelope, InvalidArgument, RoutingDecision
from slipstream.engine import Engine
from slipstream.router import RoutedMessage, RouterHook
from slipstream.server.exchange import Exchange
from slipstream.server.response import encode_json, render, render_broker_error, render_error
from slipstream.server.route import Route
from slipstream.server.wire import (
    UNREADABLE,
    AckRequest,
    ConsumeItem,
    ConsumeRequest,
    NackRequest,
    ProduceRequest,
    TopicRequest,
    ack_from_query,
    body_decoder,
    consume_from_query,
    nack_from_query,
    parse_query,
    produce_from_query,
    readable,
    to_envelope,
    topic_from_query,
)

log = logging.getLogger(__name__)

_decode_produce = body_decoder(ProduceRequest)
_decode_topic = body_decoder(TopicRequest)
_decode_consume = body_decoder(ConsumeRequest)
_decode_ack = body_decoder(AckRequest)
_decode_nack = body_decoder(NackRequest)


class V1:
    """The eight endpoints over one engine."""

    def __init__(self, engine: Engine, router: RouterHook | None, commit: str = "unknown") -> None:
        self.engine = engine
        self.router = router
        self.commit = commit
        self.routes: dict[bytes, Route] = {
            b"/v1/healthz": Route(self.handle, GET=self.healthz),
            b"/v1/version": Route(self.handle, GET=self.version),
            b"/v1/topics": Route(self.handle, GET=self.list_topics, POST=self.create_topic),
            b"/v1/produce": Route(self.handle, POST=self.produce),
            b"/v1/consume": Route(self.handle, alone=True, takes=True, GET=self.consume),
            b"/v1/ack": Route(self.handle, POST=self.ack),
            b"/v1/nack": Route(self.handle, POST=self.nack),
        }
        self._produced: dict[str, bytes] = {}
        self._no_content = render(204)
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, route: Route, exchange: Exchange) -> None:
        """Every request to a known path comes through here, and leaves answered or to be answered."""
        handler = route.handlers.get(exchange.method)
        if handler is None:
            message = f"use {route.allow[7:-2].decode()} on this path"
            exchange.answer(render_error(405, "METHOD_NOT_ALLOWED", message, route.allow))
            return
        try:
            handler(exchange)
        except BrokerError as error:
            exchange.answer(render_broker_error(error))
        except UNREADABLE as error:
            exchange.answer(render_error(400, "INVALID_ARGUMENT", f"invalid JSON body: {readable(error)}"))
        except Exception:  # noqa: BLE001 - logged with its traceback there
            self._failed(exchange)

    def _failed(self, exchange: Exchange) -> None:
        """A fault of ours: the client gets an answer, the log the story, and everybody else is served on."""
        log.exception("a %s request failed", exchange.method.decode())
        exchange.answer(render_error(500, "INTERNAL", "the broker failed on this request; its log says why"))

    def forget_rendered(self) -> None:
        """Once a second: the answers kept ready carry the date."""
        self._produced.clear()
        self._no_content = render(204)

    def healthz(self, exchange: Exchange) -> None:
        failure = self.engine.trouble
        if failure is None:
            exchange.answer(render(200, b'{"status":"ok"}'))
        else:
            exchange.answer(render(503, encode_json({"status": "failed", "message": failure.message})))

    def version(self, exchange: Exchange) -> None:
        body = {"version": __version__, "commit": self.commit, "wal_enabled": True}
        exchange.answer(render(200, encode_json(body)))

    def list_topics(self, exchange: Exchange) -> None:
        exchange.answer(render(200, encode_json({"topics": sorted(self.engine.broker.state.topics)})))

    def create_topic(self, exchange: Exchange) -> None:
        request = _decode_topic(exchange.body) if exchange.body else topic_from_query(parse_query(exchange.query))
        name = (request.name or "").strip()
        if not name:
            raise InvalidArgument("name is required")
        partitions = request.partitions or 1
        if partitions < 0:  # also where the topic exists and nothing is done with it
            raise InvalidArgument("partitions must not be negative")
        topic = self.engine.create_topic(exchange, name, partitions)
        body = {"status": "created", "name": topic.name, "partitions": len(topic.partitions)}
        exchange.response = render(201, encode_json(body))

    def produce(self, exchange: Exchange) -> None:
        request = _decode_produce(exchange.body) if exchange.body else produce_from_query(parse_query(exchange.query))
        topic, value = request.topic, request.value
        if not topic or not value:
            raise InvalidArgument("topic and value are required")
        envelope = to_envelope(request.envelope) if request.envelope is not None else None
        key = request.key.encode() if request.key else b""
        if self.router is None:
            self._store(exchange, topic, key, value.encode(), envelope, None)
        else:
            task = asyncio.create_task(self._route(self.router, exchange, topic, key, value.encode(), envelope))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _route(
        self, router: RouterHook, exchange: Exchange, topic: str, key: bytes, value: bytes, envelope: Envelope | None
    ) -> None:
        try:
            decision = await router.decide(topic, RoutedMessage(key, value, envelope))
            self._store(exchange, topic, key, value, envelope, decision)
        except BrokerError as error:
            exchange.answer(render_broker_error(error))
        except Exception:  # noqa: BLE001 - logged with its traceback there
            self._failed(exchange)

    def _store(
        self,
        exchange: Exchange,
        topic: str,
        key: bytes,
        value: bytes,
        envelope: Envelope | None,
        decision: RoutingDecision | None,
    ) -> None:
        self.engine.produce(exchange, topic, key, value, envelope, decision)
        response = self._produced.get(topic)
        if response is None:
            response = render(200, encode_json({"status": "produced", "topic": topic}))
            if topic in self.engine.broker.state.topics:  # with a target, a client may name anything here
                self._produced[topic] = response
        exchange.response = response

    def consume(self, exchange: Exchange) -> None:
        request = _decode_consume(exchange.body) if exchange.body else consume_from_query(parse_query(exchange.query))
        topic, group, owner = _names(request)
        exchange.connection.open_stream(exchange, topic, group, owner, request.lease_ms or 0, request.prefetch or 0)

    def ack(self, exchange: Exchange) -> None:
        request = _decode_ack(exchange.body) if exchange.body else ack_from_query(parse_query(exchange.query))
        self.engine.ack(exchange, *_settlement(request))
        exchange.response = self._no_content

    def nack(self, exchange: Exchange) -> None:
        request = _decode_nack(exchange.body) if exchange.body else nack_from_query(parse_query(exchange.query))
        self.engine.nack(exchange, *_settlement(request), (request.reason or "").strip())
        exchange.response = self._no_content


def _settlement(request: AckRequest) -> tuple[str, str, int, int, str]:
    topic, group, owner = _names(request)
    return topic, group, request.partition or 0, request.offset or 0, owner


def _names(request: AckRequest | ConsumeRequest) -> tuple[str, str, str]:
    """Return topic, group and owner without the space around them, as DriftQ reads them."""
    topic, group, owner = request.topic, request.group, request.owner
    names = (topic.strip() if topic else "", group.strip() if group else "", owner.strip() if owner else "")
    if not all(names):
        raise InvalidArgument("topic, group and owner are required")
    return names


def encode_item(delivery: Delivery) -> bytes:
    """One line of the NDJSON stream."""
    record, meta = delivery.record, delivery.meta
    key, key_encoding = _text(record.key)
    value, encoding = _text(record.value)
    item = ConsumeItem(
        delivery.partition,
        record.offset,
        delivery.attempts,
        key,
        value,
        delivery.last_error,
        encoding,
        key_encoding,
        msgspec.UNSET if meta.routing is None else meta.routing,
        msgspec.UNSET if meta.envelope is None else meta.envelope,
    )
    return _one_line(encode_json(item)) + b"\n"


def _one_line(item: bytes) -> bytes:
    """Escapes what some readers of lines take for the end of one: LS and PS, as Go does for DriftQ, and NEL."""
    for character, escape in _LINE_ENDS:
        if character in item:
            item = item.replace(character, escape)
    return item


_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def _text(payload: bytes) -> tuple[str, str | msgspec.UnsetType]:
    """Ruling 16: bytes that are not UTF-8 are shown in base64, and said to be."""
    try:
        return payload.decode(), msgspec.UNSET
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"
