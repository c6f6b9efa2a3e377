"""Topics and groups where NATS keeps the messages: the console's process answers for them itself, from JetStream.

Read only, and in the words of `/v2`: what an engine of its own can do besides is refused with what to use instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from slipstream import __version__
from slipstream.api import (
    GroupInfo,
    GroupList,
    GroupPartition,
    GroupStats,
    LogMessage,
    PartitionInfo,
    ReadQuery,
    ReadResponse,
    Stats,
    TopicConfigFields,
    TopicInfo,
    TopicList,
    TopicStats,
    TopicSummary,
)
from slipstream.api.codec import Codec, answer_codec
from slipstream.api.keys import KeyPlace
from slipstream.api.server import ServerCondition, ServerInfo
from slipstream.bus import Bus, BusError, BusSettings, Stored
from slipstream.bus.drivers.nats.survey import GroupSurvey, TopicSurvey, offset_since, stored_ms, survey
from slipstream.bus.names import DEAD_LETTER_SUFFIX
from slipstream.console.answers import Refused, read_query, refusal
from slipstream.console.connected_bus import ConnectedBus
from slipstream.console.sources import Away, LogRecord, Noun, TopicLog

MESSAGES_MAX = 10_000
BYTES_MAX = 64 << 20
"""Of one answer, whatever was asked for: as a broker of our own has them by default."""
BACK_FACTOR = 50
"""Where a stream stores other topics too, the newest of one are looked for so many times as far back."""


class NatsTopics(Noun):
    """Both the numbers and the calls; connected when it is first asked, and reconnected by itself."""

    what = "NATS"
    link = "#/topics"

    def __init__(self, settings: BusSettings) -> None:
        self.connected = ConnectedBus(settings)
        self._settings = self.connected.settings
        self._started_ms = _now_ms()
        self._before: tuple[int, dict[str, TopicSurvey]] = (0, {})
        self._oldest: dict[tuple[str, str], tuple[int, int | None]] = {}
        """(topic, group) → (offset, when it was stored), as it was found the last time."""

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/server", self.show_server, methods=["GET"]),
            Route("/v2/topics", self.list_topics, methods=["GET"]),
            Route("/v2/topics/{topic}", self.show_topic, methods=["GET"]),
            Route("/v2/topics/{topic}/messages", self.read, methods=["GET"]),
            Route("/v2/topics/{topic}/groups", self.list_groups, methods=["GET"]),
            Route("/v2/topics/{topic}/groups/{group}", self.show_group, methods=["GET"]),
        ]

    async def close(self) -> None:
        await self.connected.close()

    # Numbers

    async def samples(self, interval_ms: int) -> AsyncGenerator[Stats, None]:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            yield await self._sample()

    async def _sample(self) -> Stats:
        try:
            topics = await self._survey()
            ages = {key: await self._age_ms(topic, group) for topic in topics for key, group in _lagging(topic)}
        except BusError as error:
            raise Away(str(error)) from error
        there = {(topic.topic, group.group) for topic in topics for group in topic.groups}
        self._oldest = {key: known for key, known in self._oldest.items() if key in there}
        now_ms = _now_ms()
        before_ms, before = self._before
        self._before = (now_ms, {topic.topic: topic for topic in topics})
        return to_stats(topics, before, now_ms, max(1, now_ms - before_ms), ages)

    async def _age_ms(self, topic: TopicSurvey, group: GroupSurvey) -> int:
        key = (topic.topic, group.group)
        known = self._oldest.get(key)
        if known is None or known[0] != group.done_below:
            bus = await self._open()
            known = self._oldest[key] = (group.done_below, await stored_ms(bus.native, topic, group.done_below))
        return 0 if known[1] is None else max(0, _now_ms() - known[1])

    async def trouble(self) -> str:
        """Who cannot be reached is away, and nothing else is known here."""
        return ""

    async def conditions(self) -> list[ServerCondition]:
        """Return none: NATS tells nothing of the kind."""
        return []

    async def places(self, key: str) -> list[KeyPlace]:
        """A stream knows the ids of messages for two minutes, and does not tell where they are."""
        return []

    async def log_of(self, topic: str) -> TopicLog | None:
        """Return None: on NATS, a dead letter that is handled is removed, and no topic records it."""
        return None

    async def log(self, topic: str, partition: int, start: int) -> AsyncGenerator[LogRecord, None]:
        raise Away(f"on NATS no topic is read for the overview; {topic} was")
        yield  # type: ignore[unreachable]

    async def ends(self) -> Mapping[str, Mapping[int, int]]:
        """Raises Refused."""
        async with self.connected.asked():
            return {topic.topic: {0: topic.next_offset} for topic in await self._survey()}

    # Calls

    async def show_server(self, request: Request) -> Response:
        reachable = True
        try:
            await self._survey()
        except BusError:
            reachable = False
        info = ServerInfo(
            version=__version__,
            durability="jetstream",
            bus="nats",
            started_ms=self._started_ms,
            now_ms=_now_ms(),
            writable=reachable,
        )
        return _answer(request, info)

    async def list_topics(self, request: Request) -> Response:
        async with self.connected.asked():
            topics = await self._survey()
        return _answer(request, TopicList([_summary(topic) for topic in topics]))

    async def show_topic(self, request: Request) -> Response:
        topic = await self._topic(request)
        retention = TopicConfigFields(retention_ms=topic.retention_ms, retention_bytes=topic.retention_bytes)
        info = TopicInfo(
            topic.topic,
            f"{topic.created_ms:x}",
            topic.created_ms,
            topic.next_offset,
            retention,
            retention,
            [PartitionInfo(0, topic.first_offset, topic.next_offset, topic.messages, topic.bytes)],
            await self._groups(topic),
        )
        return _answer(request, info)

    async def list_groups(self, request: Request) -> Response:
        return _answer(request, GroupList(await self._groups(await self._topic(request))))

    async def show_group(self, request: Request) -> Response:
        topic, name = await self._topic(request), request.path_params["group"]
        found = next((group for group in topic.groups if group.group == name), None)
        if found is None:
            there = ", ".join(group.group for group in topic.groups) or "none"
            raise Refused("NOT_FOUND", f"{topic.topic} has no group {name}; there are {there}")
        async with self.connected.asked():
            age_ms = await self._age_ms(topic, found) if found.lag else 0
        return _answer(request, _group(topic, found, age_ms))

    async def read(self, request: Request) -> Response:
        query, topic = _within_limits(read_query(request, ReadQuery)), await self._topic(request)
        if query.partition not in {None, 0}:
            raise Refused("INVALID_ARGUMENT", f"a stream has one partition, 0, and no {query.partition}")
        async with self.connected.asked():
            start, end = await self._range(topic, query)
            found, more = await _taken(self._stored(topic, start, end), query, _codec(request))
        next_offset = found[-1].offset + 1 if more and found else max(start, end)
        answer = ReadResponse[str | bytes](
            partition=0,
            next_offset=next_offset,
            first_offset=topic.first_offset,
            end_offset=topic.next_offset,
            messages=found,
        )
        return _answer(request, answer)

    async def _range(self, topic: TopicSurvey, query: ReadQuery) -> tuple[int, int]:
        """From which offset, and before which."""
        js = (await self._open()).native
        start, end = max(topic.first_offset, query.from_ or 0), min(topic.next_offset, query.to or topic.next_offset)
        if query.since is not None:
            since = await offset_since(js, topic, query.since)
            start = topic.next_offset if since is None else max(start, since)
        if query.until is not None:
            until = await offset_since(js, topic, query.until)
            end = end if until is None else min(end, until)
        if query.last is not None:
            back = query.last if topic.is_alone else query.last * BACK_FACTOR
            start = max(start, end - back)
        return start, end

    async def _stored(self, topic: TopicSurvey, start: int, end: int) -> AsyncIterator[Stored]:
        if start >= end:
            return
        bus = await self._open()
        name = topic.topic.removeprefix(self._settings.prefix)
        async with contextlib.aclosing(bus.read(name, 0, start, end)) as messages:
            async for stored in messages:
                yield stored

    # The bus

    async def _topic(self, request: Request) -> TopicSurvey:
        name = request.path_params["topic"]
        async with self.connected.asked():
            found = next((topic for topic in await self._survey() if topic.topic == name), None)
        if found is None:
            raise Refused("NOT_FOUND", f"no stream has the subject {name}")
        return found

    async def _groups(self, topic: TopicSurvey) -> list[GroupInfo]:
        async with self.connected.asked():
            ages = [await self._age_ms(topic, group) if group.lag else 0 for group in topic.groups]
        return [_group(topic, group, age_ms) for group, age_ms in zip(topic.groups, ages, strict=True)]

    async def _survey(self) -> list[TopicSurvey]:
        return await survey((await self._open()).native, self._settings.prefix)

    async def _open(self) -> Bus:
        return await self.connected.open()


def _within_limits(query: ReadQuery) -> ReadQuery:
    """Less than was asked for is an answer, too: `next_offset` says where to read on."""
    limit = min(query.limit, MESSAGES_MAX)
    return msgspec.structs.replace(
        query,
        limit=limit,
        last=None if query.last is None else min(query.last, limit),
        max_bytes=min(query.max_bytes, BYTES_MAX),
    )


async def _taken(
    messages: AsyncIterator[Stored], query: ReadQuery, codec: Codec
) -> tuple[list[LogMessage[str | bytes]], bool]:
    """The first, or the newest, that fit, at least one of them; and whether there are more behind."""
    found: deque[tuple[int, LogMessage[str | bytes]]] = deque()
    size = 0
    async for stored in messages:
        length = len(stored.key) + len(stored.data)
        if query.last is None and found and (len(found) >= query.limit or size + length > query.max_bytes):
            return [message for _, message in found], True
        found.append((length, _message(stored, codec)))
        size += length
        while query.last is not None and len(found) > 1 and (len(found) > query.last or size > query.max_bytes):
            size -= found.popleft()[0]
    return [message for _, message in found], False


class NotOnNats:
    """Every other call of a broker."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = Refused(
            "UNIMPLEMENTED",
            f"{scope['method']} {scope['path']} is for a broker of our own: on NATS the console looks at topics and "
            "groups, and handles dead letters; the nats command does the rest",
        )
        await refusal(Request(scope), refused)(scope, receive, send)

    def stop(self) -> None:
        """Nothing goes on."""

    async def close(self) -> None:
        """Nothing is open."""


