"""The broker, when it is another process: its numbers as `/v2/events` tells them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from slipstream.api import Stats
from slipstream.api.keys import KeyPlace, KeyPlaces
from slipstream.api.server import ServerCondition
from slipstream.client import AsyncClient, NotFound, SlipstreamError
from slipstream.console.answers import Refused
from slipstream.console.sources import Away, LogRecord, TopicLog


class BrokerStats:
    """Follows the stream for as long as it lasts; who asks again connects again."""

    def __init__(self, url: str) -> None:
        # At once: to try again, and how often, is the overview's business.
        self._client = AsyncClient(url, retry_for_ms=0, timeout_ms=5_000)
        self._url = self._client.url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def samples(self, interval_ms: int) -> AsyncGenerator[Stats, None]:
        try:
            async with contextlib.aclosing(self._client.events(interval_ms)) as events:
                async for stats in events:
                    yield stats
        except SlipstreamError as error:
            raise Away(str(error)) from error

    async def trouble(self) -> str:
        status, said = await self._ask("/health/ready")
        return str(said.get("reason", "")) if status == 503 else ""

    async def conditions(self) -> list[ServerCondition]:
        status, said = await self._ask("/v2/server")
        return msgspec.convert(said.get("conditions", []), list[ServerCondition]) if status == 200 else []

    async def places(self, key: str) -> list[KeyPlace]:
        status, said = await self._ask(f"/v2/idempotency-keys/{quote(key, safe='')}")
        return msgspec.convert(said, KeyPlaces).places if status == 200 else []

    async def _ask(self, path: str) -> tuple[int, dict[str, Any]]:
        """Raises Away."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        try:
            async with self._session.get(URL(self._url + path, encoded=True)) as answer:
                return answer.status, msgspec.json.decode(await answer.read(), type=dict[str, Any])
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
            raise Away(f"{path} is not answered: {error or type(error).__name__}") from error

    async def ends(self) -> Mapping[str, Mapping[int, int]]:
        """Raises Refused."""
        try:
            found = await self._client.offsets()
        except SlipstreamError as error:
            raise Refused("UNAVAILABLE", str(error)) from error
        return {
            topic.name: {partition.partition: partition.end_offset for partition in topic.partitions}
            for topic in found.topics
        }

    async def log_of(self, topic: str) -> TopicLog | None:
        try:
            found = await self._client.topic(topic)
        except NotFound:
            return None
        except SlipstreamError as error:
            raise Away(str(error)) from error
        return TopicLog(found.created_ms, tuple(each.first_offset for each in found.partitions))

    async def log(self, topic: str, partition: int, start: int) -> AsyncGenerator[LogRecord, None]:
        try:
            async with contextlib.aclosing(self._client.scan(topic, partition, from_=start)) as messages:
                async for message in messages:
                    yield LogRecord(message.offset, message.timestamp_ms, message.value)
        except SlipstreamError as error:
            raise Away(str(error)) from error

    async def close(self) -> None:
        await self._client.close()
        if self._session is not None:
            await self._session.close()
