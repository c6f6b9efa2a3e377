"""Reading a partition on as it grows. Nothing is leased, and nobody's progress changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from slipstream.api import LogMessage
from slipstream.bus.drivers.driver import FOLLOW_MESSAGES, Stored
from slipstream.bus.drivers.http.errors import AWAY
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import OffsetOutOfRange, SlipstreamError

log = logging.getLogger(__name__)

WAIT_MS = 20_000
"""How long a request waits for something new."""


async def read_on(
    client: AsyncClient, topic: str, partition: int, start: int | None, *, level: int = logging.WARNING
) -> AsyncGenerator[list[Stored], None]:
    """From `start`, or the oldest there is, without an end. A server that is away is waited for, which is logged, at
    `level`. Raises NotFound when the topic was deleted, and whatever else does not pass by itself."""
    failures = 0
    while True:
        try:
            page = await client.read(topic, partition, limit=FOLLOW_MESSAGES, wait_ms=WAIT_MS, from_=start)
        except AWAY as error:
            failures += 1
            if failures == 1:
                log.log(level, "%s/%d cannot be followed for now: %s; trying on", topic, partition, error)
            await asyncio.sleep(_pause_s(client, failures, error))
            continue
        except OffsetOutOfRange as error:
            start = error.earliest_offset  # retention was faster than we are
            continue
        if failures:
            log.info("%s/%d is followed again", topic, partition)
            failures = 0
        start = page.next_offset
        if page.messages:
            yield [stored(topic, message) for message in page.messages]


def _pause_s(client: AsyncClient, failures: int, error: SlipstreamError) -> float:
    return client.retries.endless_pause_ms(failures, error) / 1000


def stored(topic: str, message: LogMessage[bytes]) -> Stored:
    return Stored(
        topic=topic,
        partition=message.partition,
        offset=message.offset,
        data=message.value,
        attributes=message.attributes or {},
        key=message.key.decode(errors="replace"),
        published_ms=message.timestamp_ms,
    )
