"""Makes the streams as they should be, on whichever bus, and says what that changed."""

from __future__ import annotations

import msgspec

from slipstream.bus import Bus, TopicInfo
from slipstream.jobs.streams import DAY_MS, GB, Stream, Streams


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


async def provision(bus: Bus, streams: Streams) -> list[Provisioned]:
    """Any number of times: what is right is left alone. What holds more than is wanted (partitions, as they cannot be
    taken away) stays. Raises BusError.

    Example:
        async with open_bus() as bus:
            await provision(bus, streams("fetchbox"))
    """
    return [await _provision(bus, stream) for stream in streams.all()]


async def _provision(bus: Bus, stream: Stream) -> Provisioned:
    before = await bus.topic(stream.topic)
    if before is None:
        await bus.ensure_topic(stream.topic, stream.partitions, stream.retention_ms / 1000, stream.retention_bytes)
        after = await bus.topic(stream.topic)
    elif _differences(stream, before, before):
        after = await bus.adjust_topic(
            stream.topic,
            partitions=stream.partitions if stream.partitions > before.partitions else None,
            retention=stream.retention_ms / 1000,
            retention_bytes=stream.retention_bytes,
        )
    else:
        after = before
    if stream.group:
        await bus.ensure_group(stream.topic, stream.group)
    assert after is not None, "it was just made"
    return Provisioned(stream.topic, before is None, _differences(stream, before, after))


def _differences(stream: Stream, before: TopicInfo | None, after: TopicInfo) -> list[Difference]:
    """Between what was and what should be, or between what is and what should be. None is what an engine has not."""
    found = []
    for what, field, wanted in (
        ("partitions", "partitions", stream.partitions),
        ("time", "retention_ms", stream.retention_ms),
        ("size", "retention_bytes", stream.retention_bytes),
    ):
        shown, now = _SHOWN[what], getattr(after, field)
        was = now if before is None else getattr(before, field)
        if was != wanted or now != wanted:
            found.append(Difference(what, "-" if before is None else shown(was), shown(now), shown(wanted)))
    return found


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _days(value: int | None) -> str:
    if value is None:
        return "-"
    return f"{value / DAY_MS:g} d" if value else "for ever"


def _size(value: int | None) -> str:
    if value is None:
        return "-"
    return f"{value / GB:g} GB" if value else "no limit"


_SHOWN = {"partitions": _count, "time": _days, "size": _size}
