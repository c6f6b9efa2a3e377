"""Streams and consumers: found, or made where that is wanted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, BadRequestError, NotFoundError

from slipstream.bus.drivers.driver import TopicInfo
from slipstream.bus.drivers.nats.errors import FAILURES, Denied, translate
from slipstream.bus.drivers.nats.names import consumer_name, group_name, stream_name
from slipstream.bus.errors import BusError, TopicMissing
from slipstream.bus.options import SubscribeOptions, seconds
from slipstream.bus.settings import BusSettings

log = logging.getLogger(__name__)

DEDUPE_WINDOW_S = 120.0
OVERLAP, NAME_IN_USE = 10065, 10058
"""Error codes of the server: another stream has the subject; a stream has the name, with other settings."""
TOO_LARGE = {10002, 10005, 10023, 10028, 10047, 10122}
"""More than the server, the account or any server of the cluster has left: it reserves the whole of a limit in bytes
when that is set, and does not wait until it is used."""
NO_LIMIT = -1
AGE_S_MIN = 0.1
"""The server takes nothing shorter."""
PAGE = 256
"""Maximum number of streams or consumers that the server lists in one answer."""


class Streams:
    """One stream a topic, unless an existing one covers it: whatever an operator has set up is used as it is."""

    def __init__(self, js: JetStreamContext, settings: BusSettings) -> None:
        self._js = js
        self._settings = settings
        self._known: dict[str, str] = {}

    async def of(self, topic: str) -> str:
        """The name of the stream that stores the topic; made if it is missing and that is wanted."""
        known = self._known.get(topic)
        return known if known is not None else await self.ensure(topic)

    def forget(self, topic: str) -> None:
        """It may have been deleted."""
        self._known.pop(topic, None)

    async def ensure(self, topic: str) -> str:
        """Makes it if it is missing, and the settings allow that."""
        if not self._settings.ensure:
            return await self.find(topic)
        return await self.make(topic)

    async def make(self, topic: str, retention_ms: int | None = None, retention_bytes: int | None = None) -> str:
        """Makes it if it is missing."""
        try:
            found = await self._find(topic)
            if found is None:
                found = await self._make(topic, retention_ms, retention_bytes or 0)
        except FAILURES as error:
            raise translate(error, f"the stream of {topic}") from error
        self._known[topic] = found
        return found

    async def find(self, topic: str) -> str:
        """Likewise, but never makes one."""
        try:
            found = await self._find(topic)
        except FAILURES as error:
            raise translate(error, f"the stream of {topic}") from error
        if found is None:
            raise TopicMissing(
                f"no stream has the subject {topic}: make one, for example with bus.ensure_topic, or "
                f"nats stream add --subjects {topic} {stream_name(topic)}; with BUS_ENSURE=true the bus does"
            )
        return found

    async def _find(self, topic: str) -> str | None:
        try:
            name: str = await self._js.find_stream_name_by_subject(topic)
        except NotFoundError:
            return None
        return name

    async def _make(self, topic: str, retention_ms: int | None, retention_bytes: int) -> str:
        settings = self._settings
        name = stream_name(topic)
        max_age_s = _max_age_s(settings.retention_ms if retention_ms is None else retention_ms)
        config = StreamConfig(
            name=name,
            subjects=[topic],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_age=max_age_s,
            max_bytes=retention_bytes or NO_LIMIT,
            num_replicas=settings.nats_replicas,
            duplicate_window=min(DEDUPE_WINDOW_S, max_age_s) if max_age_s else DEDUPE_WINDOW_S,
            allow_direct=True,
        )
        try:
            await self._add(config)
        except (BadRequestError, APIError) as error:
            # Somebody else may have made it in this moment, with settings of their own.
            found = await self._find(topic) if error.err_code in {OVERLAP, NAME_IN_USE} else None
            if found is None:
                raise
            return found
        log.info("NATS: made stream %s for %s", name, topic)
        return name

    async def _add(self, config: StreamConfig) -> None:
        try:
            await self._js.add_stream(config)
        except APIError as error:
            if config.max_bytes == NO_LIMIT or error.err_code not in TOO_LARGE:
                raise
            await self._js.add_stream(config.evolve(max_bytes=NO_LIMIT))
            _say_no_room(config, error)

    async def info(self, topic: str) -> TopicInfo | None:
        """Of the stream that stores the topic, and maybe others; None where there is none."""
        try:
            stream = await self._find(topic)
            return None if stream is None else _info(topic, (await self._js.stream_info(stream)).config)
        except NotFoundError:
            return None  # deleted in this moment
        except FAILURES as error:
            raise translate(error, f"the stream of {topic}") from error

    async def groups(self, topic: str) -> list[str]:
        """Return the groups with a durable consumer that takes this topic."""
        try:
            stream = await self._find(topic)
            consumers = [] if stream is None else await consumers_of(self._js, stream)
        except NotFoundError:
            return []  # the stream was deleted meanwhile
        except FAILURES as error:
            raise translate(error, f"the consumers of {topic}") from error
        return sorted(group_name(each.config.durable_name or "") for each in consumers if takes(each, topic))

    async def adjust(self, topic: str, retention_ms: int | None, retention_bytes: int | None) -> TopicInfo:
        """Only of a stream that is for this topic alone: what holds for others is not ours to change."""
        stream = await self.find(topic)
        try:
            config = (await self._js.stream_info(stream)).config
            if config.subjects == [topic]:
                config = await self._update(config, _changes(config, retention_ms, retention_bytes))
        except FAILURES as error:
            raise translate(error, f"the stream of {topic}") from error
        return _info(topic, config)

    async def _update(self, config: StreamConfig, changes: dict[str, Any]) -> StreamConfig:
        if not changes:
            return config
        try:
            return (await self._js.update_stream(config.evolve(**changes))).config
        except APIError as error:
            if "max_bytes" not in changes or error.err_code not in TOO_LARGE:
                raise
            _say_no_room(config.evolve(**changes), error)
            return await self._update(config, {name: changes[name] for name in changes if name != "max_bytes"})

    async def check(self, stream: str, consumer: str) -> str:
        """Return when the stream was made; raise TopicMissing unless both are there. The leaders of both are asked at
        the same time: after an election neither need be known yet."""
        try:
            made_at, _ = await asyncio.gather(self.made_at(stream), self._js.consumer_info(stream, consumer))
        except FAILURES as error:
            raise translate(error, f"consumer {consumer} of stream {stream}") from error
        return made_at

    async def made_at(self, stream: str) -> str:
        """Return when the stream was made; "" if permissions do not let us ask. A stream that is deleted and made again
        has another time, and other messages."""
        try:
            info = await self._js.stream_info(stream)
        except Denied as error:
            log.debug("NATS: the age of stream %s is not known: %s", stream, error)
            return ""
        except FAILURES as error:
            raise translate(error, f"stream {stream}") from error
        return "" if info.created is None else str(round(info.created.timestamp() * 1e6))

    async def consumer(self, stream: str, topic: str, group: str, options: SubscribeOptions) -> ConsumerInfo:
        """The durable that the subscribers of a group share."""
        name = consumer_name(group)
        try:
            return await self._consumer(stream, name, topic, options)
        except NotFoundError as error:
            raise TopicMissing(
                f"stream {stream} has no consumer {name}, and BUS_ENSURE is false: make one, for example with "
                f"nats consumer add --pull --ack explicit --filter {topic} {stream} {name}"
            ) from error
        except FAILURES as error:
            raise translate(error, f"consumer {name} of stream {stream}") from error

    async def _consumer(self, stream: str, name: str, topic: str, options: SubscribeOptions) -> ConsumerInfo:
        ack_wait = seconds(options.ack_deadline)
        info: ConsumerInfo | None
        try:
            info = await self._js.consumer_info(stream, name)
        except NotFoundError:
            if not self._settings.ensure:
                raise
            info = None
        if info is not None:
            _check(info.config, stream, name)
            there = info.config.ack_wait or ack_wait
            if there >= ack_wait or not self._settings.ensure:
                if there != ack_wait:
                    log.warning(
                        "NATS: consumer %s of %s has an ack_wait of %g s, and not the %g s of ack_deadline; it stays",
                        name,
                        stream,
                        there,
                        ack_wait,
                    )
                return info
            # Only that, and only up: an operator may have chosen the rest; and others of the group may be at work, who
            # extend their leases in time for the deadline they know.
            changed: ConsumerInfo = await self._js.add_consumer(stream, info.config.evolve(ack_wait=ack_wait))
            return changed
        config = ConsumerConfig(
            durable_name=name,
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            filter_subject=topic,
            ack_wait=ack_wait,
            # No `backoff`: its first pause would take the place of ack_wait, and it does not apply to naks, which carry
            # the pause themselves. No `max_deliver`: the server would leave the message in the stream and only tell
            # those who listen; dead letters are published by the subscriber.
            max_deliver=-1,
            max_ack_pending=self._settings.max_unfinished,
        )
        made: ConsumerInfo = await self._js.add_consumer(stream, config)
        return made


async def consumers_of(js: JetStreamContext, stream: str) -> list[ConsumerInfo]:
    """Return the durable consumers of a stream. Others belong to a reader or a follower, and go with it."""
    found: list[ConsumerInfo] = []
    while page := await js.consumers_info(stream, len(found)):
        found += page
        if len(page) < PAGE:
            break
    return [each for each in found if each.config.durable_name]


def takes(consumer: ConsumerInfo, topic: str) -> bool:
    """Whether a consumer gets the messages of a topic. Without a filter it gets all of its stream."""
    return consumer.config.filter_subject in (None, "", topic)


def _max_age_s(retention_ms: int) -> float:
    return max(AGE_S_MIN, retention_ms / 1000) if retention_ms else 0


def _changes(config: StreamConfig, retention_ms: int | None, retention_bytes: int | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if retention_ms is not None:
        changes["max_age"] = max_age_s = _max_age_s(retention_ms)
        if max_age_s:  # the server remembers no id for longer than the message
            changes["duplicate_window"] = min(config.duplicate_window or DEDUPE_WINDOW_S, max_age_s)
    if retention_bytes is not None:
        changes["max_bytes"] = retention_bytes or NO_LIMIT
    return changes


def _info(topic: str, config: StreamConfig) -> TopicInfo:
    return TopicInfo(topic, 1, round((config.max_age or 0) * 1000), max(0, config.max_bytes or 0))


def _say_no_room(config: StreamConfig, error: APIError) -> None:
    log.warning(
        "NATS: stream %s gets no limit of %d bytes: the server would reserve them, and has not so many left (%s)",
        config.name,
        config.max_bytes,
        error.description,
    )


def _check(config: ConsumerConfig, stream: str, name: str) -> None:
    if config.deliver_subject:
        raise BusError(f"consumer {name} of stream {stream} is a push consumer: the bus needs one that is pulled")
    if config.ack_policy not in {AckPolicy.EXPLICIT, "explicit"}:
        raise BusError(f"consumer {name} of stream {stream} has ack policy {config.ack_policy}: it must be explicit")
