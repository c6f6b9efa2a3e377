"""Where a query begins and where a batch read ends: what the options say, as offsets."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping

from slipstream.pipeline.source.errors import InvalidOption
from slipstream.pipeline.source.log import Log
from slipstream.pipeline.source.offsets import TopicOffsets
from slipstream.pipeline.source.options import EARLIEST, LATEST, Options, Positions
from slipstream.pipeline.source.standing import PartitionStanding, Standing, TopicStanding

Place = Callable[[TopicStanding, PartitionStanding], int]


def selected(log: Log, options: Options) -> Standing:
    """The topics that are read, as they stand now."""
    found = log.standing(options.named)
    return {name: topic for name, topic in found.items() if options.wants(name)}


def starting(log: Log, options: Options, standing: Standing) -> dict[str, TopicOffsets]:
    if options.starting_ms is not None:
        return _by_time("startingOffsetsByTimestamp", log, options, standing, options.starting_ms)
    if isinstance(options.starting, str):
        earliest = options.starting == "earliest"
        return _placed(options, standing, lambda topic, partition: partition.first if earliest else topic.end)
    return _by_offset("startingOffsets", options, standing, options.starting)


def ending(log: Log, options: Options, standing: Standing) -> dict[str, TopicOffsets]:
    if options.ending_ms is not None:
        return _by_time("endingOffsetsByTimestamp", log, options, standing, options.ending_ms)
    if isinstance(options.ending, str):
        return _placed(options, standing, lambda topic, _: topic.end)
    return _by_offset("endingOffsets", options, standing, options.ending)


def _placed(options: Options, standing: Standing, place: Place) -> dict[str, TopicOffsets]:
    return {
        name: TopicOffsets(
            topic.incarnation,
            {
                each.number: place(topic, each)
                for each in topic.partitions
                if options.wants_partition(name, each.number)
            },
        )
        for name, topic in standing.items()
    }


def _by_offset(option: str, options: Options, standing: Standing, said: Positions) -> dict[str, TopicOffsets]:
    _check_names(option, options, standing, said)

    def place(topic: TopicStanding, partition: PartitionStanding) -> int:
        offset = _said_of(option, said, topic.name, partition.number)
        if offset == EARLIEST:
            return partition.first
        if offset == LATEST:
            return topic.end
        if offset > topic.end:
            raise InvalidOption(
                f"{option}: {topic.name}/{partition.number} has no offset {offset} yet: its topic ends at {topic.end}"
            )
        return offset

    return _placed(options, standing, place)


def _by_time(
    option: str, log: Log, options: Options, standing: Standing, said: Positions | int
) -> dict[str, TopicOffsets]:
    """Everything there is was stored before a time that has no offset; what comes now is behind it."""
    if not isinstance(said, int):
        _check_names(option, options, standing, said)
    seen: dict[int, Standing] = {}

    def place(topic: TopicStanding, partition: PartitionStanding) -> int:
        time_ms = said if isinstance(said, int) else _said_of(option, said, topic.name, partition.number)
        if time_ms not in seen:
            seen[time_ms] = log.standing(list(standing), since=_time(option, time_ms))
        then = seen[time_ms].get(topic.name)
        if then is None or then.incarnation != topic.incarnation:
            return partition.first  # deleted since: reading it says so
        found = next((each for each in then.partitions if each.number == partition.number), partition)
        return topic.end if found.since is None or found.since >= found.end else min(found.since, topic.end)

    return _placed(options, standing, place)


def _time(option: str, time_ms: int) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidOption(f"{option}: {time_ms} ms is no time: milliseconds since 1970 are wanted") from error


def _said_of(option: str, said: Positions, topic: str, partition: int) -> int:
    of_topic = said[topic]
    if isinstance(of_topic, int):
        return of_topic
    if partition not in of_topic:
        raise InvalidOption(
            f'{option} says nothing of {topic}/{partition}: name every partition, or the topic alone ({{"{topic}": …}})'
        )
    return of_topic[partition]


def _check_names(option: str, options: Options, standing: Standing, said: Mapping[str, dict[int, int] | int]) -> None:
    for name in standing:
        if name not in said:
            raise InvalidOption(f"{option} says nothing of {name}, which is read too: name every topic")
    for name, positions in said.items():
        if name not in standing:
            reason = "there is no such topic" if options.wants(name) else "it is not read"
            raise InvalidOption(f"{option} speaks of {name}, but {reason}")
        there = {each.number for each in standing[name].partitions if options.wants_partition(name, each.number)}
        unknown = sorted(set(positions) - there) if isinstance(positions, dict) else []
        if unknown:
            raise InvalidOption(f"{option} speaks of {name}/{unknown[0]}, which is not there or not read")
