"""One call of the API: its path, what it takes and what it answers. Routes and OpenAPI are made from this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from slipstream.api import ErrorResponse
from slipstream.api.codec import Codec, answer_codec
from slipstream.broker import BrokerError, InvalidArgument, Unavailable
from slipstream.engine import Engine
from slipstream.limits import Limits
from slipstream.record import LogUnreadable
from slipstream.server.response import retry_after_s
from slipstream.server.v2.codec import error_body, error_status, form_of
from slipstream.server.wire import UNREADABLE, readable

log = logging.getLogger(__name__)


class Call:
    """A request, decoded."""

    def __init__(self, engine: Engine, limits: Limits, request: Request, body: Any, query: Any, codec: Codec) -> None:
        self.engine = engine
        self.limits = limits
        self.request = request
        self.body = body
        self.query = query
        self.codec = codec

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the server stops: who waits for something answers then."""
        stopping: asyncio.Event = self.request.app.state.stopping
        return stopping

    @property
    def accept(self) -> str:
        return self.request.headers.get("accept", "").lower()


Handler: TypeAlias = Callable[[Call], Awaitable[Any]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """`handler` returns what `answer` says, or a response of its own; None becomes 204."""

    method: str
    path: str
    summary: str
    answer: Any = None
    handler: Handler | None = None
    """None for what is answered inside the connection."""
    body: Any = None
    query: Any = None
    status: int = 200
    media_types: tuple[str, ...] = ()
    """Of the answer, beside JSON and MessagePack."""
    tag: str = ""


async def serve_call(endpoint: Endpoint, engine: Engine, limits: Limits, request: Request) -> Response:
    content_type = request.headers.get("content-type", "").encode()
    codec = answer_codec(content_type, request.headers.get("accept", "").encode())
    try:
        body = await _decode_body(endpoint, request, content_type)
        query = _decode_query(endpoint, request)
        assert endpoint.handler is not None, "only these are routed here"
        answer = await endpoint.handler(Call(engine, limits, request, body, query, codec))
    except BrokerError as error:
        return error_response(error, codec)
    except LogUnreadable as error:
        return error_response(Unavailable(f"the log cannot be read: {error}"), codec)
    except UNREADABLE as error:
        return error_response(InvalidArgument(f"the request cannot be used: {readable(error)}"), codec)
    except Exception:
        log.exception("a %s request to %s failed", endpoint.method, endpoint.path)
        answer = ErrorResponse("INTERNAL", "the broker failed on this request; its log says why")
        return Response(codec.encode(answer), 500, media_type=codec.media_type)
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    return Response(codec.encode(answer), endpoint.status, media_type=codec.media_type)


def error_response(error: BrokerError, codec: Codec) -> Response:
    wait_s = retry_after_s(error)
    headers = {"Retry-After": str(wait_s)} if wait_s else {}
    status = error_status(error)
    return Response(codec.encode(error_body(error)), status, headers, media_type=codec.media_type)


async def _decode_body(endpoint: Endpoint, request: Request, content_type: bytes) -> Any:
    if endpoint.body is None:
        return None
    body = await request.body()
    if form_of(content_type, request.headers.get("content-encoding", "").encode()) == "msgpack":
        return msgspec.msgpack.decode(body, type=endpoint.body)
    return msgspec.json.decode(body or b"{}", type=endpoint.body)


def _decode_query(endpoint: Endpoint, request: Request) -> Any:
    given = dict(request.query_params)
    if endpoint.query is not None:
        try:
            return msgspec.convert(given, endpoint.query, strict=False)
        except msgspec.ValidationError as error:
            if "RFC3339" in str(error) and any(" " in value for value in given.values()):
                raise InvalidArgument(f"{error} (a + in a query is a space: write %2B, or a time with Z)") from error
            raise
    if given:
        raise InvalidArgument(f"unknown parameter {min(given)!r}: this call has none")
    return None