def to_stats(
    topics: list[TopicSurvey],
    before: Mapping[str, TopicSurvey],
    now_ms: int,
    interval_ms: int,
    ages: Mapping[tuple[str, str], int],
) -> Stats:
    """What happened since `before`; where nothing is known of before, the rates are 0."""
    counts = {topic.topic: topic.messages for topic in topics}
    shown = [_topic_stats(topic, before.get(topic.topic), interval_ms, counts, ages) for topic in topics]
    groups = [group for topic in shown for group in topic.groups]
    delivered = sum(_delivered(topic, before.get(topic.topic)) for topic in topics)
    dead = sum(_new(topic, before.get(topic.topic)) for topic in topics if topic.topic.endswith(DEAD_LETTER_SUFFIX))
    return Stats(
        time_ms=now_ms,
        interval_ms=interval_ms,
        produced_per_s=round(sum(topic.produced_per_s for topic in shown), 3),
        delivered_per_s=round(delivered * 1000 / interval_ms, 3),
        acked_per_s=round(sum(group.finished_per_s for group in groups), 3),
        nacked_per_s=0.0,
        dead_lettered_per_s=round(dead * 1000 / interval_ms, 3),
        lag=sum(group.lag for group in groups),
        in_flight=sum(group.in_flight for group in groups),
        dead_letters=sum(topic.dead_letters for topic in shown),
        oldest_unfinished_age_ms=max((group.oldest_unfinished_age_ms for group in groups), default=0),
        topics=shown,
    )


