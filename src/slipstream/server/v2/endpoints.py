"""Every call of `/v2`, in the order in which people meet them."""

from __future__ import annotations

from slipstream.api import (
    AckRequest,
    AckResponse,
    ExtendRequest,
    ExtendResponse,
    FetchRequest,
    FetchResponse,
    NackRequest,
    NackResponse,
    ProduceMessage,
    ProduceRequest,
    ProduceResponse,
    Staged,
    StageQuery,
)
from slipstream.server.v2 import (
    commits,
    console,
    dead_letters,
    events,
    keys,
    offsets,
    once,
    operations,
    read,
    segments,
    server,
    topics,
)
from slipstream.server.v2.endpoint import Endpoint

HOT = [
    Endpoint(
        method="POST",
        path="/v2/produce",
        summary="Store messages, all of them or none",
        body=ProduceRequest[str],
        answer=ProduceResponse,
    ),
    Endpoint(
        method="POST",
        path="/v2/staged",
        summary="Keep messages for a commit",
        query=StageQuery,
        body=list[ProduceMessage[str]],
        answer=Staged,
    ),
    Endpoint(
        method="POST",
        path="/v2/fetch",
        summary="Pull messages for a group",
        body=FetchRequest,
        answer=FetchResponse[str],
    ),
    Endpoint(method="POST", path="/v2/ack", summary="Messages are done", body=AckRequest, answer=AckResponse),
    Endpoint(method="POST", path="/v2/nack", summary="Attempts failed", body=NackRequest, answer=NackResponse),
    Endpoint(method="POST", path="/v2/extend", summary="Longer leases", body=ExtendRequest, answer=ExtendResponse),
]
"""Answered inside the connection (`hot`)."""

COLD = [
    *server.ENDPOINTS,
    *topics.ENDPOINTS,
    *read.ENDPOINTS,
    *segments.ENDPOINTS,
    *offsets.ENDPOINTS,
    *commits.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *operations.ENDPOINTS,
    *once.ENDPOINTS,
    *keys.ENDPOINTS,
    *events.ENDPOINTS,
]

CONSOLE = console.ENDPOINTS
"""Answered by the console's application, where the server has one."""

ENDPOINTS = [*HOT, *COLD, *CONSOLE]
