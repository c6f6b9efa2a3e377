"""What is going on at the server, as it happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator

import aiohttp
import msgspec

from slipstream.api import Stats
from slipstream.api.media import EVENTS
from slipstream.client.errors import ConnectionFailed, SlipstreamError, Unavailable
from slipstream.client.part import Part
from slipstream.client.transport import ANSWER_BYTES_MAX, UNREADABLE, nonsense

log = logging.getLogger(__name__)


class EventsQuery(msgspec.Struct, omit_defaults=True):
    interval_ms: int = 1_000


class Events(Part):
    async def events(self, interval_ms: int = 1_000) -> AsyncGenerator[Stats, None]:
        """Numbers of the whole broker, every `interval_ms`, without end. After a broken connection it goes on with a
        new one; it raises once there has been none for as long as the client retries.

        Example:
            async for stats in client.events():
                print(stats.lag, stats.produced_per_s)
        """
        transport, loop = self._transport, asyncio.get_running_loop()
        retries, failures, give_up = transport.retries, 0, 0.0
        while True:
            try:
                silence_ms = interval_ms + transport.timeout_ms
                async with transport.stream("/v2/events", EVENTS, EventsQuery(interval_ms), silence_ms) as stream:
                    async for data in _data_of(stream, "stats"):
                        failures = 0
                        yield _stats(data)
                error: SlipstreamError = ConnectionFailed("the server ended the stream of events")
            except (ConnectionFailed, Unavailable) as broken:
                error = broken
            failures += 1
            if failures == 1:
                give_up = loop.time() + retries.for_ms / 1000
            pause_s = retries.pause_ms(failures) / 1000
            if loop.time() + pause_s > give_up:
                raise error
            log.debug("/v2/events: %s; once more in %.0f ms", error, pause_s * 1000)
            await asyncio.sleep(pause_s)


def _stats(data: bytes) -> Stats:
    try:
        return msgspec.json.decode(data, type=Stats)
    except UNREADABLE as error:
        raise nonsense("GET /v2/events", error) from error


async def _data_of(stream: aiohttp.StreamReader, name: str) -> AsyncIterator[bytes]:
    """The data of the server-sent events of this name: lines `field: text`, and an empty one after each event."""
    event, data = b"", b""
    async for line in _lines(stream):
        field, _, text = line.partition(b":")
        text = text.removeprefix(b" ")
        if field == b"event":
            event = text
        elif field == b"data":
            if len(data) > ANSWER_BYTES_MAX:
                raise nonsense("GET /v2/events", ValueError(f"an event of more than {ANSWER_BYTES_MAX} bytes"))
            data = data + b"\n" + text if data else text
        elif not line:
            if data and event == name.encode():
                yield data
            event, data = b"", b""


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The reader's own lines have a limit, and the numbers of ten thousand topics are a long one."""
    rest = b""
    async for chunk in stream.iter_any():
        if len(rest) > ANSWER_BYTES_MAX:
            raise nonsense("GET /v2/events", ValueError(f"a line of more than {ANSWER_BYTES_MAX} bytes"))
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
