"""Dead letters: list, look at one, redrive."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from typing import Any

from slipstream.api import (
    DeadLetterItem,
    DeadLetterList,
    DeadLetterQuery,
    RedriveList,
    RedriveRequest,
    RedriveState,
    RedriveStatus,
)
from slipstream.broker import InvalidArgument, NotFound, Partition, Topic
from slipstream.engine import Redrive, Redrives, RedriveTask, Selection, dead_letter_topic, is_redriven, scan
from slipstream.server.v2.endpoint import Call, Endpoint
from slipstream.server.v2.messages import dead_letter
from slipstream.server.wire import time_ms

SCANNED_MAX = 100_000
"""Records one call looks at. A filter that matches next to nothing answers with what it has, and where to go on."""

_CURSOR = re.compile(r"([A-Za-z0-9._:-]{1,200})/([0-9]{1,9})/([0-9]{1,18})\Z")


async def list_dead_letters(call: Call) -> DeadLetterList[Any]:
    query: DeadLetterQuery = call.query
    topics = _topics(call, query.topic)
    selection = Selection(
        group=query.group, error=query.error, since_ms=_ms(query.since, "since"), until_ms=_ms(query.until, "until")
    )
    start = _parse_cursor(query.after)
    found: list[DeadLetterItem[Any]] = []
    scanned = size = 0
    for partition in [partition for topic in topics for partition in topic.partitions]:
        topic = partition.topic
        with contextlib.suppress(NotFound):  # it was deleted meanwhile, and its dead letters with it
            here = (topic.name, partition.number)
            if start is not None and here < start[0]:
                continue
            first = start[1] if start is not None and here == start[0] else 0
            async for index, record in scan(call.engine, partition, first):
                if len(found) >= query.limit or scanned >= SCANNED_MAX or size >= call.limits.read_bytes:
                    return DeadLetterList(dead_letters=found, next=f"{topic.name}/{partition.number}/{index}")
                scanned += 1
                redriven = is_redriven(partition, index)
                if query.redriven is not None and redriven != query.redriven:
                    continue
                if selection.matches(partition.number, record):
                    found.append(dead_letter(topic.name, partition.number, record, redriven, call.codec))
                    size += record.size
    return DeadLetterList(dead_letters=found, next=None)


def _topics(call: Call, name: str | None) -> list[Topic]:
    if name is not None:
        topic = dead_letter_topic(call.engine, name)
        return [topic] if topic is not None else []
    topics = call.engine.broker.state.topics
    return [topics[name] for name in sorted(topics) if topics[name].is_dead_letter]


def _parse_cursor(after: str | None) -> tuple[tuple[str, int], int] | None:
    if after is None:
        return None
    match = _CURSOR.match(after)
    if match is None:
        raise InvalidArgument("after must be what `next` of the answer before said")
    return (match[1], int(match[2])), int(match[3])


def _ms(time: dt.datetime | None, what: str) -> int | None:
    return None if time is None else time_ms(time, what)


async def show_dead_letter(call: Call) -> DeadLetterItem[Any]:
    topic = dead_letter_topic(call.engine, call.path("topic"))
    if topic is None:
        raise NotFound(f"{call.path('topic')} has no dead letters")
    partition, index = _find(topic, int(call.path("partition")), int(call.path("offset")))
    record = partition.log.read(index)
    redriven = is_redriven(partition, index)
    return dead_letter(topic.name, partition.number, record, redriven, call.codec, history=True)


def _find(topic: Topic, number: int, offset: int) -> tuple[Partition, int]:
    if number >= len(topic.partitions):
        raise NotFound(f"partition out of range: {topic.name} has partitions 0 to {len(topic.partitions) - 1}")
    partition = topic.partitions[number]
    index = partition.log.index_of(offset)
    if index is None or not partition.first_index <= index < partition.committed:
        raise NotFound(f"there is no dead letter {topic.name}/{number}/{offset} (any more)")
    return partition, index


def redrives_of(call: Call) -> Redrives:
    redrives: Redrives = call.request.app.state.redrives
    return redrives


async def start_redrive(call: Call) -> RedriveStatus:
    request: RedriveRequest = call.body
    topic = dead_letter_topic(call.engine, request.topic)
    if request.to is not None and call.engine.broker.topic(request.to).is_dead_letter:
        raise InvalidArgument("dead letters can be sent to an ordinary topic only")
    places = None
    if request.messages is not None:
        places = frozenset((place.partition, place.offset) for place in request.messages)
    selection = Selection(
        group=request.group,
        error=request.error,
        since_ms=_ms(request.since, "since"),
        until_ms=_ms(request.until, "until"),
        places=places,
    )
    redrive = Redrive(
        call.engine,
        topic,
        selection,
        to=request.to or "",
        all_groups=request.all_groups,
        rate=request.rate,
        limit=request.limit,
        dry_run=request.dry_run,
    )
    return _status(redrives_of(call).start(redrive, request.topic))


async def list_redrives(call: Call) -> RedriveList:
    return RedriveList([_status(task) for task in redrives_of(call).all()])


async def show_redrive(call: Call) -> RedriveStatus:
    return _status(redrives_of(call).find(call.path("id")))


async def cancel_redrive(call: Call) -> RedriveStatus:
    task = redrives_of(call).find(call.path("id"))
    await task.cancel()
    return _status(task)


def _status(task: RedriveTask) -> RedriveStatus:
    redrive = task.redrive
    if task.running:
        state = RedriveState.RUNNING
    elif task.cancelled:
        state = RedriveState.CANCELLED
    else:
        state = RedriveState.FAILED if task.error else RedriveState.DONE
    return RedriveStatus(
        id=task.id,
        state=state,
        topic=task.topic,
        to=redrive.to or None,
        dry_run=redrive.dry_run,
        scanned=redrive.scanned,
        matched=redrive.matched,
        redriven=redrive.redriven,
        skipped=redrive.skipped,
        started_ms=task.started_ms,
        ended_ms=task.ended_ms,
        error=task.error,
        all_groups=redrive.all_groups,
        without_group=redrive.without_group,
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v2/dead-letters",
        summary="List dead letters",
        query=DeadLetterQuery,
        answer=DeadLetterList[str],
        handler=list_dead_letters,
    ),
    Endpoint(
        method="GET",
        path="/v2/dead-letters/{topic}/{partition:natural}/{offset:natural}",
        summary="Look at a dead letter",
        answer=DeadLetterItem[str],
        handler=show_dead_letter,
    ),
    Endpoint(
        method="POST",
        path="/v2/redrives",
        summary="Send dead letters back, or elsewhere",
        body=RedriveRequest,
        answer=RedriveStatus,
        status=202,
        handler=start_redrive,
    ),
    Endpoint(method="GET", path="/v2/redrives", summary="List redrives", answer=RedriveList, handler=list_redrives),
    Endpoint(
        method="GET", path="/v2/redrives/{id}", summary="Look at a redrive", answer=RedriveStatus, handler=show_redrive
    ),
    Endpoint(
        method="DELETE",
        path="/v2/redrives/{id}",
        summary="Cancel a redrive",
        answer=RedriveStatus,
        handler=cancel_redrive,
    ),
]
