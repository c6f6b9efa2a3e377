"""What is going on, again and again, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Annotated, Any

import msgspec
from starlette.responses import Response, StreamingResponse

from slipstream.api import GroupStats, Stats, TopicStats
from slipstream.api.media import EVENTS
from slipstream.broker import DEAD_LETTER_PREFIX, Group, Progress, Topic
from slipstream.engine import Engine
from slipstream.server.v2.describe import oldest_unfinished, oldest_unfinished_ms, worst_message
from slipstream.server.v2.endpoint import Call, Endpoint


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The parameters of `GET /v2/events`."""

    interval_ms: Annotated[int, msgspec.Meta(ge=100, le=60_000)] = 1_000
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """End after so many; absent: go on."""


TOPICS_AT_A_TIME = 100
"""Ten thousand take a tenth of a second, and there may be as many who want to know."""

LOOK_S = 0.005
"""What one sample may spend on looking for the oldest messages."""


class Sampler:
    """Takes the difference between two looks at the broker: counting costs the hot path nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before_ms = 0
        self._totals: dict[Any, int] = {}
        self._oldest: dict[tuple[int, int], tuple[int, int | None]] = {}
        """(group, partition) → (index, when it was stored), as it was found the last time."""
        self._found: dict[tuple[int, int], tuple[int, int | None]] = {}
        """And this time."""
        self._look_until = 0.0

    async def sample(self) -> Stats:
        """What happened since the last one; the first says nothing of rates. Others get their turn in between, so the
        numbers of one topic belong together, and those of two only nearly."""
        now_ms = self._engine.now_ms()
        self._look_until = monotonic() + LOOK_S
        self._oldest, self._found = self._found, {}
        interval_ms = max(1, now_ms - self._before_ms)
        before, totals = self._totals, self._count()
        self._before_ms, self._totals = now_ms, totals

        def rate(key: Any) -> float:
            # A topic that was created meanwhile started at nothing.
            return round(max(0, totals[key] - before.get(key, 0)) * 1000 / interval_ms, 3)

        topics: list[TopicStats] = []
        state = self._engine.broker.state
        for number, topic in enumerate(list(state.topics.values())):
            if number and number % TOPICS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if topic.id not in state.topics_by_id:
                continue  # deleted meanwhile, and its log with it
            totals["topic", topic.id] = topic.next_offset
            groups: list[GroupStats] = []
            for group in topic.groups.values():
                totals["group", group.id] = sum(progress.done for progress in group.progress)
                groups.append(self._group(group, rate, now_ms))
            topics.append(self._topic(topic, rate(("topic", topic.id)), groups))
        groups = [group for topic in topics for group in topic.groups]
        return Stats(
            time_ms=now_ms,
            interval_ms=interval_ms,
            produced_per_s=rate("produced"),
            delivered_per_s=rate("delivered"),
            acked_per_s=rate("acked"),
            nacked_per_s=rate("nacked"),
            dead_lettered_per_s=rate("dead_lettered"),
            lag=sum(group.lag for group in groups),
            in_flight=sum(group.in_flight for group in groups),
            dead_letters=sum(topic.dead_letters for topic in topics),
            oldest_unfinished_age_ms=max((group.oldest_unfinished_age_ms for group in groups), default=0),
            topics=topics,
        )

    def _count(self) -> dict[Any, int]:
        broker = self._engine.broker
        return {
            "produced": broker.intake.produced_total,
            "delivered": broker.dispatcher.delivered_total,
            "acked": broker.acked_total,
            "nacked": broker.nacked_total,
            "dead_lettered": broker.state.dead_lettered.total(),
        }

    def _topic(self, topic: Topic, rate: float, groups: list[GroupStats]) -> TopicStats:
        return TopicStats(
            topic.name,
            sum(partition.committed - partition.first_index for partition in topic.partitions),
            sum(partition.bytes_total - partition.first_bytes for partition in topic.partitions),
            rate,
            self._dead_letters(topic),
            groups,
        )

    def _dead_letters(self, topic: Topic) -> int:
        dead = self._engine.broker.state.topics.get(DEAD_LETTER_PREFIX + topic.name)
        if dead is None:
            return 0
        return sum(
            partition.committed
            - partition.first_index
            - (partition.redriven.size if partition.redriven is not None else 0)
            for partition in dead.partitions
        )

    def _oldest_ms(self, progress: Progress) -> int | None:
        """When the oldest unfinished message was stored, as far as there is time to look: thousands of groups may be
        behind, each on another page of the disk, and everybody else waits for this."""
        place = (progress.group.id, progress.partition.number)
        index = oldest_unfinished(progress)
        known = self._oldest.get(place)
        if (known is None or known[0] != index) and monotonic() < self._look_until:
            known = (index, oldest_unfinished_ms(progress))
        if known is None:
            return None
        self._found[place] = known
        return known[1]

    def _group(self, group: Group, rate: Any, now_ms: int) -> GroupStats:
        times = [time for time in map(self._oldest_ms, group.progress) if time is not None]
        return GroupStats(
            group.name,
            sum(progress.lag for progress in group.progress),
            sum(len(progress.leases) for progress in group.progress),
            sum(len(progress.postponed) - progress.retrying for progress in group.progress),
            len(group.consumers),
            group.paused,
            rate(("group", group.id)),
            max(0, now_ms - min(times)) if times else 0,
            sum(progress.retrying for progress in group.progress),
            group.parked,
            worst_message(group),
            sum(progress.done for progress in group.progress),
            next((each.owner for each in group.consumers if each.parked_ms is not None), "") if group.parked else "",
        )


async def events(call: Call) -> Response:
    query: EventsQuery = call.query
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if call.request.method == "HEAD":
        return Response(headers=headers, media_type=EVENTS)  # a stream would not end, though none of it is sent
    stream = _stream(Sampler(call.engine), query, call.stopping)
    return StreamingResponse(stream, headers=headers, media_type=EVENTS)


async def _stream(sampler: Sampler, query: EventsQuery, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"  # whoever is cut off comes back after a second
    await sampler.sample()  # what the first one that is sent is compared with
    sent = 0
    while query.count is None or sent < query.count:
        try:
            async with asyncio.timeout(query.interval_ms / 1000):
                await stopping.wait()
                return
        except TimeoutError:
            yield b"event: stats\ndata: " + msgspec.json.encode(await sampler.sample()) + b"\n\n"
            sent += 1


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v2/events",
        summary="What is going on, live",
        query=EventsQuery,
        answer=Stats,
        media_types=(EVENTS,),
        handler=events,
    )
]
