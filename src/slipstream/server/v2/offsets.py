"""Where the logs of many topics begin and end, at once or as soon as something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from slipstream.api import OffsetsRequest, OffsetsResponse, PartitionOffsets, TopicOffsets
from slipstream.broker import InvalidArgument, NotFound, Partition, Topic
from slipstream.engine import Engine, Watch, first_offset, next_offset, read_slice
from slipstream.server.v2.endpoint import Call, Endpoint
from slipstream.server.wire import time_ms
from slipstream.store import LogSlice

ALL = 2**62
"""More bytes than any log has."""


async def offsets(call: Call) -> OffsetsResponse:
    request: OffsetsRequest = call.body
    if request.wait_ms > call.limits.wait_ms:
        raise InvalidArgument(f"wait_ms must be at most {call.limits.wait_ms} (max_wait_ms)")
    since_ms = None if request.since is None else time_ms(request.since, "since")
    engine = call.engine
    if request.wait_ms and request.known is not None:
        await _wait(engine, request, request.known, call.stopping)
    partitions = [partition for topic in _topics(engine, request) for partition in topic.partitions]
    since: dict[Partition, int] = {}
    if since_ms is not None:
        for partition in partitions:
            await _find_since(engine, partition, since_ms, since)
    # Some may have been deleted while others were looked at; what was added meanwhile is for the next time.
    by_topic: dict[Topic, list[PartitionOffsets]] = {topic: [] for topic in _topics(engine, request)}
    for partition in partitions:
        if partition.topic in by_topic:
            by_topic[partition.topic].append(_describe(partition, since.get(partition)))
    found = [TopicOffsets(topic.name, topic.incarnation, rows) for topic, rows in by_topic.items() if rows]
    named = {topic.name for topic in found}
    return OffsetsResponse(found, sorted(set(request.topics or ()) - named))


def _topics(engine: Engine, request: OffsetsRequest) -> list[Topic]:
    topics = engine.broker.state.topics
    names: Iterable[str] = topics if request.topics is None else set(request.topics) & topics.keys()
    return [topics[name] for name in sorted(names)]


def _describe(partition: Partition, since: int | None) -> PartitionOffsets:
    return PartitionOffsets(
        partition.number,
        first_offset(partition),
        next_offset(partition),
        partition.committed - partition.first_index,
        since,
    )


async def _find_since(engine: Engine, partition: Partition, since_ms: int, found: dict[Partition, int]) -> None:
    """In another thread, for it has to look into a segment; leaves out what is deleted meanwhile."""
    end = 0

    def take() -> LogSlice:
        nonlocal end
        end = next_offset(partition)
        return engine.slice(partition, partition.first_index, partition.committed, ALL)

    try:
        offset = await read_slice(take, lambda taken: taken.offset_at(since_ms))
    except NotFound:
        return
    found[partition] = end if offset is None else offset


# Waiting


async def _wait(engine: Engine, request: OffsetsRequest, known: dict[str, list[int]], stopping: asyncio.Event) -> None:
    """Until something is not as the caller knows it, the time is up, or the server stops."""
    loop = asyncio.get_running_loop()
    until = loop.time() + request.wait_ms / 1000
    while _is_as_known(engine, request, known) and not stopping.is_set() and loop.time() < until:
        changed = asyncio.Event()
        watched = _watched(engine, request)
        for each in watched:
            engine.watch(each, changed.set)
        waits = [asyncio.create_task(event.wait()) for event in (changed, stopping)]
        try:
            await asyncio.wait(waits, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            for each in watched:
                engine.unwatch(each, changed.set)


def _watched(engine: Engine, request: OffsetsRequest) -> list[Partition | Watch]:
    if request.topics is None:
        return [Watch.MESSAGES, Watch.TOPICS]
    return [Watch.TOPICS, *(partition for topic in _topics(engine, request) for partition in topic.partitions)]


def _is_as_known(engine: Engine, request: OffsetsRequest, known: dict[str, list[int]]) -> bool:
    now = {topic.name: [next_offset(each) for each in topic.partitions] for topic in _topics(engine, request)}
    asked = known if request.topics is None else {name: known[name] for name in request.topics if name in known}
    return now == asked


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/v2/offsets",
        summary="Where the logs of topics begin and end",
        body=OffsetsRequest,
        answer=OffsetsResponse,
        handler=offsets,
    )
]
