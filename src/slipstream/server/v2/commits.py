"""Committing what was staged, taking it back, and asking how far a writer has come. Staging is in `hot`, for it carries
messages."""

from __future__ import annotations

from slipstream.api import CommitRequest, CommitResponse, Unstaged, UnstageRequest, WriterInfo
from slipstream.broker import Consumed
from slipstream.engine import Answer
from slipstream.server.v2.endpoint import Call, Endpoint


async def commit(call: Call) -> CommitResponse:
    request: CommitRequest = call.body
    answer = Answer()
    consumed = [
        Consumed(each.topic, each.group, each.from_, each.to, each.partition, each.incarnation)
        for each in request.consumed
    ]
    committed = call.engine.commit(answer, request.writer, request.sequence, request.staged, consumed)
    await answer
    return CommitResponse(committed)


async def unstage(call: Call) -> Unstaged:
    request: UnstageRequest = call.body
    parts = call.engine.unstage(request.writer, request.sequence, request.staged)
    return Unstaged(len(parts), sum(part.size for part in parts))


async def show_writer(call: Call) -> WriterInfo:
    writer = call.path("writer")
    # A command like any other, answered behind all before it: what is shown is safe.
    sequence = await call.engine.perform(lambda broker, now_ms: broker.commits.last(now_ms, writer))
    return WriterInfo(writer, sequence)


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/v2/commit",
        summary="Store what was staged, all of it and once",
        body=CommitRequest,
        answer=CommitResponse,
        handler=commit,
    ),
    Endpoint(
        method="POST",
        path="/v2/unstage",
        summary="Forget what was staged",
        body=UnstageRequest,
        answer=Unstaged,
        handler=unstage,
    ),
    Endpoint(
        method="GET",
        path="/v2/writers/{writer}",
        summary="How far a writer has come",
        answer=WriterInfo,
        handler=show_writer,
    ),
]