def _topic_stats(
    topic: TopicSurvey,
    before: TopicSurvey | None,
    interval_ms: int,
    counts: Mapping[str, int],
    ages: Mapping[tuple[str, str], int],
) -> TopicStats:
    new = _new(topic, before)
    groups = []
    for group in topic.groups:
        earlier = next((each for each in before.groups if each.group == group.group), None) if before else None
        # What came and is not there any more was finished, by an ack of whatever kind.
        finished = 0 if earlier is None else max(0, earlier.lag + new - group.lag)
        groups.append(
            GroupStats(
                group.group,
                group.lag,
                group.in_flight,
                0,
                _consumers(group),
                group.paused,
                round(finished * 1000 / interval_ms, 3),
                ages.get((topic.topic, group.group), 0),
                done=group.done,
            )
        )
    dead_letters = counts.get(topic.topic + DEAD_LETTER_SUFFIX, 0)
    return TopicStats(
        topic.topic, topic.messages, topic.bytes, round(new * 1000 / interval_ms, 3), dead_letters, groups
    )


def _new(topic: TopicSurvey, before: TopicSurvey | None) -> int:
    if before is None or before.created_ms != topic.created_ms:
        return 0
    if topic.is_alone:
        return max(0, topic.next_offset - before.next_offset)
    return max(0, topic.messages - before.messages)  # as far as one can tell: some may have been removed


