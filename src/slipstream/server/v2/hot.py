"""The `/v2` calls that carry messages: answered inside the connection, like `/v1`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from slipstream.api import (
    AckRequest,
    AckResponse,
    ErrorResponse,
    ExtendRequest,
    ExtendResponse,
    Failure,
    FetchRequest,
    NackItem,
    NackRequest,
    NackResponse,
    Place,
    Placed,
    ProduceRequest,
    ProduceResponse,
    Staged,
    StageQuery,
)
from slipstream.api.codec import Codec, answer_codec
from slipstream.broker import Broker, BrokerError, HasPlace, InvalidArgument, NewMessage, Placement
from slipstream.engine import Engine
from slipstream.limits import Limits
from slipstream.router import RoutedMessage, RouterHook
from slipstream.server.exchange import Exchange
from slipstream.server.response import render_as, retry_after
from slipstream.server.route import Route
from slipstream.server.v2.codec import Form, error_body, error_code, error_status, form_of
from slipstream.server.v2.fetch import Fetch
from slipstream.server.v2.messages import count_at_most, decode_produce, new_messages
from slipstream.server.wire import UNREADABLE, parse_query, readable

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
ItemT = TypeVar("ItemT", bound=HasPlace)


class Reply:
    """The answer to one exchange, in the form its client reads."""

    __slots__ = ("codec", "exchange")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        content_type, accept, _ = exchange.types
        self.codec: Codec = answer_codec(content_type, accept)

    def prepare(self, answer: msgspec.Struct) -> None:
        """To be sent when the engine settles the exchange."""
        self.exchange.response = render_as(200, self.codec.encode(answer), self.codec.content_type)

    def send(self, answer: msgspec.Struct) -> None:
        self.exchange.answer(render_as(200, self.codec.encode(answer), self.codec.content_type))

    def fail(self, error: BrokerError) -> None:
        self.exchange.answer(self._rendered(error))

    def settled(self, error: BrokerError | None) -> None:
        """The engine's answer to a command; what `prepare` left goes out unless it failed after all."""
        if error is not None:
            self.exchange.response = self._rendered(error)
        self.exchange.settled(None)

    def _rendered(self, error: BrokerError) -> bytes:
        headers = self.codec.content_type + retry_after(error)
        return render_as(error_status(error), self.codec.encode(error_body(error)), headers)


class _Decoders:
    """For one kind of request."""

    def __init__(self, request: type[Any]) -> None:
        self.json = msgspec.json.Decoder(request).decode
        self.msgpack = msgspec.msgpack.Decoder(request).decode


_DECODERS: dict[type[Any], _Decoders] = {
    request: _Decoders(request) for request in (FetchRequest, AckRequest, NackRequest, ExtendRequest)
}


