"""Which files hold a partition: taken from its log as it is now, without looking at the disk."""

from __future__ import annotations

from slipstream.api import SegmentFile, SegmentList, SegmentsQuery
from slipstream.engine import first_offset
from slipstream.server.v2.codec import check_not_removed
from slipstream.server.v2.endpoint import Call, Endpoint
from slipstream.server.v2.read import choose_partition


async def list_segments(call: Call) -> SegmentList:
    query: SegmentsQuery = call.query
    engine = call.engine
    partition = choose_partition(engine.broker.topic(call.path("topic")), query.partition)
    earliest = first_offset(partition)
    check_not_removed(query.from_, earliest, f"{partition.topic.name}/{partition.number}")
    first = earliest if query.from_ is None else query.from_
    store = engine.store
    segments = store.log(partition.topic.id, partition.number).segments
    return SegmentList(
        directory=str(store.directory.absolute()) if store.directory is not None else "",
        token=store.token,
        incarnation=partition.topic.incarnation,
        partition=partition.number,
        segments=[
            SegmentFile(
                path=segment.path,
                first_offset=segment.first_offset,
                last_offset=segment.last_offset,
                count=segment.count,
                file_bytes=segment.file_bytes,
                crc=segment.crc,
                pages=segment.pages,
            )
            for segment in segments
            if segment.last_offset >= first and (query.to is None or segment.first_offset < query.to)
        ],
        next_offset=segments[-1].last_offset + 1 if segments else earliest,
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v2/topics/{topic}/segments",
        summary="The files that hold a partition",
        query=SegmentsQuery,
        answer=SegmentList,
        handler=list_segments,
    )
]
