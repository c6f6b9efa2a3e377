"""Makes the streams and their groups as they should be, on whichever bus, and says what that changed."""

from __future__ import annotations

import msgspec

from slipstream.bus import Bus, TopicInfo
from slipstream.jobs.groups import LOGS_IN_FLIGHT, STATUSES_IN_FLIGHT, ledger_options, worker_options
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.streams import DAY_MS, GB, Stream, Streams, streams

PARTITIONED = {"embedded", "memory", "http"}
"""Drivers on which a topic has partitions, and a limit of bytes is that of each; on the others a topic is one."""

WITHOUT_LOG = {"pubsub"}

NOTHING = "-"
"""What the engine has not, or does not tell."""


class Difference(msgspec.Struct, frozen=True):
    """One thing that was not as it should be."""

    what: str
    was: str
    now: str
    wanted: str

    @property
    def is_settled(self) -> bool:
        """False for what this engine cannot do, or does not."""
        return self.now == self.wanted


class Provisioned(msgspec.Struct, frozen=True):
    """What became of a stream."""

    topic: str
    created: bool
    differences: list[Difference]
    partitions: str
    time: str
    size: str
    """As it is now; the size is that of all partitions."""

    @property
    def is_changed(self) -> bool:
        return self.created or any(each.was != each.now for each in self.differences)


async def provision(bus: Bus, settings: JobSettings) -> list[Provisioned]:
    """Any number of times: what is right is left alone. What holds more than is wanted (partitions, as they cannot be
    taken away) stays. Raises BusError.

    Example:
        async with open_bus() as bus:
            await provision(bus, load_settings({}))
    """
    done = [await _provision(bus, stream) for stream in streams(settings.namespace).all()]
    await ensure_groups(bus, settings)
    return done


async def ensure_topics(bus: Bus, streams: Streams) -> None:
    """Those that are missing. One that is there is left as it is: to change it is for `provision`. Raises BusError."""
    for stream in streams.all():
        await _create(bus, stream)


async def ensure_groups(bus: Bus, settings: JobSettings) -> None:
    """With the options that workers and the service subscribe with, so that they miss nothing that was published before
    they began. Raises BusError."""
    found = streams(settings.namespace)
    await bus.ensure_group(found.tasks.topic, found.tasks.group, worker_options(settings))
    await bus.ensure_group(found.status.topic, found.status.group, ledger_options(found, STATUSES_IN_FLIGHT))
    if bus.driver in WITHOUT_LOG:
        # Elsewhere the service reads them as a log, and a group that nobody is in would look like a growing backlog.
        await bus.ensure_group(found.logs.topic, found.logs.group, ledger_options(found, LOGS_IN_FLIGHT))


async def _create(bus: Bus, stream: Stream) -> None:
    limit = _limit_bytes(bus, stream, stream.partitions)
    await bus.ensure_topic(stream.topic, stream.partitions, stream.retention_ms / 1000, limit)


async def _provision(bus: Bus, stream: Stream) -> Provisioned:
    before = await bus.topic(stream.topic)
    if before is None:
        await _create(bus, stream)
    else:
        stream = msgspec.structs.replace(stream, partitions=max(stream.partitions, before.partitions))
        if _differences(stream, before, before):
            await bus.adjust_topic(
                stream.topic,
                partitions=stream.partitions if stream.partitions > before.partitions else None,
                retention=stream.retention_ms / 1000,
                retention_bytes=_limit_bytes(bus, stream, stream.partitions),
            )
    after = await bus.topic(stream.topic)
    assert after is not None, "it was just made"
    return Provisioned(stream.topic, before is None, _differences(stream, before, after), **_shown(after))


def _limit_bytes(bus: Bus, stream: Stream, partitions: int) -> int:
    """In the terms of the engine: the stream's limit is for all of it, and is divided where each partition is counted
    by itself."""
    return stream.retention_bytes // (partitions if bus.driver in PARTITIONED else 1)


def _differences(stream: Stream, before: TopicInfo | None, after: TopicInfo) -> list[Difference]:
    """Between what was or is, and what should be."""
    was, now = _shown(before or after), _shown(after)
    wanted = {
        "partitions": str(stream.partitions),
        "time": _days(stream.retention_ms),
        "size": _size(stream.retention_bytes),
    }
    if after.retention_bytes is None and not stream.retention_bytes:
        del wanted["size"]  # an engine without limits is what is wanted
    return [
        Difference(what, was[what] if before is not None else NOTHING, now[what], aim)
        for what, aim in wanted.items()
        if not was[what] == now[what] == aim
    ]


def _shown(info: TopicInfo) -> dict[str, str]:
    size = info.retention_bytes
    return {
        "partitions": str(info.partitions),
        "time": _days(info.retention_ms),
        "size": _size(size if size is None else size * info.partitions),
    }


def _days(value: int | None) -> str:
    if value is None:
        return NOTHING
    return f"{value / DAY_MS:g} d" if value else "for ever"


def _size(value: int | None) -> str:
    if value is None:
        return NOTHING
    return f"{value / GB:g} GB" if value else "no limit"