class Hot:
    """Produce, stage, fetch, ack, nack and extend."""

    def __init__(self, engine: Engine, router: RouterHook | None, limits: Limits) -> None:
        self.engine = engine
        self.router = router
        self.limits = limits
        self.routes: dict[bytes, Route] = {
            b"/v2/produce": Route(self.handle, body_bytes=limits.batch_bytes, POST=self.produce),
            b"/v2/staged": Route(self.handle, body_bytes=limits.batch_bytes, POST=self.stage),
            b"/v2/fetch": Route(self.handle, POST=self.fetch),
            b"/v2/ack": Route(self.handle, POST=self.ack),
            b"/v2/nack": Route(self.handle, POST=self.nack),
            b"/v2/extend": Route(self.handle, POST=self.extend),
        }
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, route: Route, exchange: Exchange) -> None:
        handler = route.handlers.get(exchange.method)
        reply = Reply(exchange)
        if handler is None:
            answer = ErrorResponse("METHOD_NOT_ALLOWED", f"use {route.allow[7:-2].decode()} on this path")
            exchange.answer(render_as(405, reply.codec.encode(answer), reply.codec.content_type + route.allow))
            return
        try:
            handler(exchange)
        except BrokerError as error:
            reply.fail(error)
        except UNREADABLE as error:
            reply.fail(InvalidArgument(f"the body cannot be used: {readable(error)}{_hint(str(error))}"))
        except Exception:  # noqa: BLE001 - logged with its traceback there
            self._failed(exchange)

    def _failed(self, exchange: Exchange) -> None:
        """A fault of ours: the client gets an answer, the log the story, and everybody else is served on."""
        log.exception("a %s request failed", exchange.method.decode())
        codec = Reply(exchange).codec
        answer = ErrorResponse("INTERNAL", "the broker failed on this request; its log says why")
        exchange.answer(render_as(500, codec.encode(answer), codec.content_type))

    def _decode(self, exchange: Exchange, request: type[RequestT]) -> RequestT:
        decoders = _DECODERS[request]
        decode = decoders.msgpack if _form(exchange) == "msgpack" else decoders.json
        decoded: RequestT = decode(exchange.body)
        return decoded

    # Produce

    def produce(self, exchange: Exchange) -> None:
        query = parse_query(exchange.query) if exchange.query else {}
        unknown = query.keys() - {"topic", "idempotency_key"}
        if unknown:
            raise InvalidArgument(f"unknown parameter {min(unknown)!r}: there are topic and idempotency_key")
        request = self._decode_messages(
            exchange, _form(exchange), query.get("topic", ""), query.get("idempotency_key", "")
        )

        def store(messages: list[NewMessage]) -> None:
            reply = Reply(exchange)
            topic = request.topic
            placements = self.engine.produce_batch(reply, topic, messages, request.idempotency_key or "")
            reply.prepare(ProduceResponse(topic, [_placed(placement, topic) for placement in placements]))

        self._routed(exchange, request, store)

    def stage(self, exchange: Exchange) -> None:
        form = _form(exchange)
        try:
            query = msgspec.convert(parse_query(exchange.query), StageQuery, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidArgument(f"{error}: say /v2/staged?writer=…&sequence=…&topic=…") from error
        request = self._decode_messages(exchange, form, query.topic, "")

        def keep(messages: list[NewMessage]) -> None:
            size = len(exchange.body)
            part = self.engine.stage(query.writer, query.sequence, query.topic, messages, size, query.attempt)
            Reply(exchange).send(Staged(part.id, len(messages), size))

        self._routed(exchange, request, keep)

    def _decode_messages(self, exchange: Exchange, form: Form, topic: str, idempotency_key: str) -> ProduceRequest[Any]:
        if len(exchange.body) > self.limits.body_bytes:
            # Far too many are refused before everybody else has waited for half a second until they were decoded.
            # Names may be in the values too, so this is no more than a guess.
            self._check_count(max(1, count_at_most(form, exchange.body) // 4))
        request = decode_produce(form, exchange.body, topic, idempotency_key)
        self._check_count(len(request.messages))
        return request

    def _routed(
        self, exchange: Exchange, request: ProduceRequest[Any], then: Callable[[list[NewMessage]], None]
    ) -> None:
        """Goes on with the messages when the router, if there is one, has been asked about each."""
        messages = new_messages(request.messages, self.engine.now_ms())
        if self.router is None:
            then(messages)
        else:
            task = asyncio.create_task(self._ask_router(self.router, exchange, request.topic, messages, then))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask_router(
        self,
        router: RouterHook,
        exchange: Exchange,
        topic: str,
        messages: list[NewMessage],
        then: Callable[[list[NewMessage]], None],
    ) -> None:
        try:
            decisions = await asyncio.gather(
                *(router.decide(topic, RoutedMessage(m.key, m.value, m.envelope)) for m in messages)
            )
            then(
                [
                    msgspec.structs.replace(message, decision=decision)
                    for message, decision in zip(messages, decisions, strict=True)
                ]
            )
        except BrokerError as error:
            Reply(exchange).fail(error)
        except Exception:  # noqa: BLE001 - logged with its traceback there
            self._failed(exchange)

    # Fetch

    def fetch(self, exchange: Exchange) -> None:
        request = self._decode(exchange, FetchRequest)
        if request.wait_ms > self.limits.wait_ms:
            raise InvalidArgument(f"wait_ms must be at most {self.limits.wait_ms} (max_wait_ms)")
        # Less than was asked for is an answer, too; all of it would have to be in memory at once.
        within = msgspec.structs.replace(
            request,
            max_messages=min(request.max_messages, self.limits.batch_messages),
            max_bytes=min(request.max_bytes, self.limits.read_bytes),
        )
        exchange.pending = Fetch(self.engine, Reply(exchange), within)

    # Settle

    def ack(self, exchange: Exchange) -> None:
        request = self._decode(exchange, AckRequest)
        topic, group, owner, places = request.topic, request.group, request.owner, request.messages
        self._check_count(len(places))
        reply = Reply(exchange)
        refused = self.engine.run(reply, lambda broker, now_ms: broker.ack_batch(now_ms, topic, group, places, owner))
        failed = [_failure(place, error) for place, error in refused]
        reply.prepare(AckResponse(len(places) - len(failed), failed))

    def nack(self, exchange: Exchange) -> None:
        request = self._decode(exchange, NackRequest)
        topic, group, owner = request.topic, request.group, request.owner

        def settle(broker: Broker, now_ms: int, item: NackItem) -> None:
            broker.nack(
                now_ms,
                topic,
                group,
                item.partition,
                item.offset,
                owner,
                item.reason,
                item.delay_ms,
                item.retryable,
                item.traceback,
                item.counted,
            )

        reply = Reply(exchange)
        failed = self._settle(reply, topic, group, request.messages, settle)
        reply.prepare(NackResponse(len(request.messages) - len(failed), failed))

    def extend(self, exchange: Exchange) -> None:
        request = self._decode(exchange, ExtendRequest)
        topic, group, owner, lease_ms = request.topic, request.group, request.owner, request.lease_ms
        until_ms = 0

        def settle(broker: Broker, now_ms: int, place: Place) -> None:
            nonlocal until_ms
            until_ms = broker.extend(now_ms, topic, group, place.partition, place.offset, owner, lease_ms)

        reply = Reply(exchange)
        failed = self._settle(reply, topic, group, request.messages, settle)
        reply.prepare(ExtendResponse(len(request.messages) - len(failed), until_ms, failed))

    def _settle(
        self,
        reply: Reply,
        topic: str,
        group: str,
        items: Sequence[ItemT],
        settle: Callable[[Broker, int, ItemT], None],
    ) -> list[Failure]:
        """Each stands for itself: what is wrong with one does not keep the others."""
        self._check_count(len(items))

        def command(broker: Broker, now_ms: int) -> list[Failure]:
            broker.group(topic, group)
            failed: list[Failure] = []
            for item in items:
                try:
                    settle(broker, now_ms, item)
                except BrokerError as error:
                    failed.append(_failure(item, error))
            return failed

        return self.engine.run(reply, command)

    def _check_count(self, count: int) -> None:
        if not 1 <= count <= self.limits.batch_messages:
            raise InvalidArgument(
                f"1 to {self.limits.batch_messages} messages (max_batch_messages) fit in a request, not {count}"
            )


def _form(exchange: Exchange) -> Form:
    content_type, _, content_encoding = exchange.types
    return form_of(content_type, content_encoding)


def _failure(place: HasPlace, error: BrokerError) -> Failure:
    return Failure(place.partition, place.offset, error_code(error), error.message)


def _hint(error: str) -> str:
    """What people mean who send this."""
    if error == "Object contains unknown field `value`":
        return "; put messages into `messages`, or name the topic in the query: /v2/produce?topic=…"
    if error.startswith("Object contains unknown field `idempotency_key` - at"):
        return "; of a single message it belongs into its `envelope`"
    if error.startswith("Object contains unknown field `timestamp_ms`"):
        return "; of each message only `partition` and `offset` are wanted"
    if error.startswith("Expected `str`, got `object`"):
        return "; a value is text: encode it as JSON first"
    return ""


def _placed(placement: Placement, topic: str) -> Placed:
    return Placed(
        placement.partition,
        placement.offset,
        placement.deduplicated,
        None if placement.topic == topic else placement.topic,
    )
