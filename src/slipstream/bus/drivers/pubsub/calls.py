"""The calls that are made for every message: on the wire's own types, and with no thread that waits for the answer.

Google's clients wrap each message in three layers, and start a thread for each batch: that is for what is done once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from google.api_core.gapic_v1.routing_header import to_grpc_metadata
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

PubsubMessage: Any = types.PubsubMessage.pb()
PublishRequest: Any = types.PublishRequest.pb()
PublishResponse: Any = types.PublishResponse.pb()
AcknowledgeRequest: Any = types.AcknowledgeRequest.pb()
ModifyAckDeadlineRequest: Any = types.ModifyAckDeadlineRequest.pb()
StreamingPullRequest: Any = types.StreamingPullRequest.pb()
StreamingPullResponse: Any = types.StreamingPullResponse.pb()


class Call:
    """One method of the engine, on one topic or subscription at a time."""

    def __init__(self, channel: Any, method: str, request: Any, response: Any, routed_by: str) -> None:
        self._call = channel.unary_unary(
            f"/google.pubsub.v1.{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        self._routed_by = routed_by
        self._metadata: dict[str, list[tuple[str, str]]] = {}
        self._loop = asyncio.get_running_loop()

    def begin(self, request: Any, timeout_s: float) -> asyncio.Future[Any]:
        """A future of the answer; it fails with `grpc.RpcError`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        call = self._call.future(request, timeout=timeout_s, metadata=self._route(getattr(request, self._routed_by)))

        def settle() -> None:
            if future.done():
                return
            error = call.exception()
            if error is None:
                future.set_result(call.result())
            else:
                future.set_exception(error)

        def done(_: object) -> None:  # in a thread of gRPC
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(settle)

        call.add_done_callback(done)
        return future

    def _route(self, path: str) -> list[tuple[str, str]]:
        """Tells Google's front where the request belongs without looking into it."""
        metadata = self._metadata.get(path)
        if metadata is None:
            metadata = self._metadata[path] = route(self._routed_by, path)
        return metadata


def route(field: str, path: str) -> list[tuple[str, str]]:
    return [to_grpc_metadata({field: path})]


def publishing(channel: Any) -> Call:
    return Call(channel, "Publisher/Publish", PublishRequest, PublishResponse, "topic")


def acknowledging(channel: Any) -> Call:
    return Call(channel, "Subscriber/Acknowledge", AcknowledgeRequest, Empty, "subscription")


def modifying_deadlines(channel: Any) -> Call:
    return Call(channel, "Subscriber/ModifyAckDeadline", ModifyAckDeadlineRequest, Empty, "subscription")


def streaming_pull(channel: Any) -> Any:
    """Takes an iterator of requests and returns one of responses, both of which block."""
    return channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=StreamingPullRequest.SerializeToString,
        response_deserializer=StreamingPullResponse.FromString,
    )