def _delivered(topic: TopicSurvey, before: TopicSurvey | None) -> int:
    earlier = {group.group: group.delivered for group in before.groups} if before else {}
    return sum(max(0, group.delivered - earlier.get(group.group, group.delivered)) for group in topic.groups)


def _consumers(group: GroupSurvey) -> int:
    """At least: one whose hands are full asks for nothing."""
    return max(group.listening, 1 if group.in_flight else 0)


def _lagging(topic: TopicSurvey) -> list[tuple[tuple[str, str], GroupSurvey]]:
    return [((topic.topic, group.group), group) for group in topic.groups if group.lag]


def _summary(topic: TopicSurvey) -> TopicSummary:
    return TopicSummary(
        topic.topic,
        f"{topic.created_ms:x}",
        1,
        topic.messages,
        topic.bytes,
        len(topic.groups),
        max((group.lag for group in topic.groups), default=0),
        topic.retention_ms,
        topic.retention_bytes,
    )


def _group(topic: TopicSurvey, group: GroupSurvey, age_ms: int) -> GroupInfo:
    oldest_ms = _now_ms() - age_ms if group.lag else None
    place = GroupPartition(0, group.done_below - 1, group.lag, group.in_flight, 0, oldest_ms)
    return GroupInfo(
        topic=topic.topic,
        group=group.group,
        paused=group.paused,
        consumers=_consumers(group),
        lag=group.lag,
        in_flight=group.in_flight,
        delayed=0,
        oldest_unfinished_age_ms=age_ms,
        idle_ms=0,
        lost=0,
        partitions=[place],
    )


def _codec(request: Request) -> Codec:
    return answer_codec(b"", request.headers.get("accept", "").encode("latin-1"))


def _answer(request: Request, value: msgspec.Struct) -> Response:
    """JSON for the console's pages, MessagePack for the client and the commands that use it: as a broker answers."""
    codec = _codec(request)
    return Response(codec.encode(value), media_type=codec.media_type)


def _message(stored: Stored, codec: Codec) -> LogMessage[str | bytes]:
    value, encoding = codec.payload(stored.data)
    key, key_encoding = codec.payload(stored.key.encode())
    return LogMessage[str | bytes](
        partition=0,
        offset=stored.offset,
        timestamp_ms=stored.published_ms,
        key=key,
        value=value,
        encoding=encoding,
        key_encoding=key_encoding,
        attributes=stored.attributes or None,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
