"""Reading the log without a group, as JSON, MessagePack or Arrow."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from slipstream.api import ARROW, ReadQuery, ReadResponse
from slipstream.broker import InvalidArgument, NotFound, Partition, Topic
from slipstream.engine import Engine, first_offset, next_offset, read_slice
from slipstream.log_columns import log_columns, log_schema
from slipstream.server.v2.codec import check_not_removed
from slipstream.server.v2.endpoint import Call, Endpoint
from slipstream.server.v2.messages import log_message
from slipstream.server.wire import time_ms
from slipstream.store import LogSlice


async def read(call: Call) -> ReadResponse[Any] | Response:
    query = _within_limits(call)
    engine = call.engine
    partition = choose_partition(engine.broker.topic(call.path("topic")), query.partition)
    if query.wait_ms:
        await _wait(engine, partition, query, call.stopping)
    if ARROW in call.accept:
        return await _read_arrow(engine, partition, query)
    records = await read_slice(lambda: _slice(engine, partition, query), LogSlice.records)
    engine.check_there(partition.topic)
    codec = call.codec
    return ReadResponse(
        partition=partition.number,
        next_offset=_next(partition, query, records[-1].offset if records else None),
        first_offset=first_offset(partition),
        end_offset=next_offset(partition),
        messages=[log_message(partition.number, record, codec) for record in records],
    )


def _within_limits(call: Call) -> ReadQuery:
    """Less than was asked for is an answer, too: `next_offset` says where to read on."""
    query: ReadQuery = call.query
    limits = call.limits
    if query.wait_ms > limits.wait_ms:
        raise InvalidArgument(f"wait_ms must be at most {limits.wait_ms} (max_wait_ms)")
    return msgspec.structs.replace(
        query,
        limit=query.limit if ARROW in call.accept else min(query.limit, limits.batch_messages),
        max_bytes=min(query.max_bytes, limits.read_bytes),
    )


def choose_partition(topic: Topic, number: int | None) -> Partition:
    """The one that was named, which may be left out only where there is no other."""
    count = len(topic.partitions)
    if number is None:
        if count > 1:
            raise InvalidArgument(f"{topic.name} has {count} partitions: say which, with partition=0 to {count - 1}")
        return topic.partitions[0]
    if number >= count:
        raise NotFound(f"partition out of range: {topic.name} has partitions 0 to {count - 1}")
    return topic.partitions[number]


def _range(partition: Partition, query: ReadQuery) -> tuple[int, int]:
    """The indexes that are asked for, of what is there now."""
    check_not_removed(query.from_, first_offset(partition), f"{partition.topic.name}/{partition.number}")
    log = partition.log
    first, end = partition.first_index, partition.committed
    if query.from_ is not None:
        first = log.index_from(query.from_)
    if query.since is not None:
        first = max(first, log.index_at(time_ms(query.since, "since")))
    if query.to is not None:
        end = min(end, log.index_from(query.to))
    if query.until is not None:
        end = min(end, log.index_at(time_ms(query.until, "until")))
    if query.last is not None:
        first = max(first, end - query.last)
    return first, max(first, min(end, first + query.limit))


def _slice(engine: Engine, partition: Partition, query: ReadQuery) -> LogSlice:
    engine.check_there(partition.topic)
    return engine.slice(partition, *_range(partition, query), query.max_bytes)


def _next(partition: Partition, query: ReadQuery, last: int | None) -> int:
    if last is not None:
        return last + 1
    if query.to is not None or query.until is not None:
        return query.from_ if query.from_ is not None else first_offset(partition)
    return max(query.from_ or 0, next_offset(partition))


async def _wait(engine: Engine, partition: Partition, query: ReadQuery, stopping: asyncio.Event) -> None:
    """Until there is something to read, the time is up, or the server stops."""
    first, end = _range(partition, query)
    if first < end:
        return
    written = asyncio.Event()
    engine.watch(partition, written.set)
    waits = [asyncio.create_task(event.wait()) for event in (written, stopping)]
    try:
        await asyncio.wait(waits, timeout=query.wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        engine.unwatch(partition, written.set)


# Arrow


async def _read_arrow(engine: Engine, partition: Partition, query: ReadQuery) -> Response:
    body, last = await read_slice(lambda: _slice(engine, partition, query), partial(_encode_arrow, partition.number))
    engine.check_there(partition.topic)
    headers = {
        "Slipstream-Next-Offset": str(_next(partition, query, last)),
        "Slipstream-First-Offset": str(first_offset(partition)),
        "Slipstream-End-Offset": str(next_offset(partition)),
        "Slipstream-Incarnation": partition.topic.incarnation,
    }
    return Response(body, 200, headers, media_type=ARROW)


def _encode_arrow(number: int, taken: LogSlice) -> tuple[bytes, int | None]:
    import pyarrow as pa  # noqa: PLC0415 - a quarter of a second that only who reads Arrow pays

    sink = pa.BufferOutputStream()
    last: int | None = None
    with pa.ipc.new_stream(sink, log_schema()) as writer:
        for batch in taken.batches():
            if batch.num_rows:
                writer.write_batch(log_columns(number, batch))
                last = batch.column(0)[-1].as_py()
    return sink.getvalue().to_pybytes(), last


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v2/topics/{topic}/messages",
        summary="Read the log without a group",
        query=ReadQuery,
        answer=ReadResponse[str],
        media_types=(ARROW,),
        handler=read,
    )
]
