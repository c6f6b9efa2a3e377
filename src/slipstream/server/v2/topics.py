"""Topics and groups: create, look, change, delete; seek, pause, forget."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from slipstream.api import (
    CreateTopicRequest,
    GroupInfo,
    GroupList,
    GroupRetryRequest,
    SeekRequest,
    TopicChange,
    TopicConfigFields,
    TopicCreated,
    TopicInfo,
    TopicList,
)
from slipstream.broker import Broker, Group, InvalidArgument, Partition, Topic, TopicOverrides
from slipstream.server.v2.describe import describe_group, describe_topic, summarize_topic, to_overrides, to_retry
from slipstream.server.v2.endpoint import Call, Endpoint
from slipstream.server.wire import time_ms


async def list_topics(call: Call) -> TopicList:
    topics = call.engine.broker.state.topics
    return TopicList([summarize_topic(topics[name]) for name in sorted(topics)])


async def create_topic(call: Call) -> TopicCreated:
    request: CreateTopicRequest = call.body
    engine = call.engine
    exists = request.name in engine.broker.state.topics
    overrides = to_overrides(request.config, engine.broker.config.topic.retry)
    topic = await engine.perform(
        lambda broker, now_ms: broker.create_topic(now_ms, request.name, request.partitions, overrides)
    )
    engine.check_there(topic)
    return TopicCreated(not exists, describe_topic(topic, engine.now_ms()))


async def show_topic(call: Call) -> TopicInfo:
    return describe_topic(call.engine.broker.topic(call.path("topic")), call.engine.now_ms())


async def change_topic(call: Call) -> TopicInfo:
    request: TopicChange = call.body
    name = call.path("topic")
    overrides = _changed(call.engine.broker.topic(name), request)
    topic = await call.engine.perform(
        lambda broker, now_ms: broker.change_topic(now_ms, name, overrides, request.partitions)
    )
    call.engine.check_there(topic)
    return describe_topic(topic, call.engine.now_ms())


def _changed(topic: Topic, request: TopicChange) -> TopicOverrides:
    names = TopicConfigFields.__struct_fields__
    unknown = [name for name in request.reset if name not in names]
    if unknown:
        raise InvalidArgument(f"reset: there is no {unknown[0]!r}; there are {', '.join(names)}")
    given = to_overrides(request.config, topic.config.retry)
    changed: dict[str, object] = dict.fromkeys(request.reset)
    for name in names:
        value = getattr(given, name)
        if value is not None:
            if name in changed:
                raise InvalidArgument(f"{name} is both set and reset: do one of them")
            changed[name] = value
    return replace(topic.overrides, **changed)


async def delete_topic(call: Call) -> None:
    await call.engine.delete_topic(call.path("topic"))


async def list_groups(call: Call) -> GroupList:
    topic = call.engine.broker.topic(call.path("topic"))
    return GroupList([describe_group(group, call.engine.now_ms()) for group in topic.groups.values()])


async def show_group(call: Call) -> GroupInfo:
    group = call.engine.broker.group(call.path("topic"), call.path("group"))
    return describe_group(group, call.engine.now_ms(), messages=True)


async def seek(call: Call) -> GroupInfo:
    request: SeekRequest = call.body
    topic, name = call.path("topic"), call.path("group")
    find = _place(request)
    return await _change_group(call, lambda broker, now_ms: broker.seek(now_ms, topic, name, find, request.partition))


async def _change_group(call: Call, command: Callable[[Broker, int], Group]) -> GroupInfo:
    """Run a command and answer with the group that it has changed."""
    group = await call.engine.perform(command)
    call.engine.check_there(group.topic)
    return describe_group(group, call.engine.now_ms())


def _place(request: SeekRequest) -> Callable[[Partition], int]:
    if (request.to is not None) + (request.offset is not None) + (request.time is not None) != 1:
        raise InvalidArgument('say where to, with one of "to" ("earliest" or "latest"), "offset" and "time"')
    offset, time = request.offset, request.time
    if offset is not None:
        return lambda partition: partition.log.index_from(offset)
    if time is not None:
        at_ms = time_ms(time, "time")
        return lambda partition: partition.log.index_at(at_ms)
    if request.to == "earliest":
        return lambda partition: partition.first_index
    return lambda partition: partition.committed


async def pause(call: Call) -> GroupInfo:
    return await _pause(call, paused=True)


async def resume(call: Call) -> GroupInfo:
    return await _pause(call, paused=False)


async def _pause(call: Call, *, paused: bool) -> GroupInfo:
    topic, name = call.path("topic"), call.path("group")
    return await _change_group(call, lambda broker, now_ms: broker.pause(now_ms, topic, name, paused=paused))


async def set_retry(call: Call) -> GroupInfo:
    request: GroupRetryRequest = call.body
    topic, name = call.path("topic"), call.path("group")

    def change(broker: Broker, now_ms: int) -> Group:
        before = broker.topic(topic).config.retry
        retry = None if request.retry is None else to_retry(request.retry, before)
        return broker.set_group_retry(now_ms, topic, name, retry)

    return await _change_group(call, change)


async def forget_group(call: Call) -> None:
    topic, name = call.path("topic"), call.path("group")
    await call.engine.perform(lambda broker, _: broker.forget_group(topic, name))


_TOPIC = "/v2/topics/{topic}"
_GROUP = "/v2/topics/{topic}/groups/{group}"

ENDPOINTS = [
    Endpoint(method="GET", path="/v2/topics", summary="List topics", answer=TopicList, handler=list_topics),
    Endpoint(
        method="POST",
        path="/v2/topics",
        summary="Create a topic",
        body=CreateTopicRequest,
        answer=TopicCreated,
        status=201,
        handler=create_topic,
    ),
    Endpoint(method="GET", path=_TOPIC, summary="Describe a topic", answer=TopicInfo, handler=show_topic),
    Endpoint(
        method="PATCH",
        path=_TOPIC,
        summary="Change a topic's configuration",
        body=TopicChange,
        answer=TopicInfo,
        handler=change_topic,
    ),
    Endpoint(method="DELETE", path=_TOPIC, summary="Delete a topic", status=204, handler=delete_topic),
    Endpoint(
        method="GET", path=_TOPIC + "/groups", summary="List a topic's groups", answer=GroupList, handler=list_groups
    ),
    Endpoint(method="GET", path=_GROUP, summary="Describe a group", answer=GroupInfo, handler=show_group),
    Endpoint(method="DELETE", path=_GROUP, summary="Forget a group", status=204, handler=forget_group),
    Endpoint(
        method="POST",
        path=_GROUP + "/seek",
        summary="Send a group to another place",
        body=SeekRequest,
        answer=GroupInfo,
        handler=seek,
    ),
    Endpoint(
        method="PUT",
        path=_GROUP + "/retry",
        summary="Set how a group retries",
        body=GroupRetryRequest,
        answer=GroupInfo,
        handler=set_retry,
    ),
    Endpoint(method="POST", path=_GROUP + "/pause", summary="Pause a group", answer=GroupInfo, handler=pause),
    Endpoint(method="POST", path=_GROUP + "/resume", summary="Resume a group", answer=GroupInfo, handler=resume),
]
