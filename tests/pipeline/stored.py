"""The log as it is stored, read back message by message: what the answers are computed from."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from slipstream.api import Envelope, Routing
from slipstream.client import Client

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Stored(NamedTuple):
    """A message at its place."""

    topic: str
    incarnation: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    attributes: dict[str, str] | None = None
    envelope: Envelope | None = None
    routing: Routing | None = None

    @property
    def timestamp(self) -> dt.datetime:
        return time_of(self.timestamp_ms)


def time_of(ms: int) -> dt.datetime:
    """Exactly, as dividing by a thousand is not."""
    return EPOCH + dt.timedelta(milliseconds=ms)


def read_log(url: str) -> list[Stored]:
    """Everything that all topics of a server hold now."""
    log: list[Stored] = []
    with Client(url) as client:
        for summary in client.topics():
            for partition in range(summary.partitions):
                log += [
                    Stored(
                        topic=summary.name,
                        incarnation=summary.id,
                        partition=partition,
                        offset=message.offset,
                        timestamp_ms=message.timestamp_ms,
                        key=message.key,
                        value=message.value,
                        attributes=message.attributes,
                        envelope=message.envelope,
                        routing=message.routing,
                    )
                    for message in client.scan(summary.name, partition, max_bytes=16 << 20)
                ]
    return log
