"""Delayed retries and attempts for engines that know neither: they are kept here, while the engine keeps the lease.

Pub/Sub redelivers a nacked message at once and counts attempts only beside a dead-letter policy; core NATS redelivers
nothing. A plain log (offsets only) would stand on this, too, with a source that keeps its leases itself.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Sequence

from slipstream.bus.drivers.driver import Delivery, Source
from slipstream.bus.errors import BusError

log = logging.getLogger(__name__)


class LocalRetries:
    """A source whose nacks wait in this process, and come again from `pull` when they are due, one attempt further.

    What waits counts against the limit of `pull`: a subscriber never has more than its bound on lease, whether handlers
    are at it or not. When the process dies the engine hands it out again, and the count begins anew.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._due: list[tuple[float, int, Delivery]] = []
        self._numbers = itertools.count()
        self._loop = asyncio.get_running_loop()
        self._nacked = asyncio.Event()
        self._pulling: asyncio.Task[Sequence[Delivery]] | None = None
        self._stopped = False

    async def pull(self, limit: int) -> Sequence[Delivery]:
        due = self._take_due(limit)
        if due or self._stopped:
            return due or await self._rest(limit)
        if self._pulling is None and limit > len(self._due):
            self._pulling = asyncio.create_task(self._pull_engine(limit - len(self._due)))
        await self._something()
        if self._pulling is not None and self._pulling.done():
            arrived, self._pulling = self._pulling.result(), None
            return arrived
        return self._take_due(limit)

    async def _pull_engine(self, limit: int) -> Sequence[Delivery]:
        return await self._source.pull(limit)

    async def _something(self) -> None:
        """Until the engine has answered, or a retry is due, or another one has been added."""
        self._nacked.clear()
        waiting = asyncio.create_task(self._nacked.wait())
        try:
            await asyncio.wait(
                {waiting, self._pulling} if self._pulling is not None else {waiting},
                timeout=max(0.0, self._due[0][0] - self._loop.time()) if self._due else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiting.cancel()

    async def _rest(self, limit: int) -> Sequence[Delivery]:
        if self._pulling is not None:
            pulling, self._pulling = self._pulling, None
            if arrived := await pulling:
                return arrived
        return await self._source.pull(limit)

    def _take_due(self, limit: int) -> list[Delivery]:
        due: list[Delivery] = []
        now = self._loop.time()
        while self._due and len(due) < limit and self._due[0][0] <= now:
            due.append(heapq.heappop(self._due)[2])
        return due

    async def ack(self, delivery: Delivery) -> None:
        await self._source.ack(delivery)

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        if self._stopped:
            await self._source.nack(delivery, 0, reason)
            return
        again = Delivery(
            id=delivery.id,
            topic=delivery.topic,
            data=delivery.data,
            attributes=delivery.attributes,
            key=delivery.key,
            attempt=delivery.attempt + 1,
            published_ms=delivery.published_ms,
            handle=delivery.handle,
        )
        heapq.heappush(self._due, (self._loop.time() + delay_s, next(self._numbers), again))
        self._nacked.set()

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        return await self._source.extend(deliveries, deadline_s)

    async def lag(self) -> int | None:
        return await self._source.lag()

    async def stop(self) -> None:
        """What waits for its time is given back: somebody else may take it now. We must not, so the engine is asked for
        nothing more before it hears of that."""
        self._stopped = True
        await self._source.stop()
        self._nacked.set()
        due, self._due = self._due, []
        nacks = (self._source.nack(delivery, 0, "the subscriber was closed") for _, _, delivery in due)
        for failure in await asyncio.gather(*nacks, return_exceptions=True):
            if isinstance(failure, BusError):
                log.debug("a message is not given back, and comes again when its lease is over: %s", failure)
            elif isinstance(failure, BaseException):
                raise failure

    async def close(self) -> None:
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.gather(self._pulling, return_exceptions=True)
        await self._source.close()
