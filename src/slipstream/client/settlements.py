"""How a worker says what became of its messages: those that finish together in one request, until it is heard."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from slipstream.api import AckRequest, Failure, NackItem, NackRequest, Place
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import ConnectionFailed, InvalidArgument, Overloaded, SlipstreamError, Unavailable
from slipstream.client.retry import ONCE

log = logging.getLogger(__name__)


class _Settlement(NamedTuple):
    place: Place
    nack: NackItem | None
    heard: asyncio.Future[None]


class Settlements:
    """Of one topic and group. One request is under way at a time; what finishes meanwhile goes into the next.

    So a single message is acked at once, and many cost few requests, without anybody waiting for a timer.
    """

    def __init__(self, client: AsyncClient, topic: str, group: str, owner: str | None = None) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._owner = owner or client.owner
        self._waiting: list[_Settlement] = []
        self._task: asyncio.Task[None] | None = None

    async def ack(self, place: Place) -> None:
        """Returns when the server has heard it: it counts, or the message is another's now."""
        await self._settle(place, None)

    async def nack(self, item: NackItem) -> None:
        await self._settle(Place(item.partition, item.offset), item)

    async def close(self) -> None:
        """What has not been heard by now will not be; the leases run out."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _settle(self, place: Place, nack: NackItem | None) -> None:
        heard = asyncio.get_running_loop().create_future()
        self._waiting.append(_Settlement(place, nack, heard))
        if self._task is None or self._task.done():
            # It begins with the next turn of the loop: handlers that finish in this one are in the first request.
            self._task = asyncio.create_task(self._send())
        await heard

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            await self._until_heard(batch)
            for settlement in batch:
                if not settlement.heard.done():
                    settlement.heard.set_result(None)

    async def _until_heard(self, batch: list[_Settlement]) -> None:
        failures = 0
        while True:
            try:
                await self._say(batch)
            except (ConnectionFailed, Unavailable, Overloaded) as error:
                failures += 1
                if failures == 1:
                    log.warning("%d results for %s are not heard: %s; trying on", len(batch), self._topic, error)
                await asyncio.sleep(self._client.retries.endless_pause_ms(failures, error) / 1000)
            except SlipstreamError as error:
                if isinstance(error, InvalidArgument) and len(batch) > 1:
                    # Too large together, or one of them cannot be right: the others have a chance without it.
                    middle = len(batch) // 2
                    await self._until_heard(batch[:middle])
                    await self._until_heard(batch[middle:])
                    return
                # The topic or the group is gone, and with it the messages.
                log.warning("%d results for %s are refused: %s", len(batch), self._topic, error)
                return
            except Exception:
                # Unheard of; but who waits here holds a slot, and must not wait for ever. The leases run out.
                log.exception("%d results for %s could not be told", len(batch), self._topic)
                return
            else:
                if failures:
                    log.info("%d results for %s are heard, at last", len(batch), self._topic)
                return

    async def _say(self, batch: list[_Settlement]) -> None:
        names = {"topic": self._topic, "group": self._group, "owner": self._owner}
        failed: list[Failure] = []
        done = [settlement.place for settlement in batch if settlement.nack is None]
        if done:
            failed += (await self._client._ack(AckRequest(**names, messages=done), ONCE)).failed
        nacks = [settlement.nack for settlement in batch if settlement.nack is not None]
        if nacks:
            failed += (await self._client._nack(NackRequest(**names, messages=nacks), ONCE)).failed
        for failure in failed:
            # It is another's now, or was never handed out as far as the server knows (it was restarted in that moment).
            place = f"{self._topic}/{failure.partition}/{failure.offset}"
            log.warning("the result for %s does not count: %s", place, failure.message)
