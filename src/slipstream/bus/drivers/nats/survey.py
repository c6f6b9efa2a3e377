"""What a JetStream server holds: topics and groups with their numbers, for whoever looks after them. Reads only."""

from __future__ import annotations

import datetime as dt
import secrets

import msgspec
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, StreamInfo
from nats.js.errors import NotFoundError

from slipstream.bus.drivers.nats.errors import FAILURES, translate
from slipstream.bus.drivers.nats.names import group_name
from slipstream.bus.drivers.nats.place import place_of
from slipstream.bus.drivers.nats.streams import PAGE, consumers_of

FIND_S = 5.0


class GroupSurvey(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    waiting: int
    """That nobody has been given."""
    in_flight: int
    listening: int
    """Requests for messages that wait at the server: whoever works at the moment has none there."""
    delivered: int
    """All deliveries so far, repeated ones too."""
    done_below: int
    """Everything below this offset is finished."""
    done: int
    """A count that grows with every message that is finished, and with those of other topics in the same stream."""
    paused: bool

    @property
    def lag(self) -> int:
        return self.waiting + self.in_flight


class TopicSurvey(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    stream: str
    messages: int
    bytes: int
    """Of the whole stream, where it stores others, too."""
    first_offset: int
    next_offset: int
    created_ms: int
    retention_ms: int
    retention_bytes: int
    is_alone: bool
    """Whether the stream stores nothing else, so that its sequence counts this topic's messages."""
    groups: tuple[GroupSurvey, ...]


async def survey(js: JetStreamContext, prefix: str = "") -> list[TopicSurvey]:
    """Every topic that starts so, with the groups that consume it. Raises BusError.

    Example:
        for topic in await survey(bus.native): print(topic.topic, topic.messages)
    """
    try:
        found: list[TopicSurvey] = []
        for info in await _streams(js):
            consumers = await consumers_of(js, info.config.name or "")
            for topic, messages in (await _topics(js, info)).items():
                if topic.startswith(prefix):
                    found.append(_topic(info, topic, messages, consumers))
    except FAILURES as error:
        raise translate(error, "the list of streams") from error
    return sorted(found, key=lambda each: each.topic)


async def stored_ms(js: JetStreamContext, topic: TopicSurvey, offset: int) -> int | None:
    """When the message at this offset, or the first of the topic behind it, was stored. Raises BusError."""
    return (await _found(js, topic, DeliverPolicy.BY_START_SEQUENCE, offset, None))[1]


async def offset_since(js: JetStreamContext, topic: TopicSurvey, since: dt.datetime) -> int | None:
    """Of the first message that was stored at this time or later. Raises BusError."""
    return (await _found(js, topic, DeliverPolicy.BY_START_TIME, None, since))[0]


async def _found(
    js: JetStreamContext, topic: TopicSurvey, policy: DeliverPolicy, offset: int | None, since: dt.datetime | None
) -> tuple[int | None, int | None]:
    """Return offset and time of the first message, through a consumer that acks nothing and is deleted afterwards."""
    config = ConsumerConfig(
        name=secrets.token_hex(8),  # so that a request that is sent again makes no second one
        ack_policy=AckPolicy.NONE,
        deliver_policy=policy,
        opt_start_seq=None if offset is None else max(1, offset),
        opt_start_time=since,
        filter_subject=topic.topic,
        inactive_threshold=FIND_S,
        mem_storage=True,
    )
    try:
        info = await js.add_consumer(topic.stream, config)
        try:
            if not info.num_pending:
                return None, None
            subscription = await js.pull_subscribe_bind(consumer=info.name, stream=topic.stream)
            try:
                (msg,) = await subscription.fetch(1, timeout=FIND_S)
            finally:
                await subscription.unsubscribe()
        finally:
            await js.delete_consumer(topic.stream, info.name)
    except NotFoundError:
        return None, None  # the stream, or the consumer, is gone
    except FAILURES as error:
        raise translate(error, f"looking into {topic.topic}") from error
    place = place_of(msg.reply)
    return place.stream_sequence, place.published_ms


async def _streams(js: JetStreamContext) -> list[StreamInfo]:
    found: list[StreamInfo] = []
    while page := await js.streams_info(len(found)):
        found += page
        if len(page) < PAGE:
            break
    return found


async def _topics(js: JetStreamContext, info: StreamInfo) -> dict[str, int]:
    """Topic → how many messages it has."""
    subjects = info.config.subjects or []
    if len(subjects) == 1 and "*" not in subjects[0] and ">" not in subjects[0]:
        return {subjects[0]: info.state.messages}
    told = (await js.stream_info(info.config.name or "", subjects_filter=">")).state.subjects or {}
    plain = {subject: 0 for subject in subjects if "*" not in subject and ">" not in subject}
    return plain | told


def _topic(info: StreamInfo, topic: str, messages: int, consumers: list[ConsumerInfo]) -> TopicSurvey:
    config, state = info.config, info.state
    is_alone = config.subjects == [topic]
    return TopicSurvey(
        topic=topic,
        stream=config.name or "",
        messages=messages,
        bytes=state.bytes,
        first_offset=state.first_seq,
        next_offset=state.last_seq + 1,
        created_ms=0 if info.created is None else round(info.created.timestamp() * 1000),
        retention_ms=round((config.max_age or 0) * 1000),
        retention_bytes=max(0, config.max_bytes or 0),
        is_alone=is_alone,
        groups=tuple(_group(each) for each in consumers if is_alone or each.config.filter_subject == topic),
    )


def _group(info: ConsumerInfo) -> GroupSurvey:
    return GroupSurvey(
        group=group_name(info.config.durable_name or info.name),
        waiting=info.num_pending or 0,
        in_flight=info.num_ack_pending or 0,
        listening=info.num_waiting or 0,
        delivered=0 if info.delivered is None else info.delivered.consumer_seq,
        done_below=0 if info.ack_floor is None else info.ack_floor.stream_seq + 1,
        done=(0 if info.delivered is None else info.delivered.stream_seq) - (info.num_ack_pending or 0),
        paused=bool(info.paused),
    )
