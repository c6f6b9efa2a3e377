"""Publishing to one topic: batches, in order, and the topic is made when it is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from slipstream.api import Placed, ProduceMessage
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import ConnectionFailed, NotFound
from slipstream.client.producer import Producer, ProducerLimits
from slipstream.client.retry import Retries

LAST_ATTEMPT_MS = 1_000
"""What has waited behind others until its time was over has at least this one attempt."""

MakeTopic = Callable[[str, Retries], Awaitable[None]]


class Poster(Producer):
    """A producer without a linger: a single message goes at once, and what comes while a batch is under way is the
    next batch.

    The batch that finds no topic makes it and goes again, here and not when it has failed: the batches behind it still
    wait, so nothing is overtaken.
    """

    def __init__(self, client: AsyncClient, topic: str, limits: ProducerLimits, make_topic: MakeTopic | None) -> None:
        super().__init__(client, topic, limits)
        self._make_topic = make_topic

    async def _request(self, messages: list[ProduceMessage[bytes]], key: str, since: float) -> list[Placed]:
        """Messages count their time from when they were given to the bus. That of a batch is its newest one's: no
        message fails early because of another, and none waits longer than twice its time."""
        now = asyncio.get_running_loop().time()
        left_ms = max(0, round((since - now) * 1000) + self.limits.retry_for_ms)
        retries = replace(self._retries, for_ms=left_ms)
        try:
            async with asyncio.timeout(max(left_ms, LAST_ATTEMPT_MS) / 1000):
                return await self._store_or_make(messages, key, retries)
        except TimeoutError as error:
            raise ConnectionFailed(f"no answer from {self._client._transport.shown} in time") from error

    async def _store_or_make(self, messages: list[ProduceMessage[bytes]], key: str, retries: Retries) -> list[Placed]:
        try:
            return await self._client._produce(self.topic, messages, key, retries)
        except NotFound:
            if self._make_topic is None:
                raise
        await self._make_topic(self.topic, retries)
        return await self._client._produce(self.topic, messages, key, retries)
