"""Delayed retries and attempts for engines that know neither: they are kept here, while the engine keeps the lease.

Pub/Sub redelivers a nacked message at once and counts attempts only beside a dead-letter policy; core NATS redelivers
nothing. A plain log (offsets only) would stand on this, too, with a source that keeps its leases itself.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Sequence

from slipstream.bus.drivers.driver import Delivery, Places, Source
from slipstream.bus.errors import BusError

log = logging.getLogger(__name__)


LOST_MAX = 10_000
"""Attempts that are remembered of messages that were lost to us, should they come again."""


class LocalRetries:
    """A source whose nacked and postponed messages wait in this process until `pull` returns them.

    A nacked message comes again one attempt further. While `waiting_max` of them wait, the engine is asked for nothing
    more; for postponed messages the limit is `postponed_max`. (What is on lease is bounded by the source: what waits
    here is, too.) When the process dies the engine hands everything out again, and the count of attempts begins anew.
    """

    def __init__(
        self,
        source: Source,
        waiting_max: int,
        postponed_max: int,
        *,
        has_retries: bool = False,
        renew_s: float = 0.0,
        places: Places | None = None,
    ) -> None:
        """`has_retries`: the engine delays and counts what is nacked, so that only postponed messages wait here.
        `renew_s`: how often, in seconds, the lease of a postponed message is extended; 0 if the source does it."""
        self._source = source
        self._waiting_max = waiting_max
        self._postponed_max = postponed_max
        self._has_retries = has_retries
        self._places = places
        self._postponed: set[str] = set()
        """Ids of those that wait and were not attempted."""
        self._renewal = asyncio.create_task(self._renew(renew_s)) if renew_s else None
        self._due: list[tuple[float, int, Delivery]] = []
        self._waiting: dict[str, Delivery] = {}
        """The same, by id."""
        self._attempts: dict[str, int] = {}
        """Of what was handed out and not acked: if it comes again, its lease was lost, and that was an attempt."""
        self._arrived: deque[Delivery] = deque()
        self._numbers = itertools.count()
        self._loop = asyncio.get_running_loop()
        self._nacked = asyncio.Event()
        self._pulling: asyncio.Task[Sequence[Delivery]] | None = None
        self._stopped = False

    @property
    def trouble(self) -> str:
        return self._source.trouble

    async def pull(self, limit: int) -> Sequence[Delivery]:
        if not (ready := self._take(limit)):
            if self._stopped:
                await self._pull_rest(limit)
            else:
                if self._pulling is None and self._has_room():
                    self._pulling = asyncio.create_task(self._pull_engine(limit))
                await self._something()
                if self._pulling is not None and self._pulling.done():
                    pulling, self._pulling = self._pulling, None
                    self._arrive(pulling.result())
            ready = self._take(limit)
        return ready

    def _has_room(self) -> bool:
        postponed = len(self._postponed)
        return len(self._due) - postponed < self._waiting_max and postponed < self._postponed_max

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

    async def _pull_rest(self, limit: int) -> None:
        if self._pulling is not None:
            pulling, self._pulling = self._pulling, None
            self._arrive(await pulling)
        if not self._arrived:
            self._arrive(await self._source.pull(limit))

    def _arrive(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if (waiting := self._waiting.get(delivery.id)) is not None:
                waiting.handle = delivery.handle  # its lease was lost while it waited, and is ours again
                continue
            if (attempt := self._attempts.get(delivery.id)) is not None:
                delivery.attempt = max(delivery.attempt, attempt + 1)
            self._arrived.append(delivery)

    def _take(self, limit: int) -> list[Delivery]:
        """Retries that are due, and then what has arrived, which may be more than there is room for by now."""
        taken: list[Delivery] = []
        now = self._loop.time()
        while self._due and len(taken) < limit and self._due[0][0] <= now:
            delivery = heapq.heappop(self._due)[2]
            del self._waiting[delivery.id]
            if delivery.id in self._postponed:
                self._postponed.remove(delivery.id)
                if self._places is not None:
                    self._places.take_place(delivery)
            taken.append(delivery)
        while self._arrived and len(taken) < limit:
            taken.append(self._arrived.popleft())
        for delivery in taken:
            self._attempts.pop(delivery.id, None)
            self._attempts[delivery.id] = delivery.attempt
        while len(self._attempts) > LOST_MAX:
            del self._attempts[next(iter(self._attempts))]
        return taken

    async def ack(self, delivery: Delivery) -> None:
        self._attempts.pop(delivery.id, None)
        await self._source.ack(delivery)

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        if self._has_retries:
            await self._source.nack(delivery, delay_s, reason)
        elif self._stopped:
            await self._source.nack(delivery, 0, reason)
        else:
            self._wait(delivery, delay_s, delivery.attempt + 1)

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        if self._stopped:
            await self._source.postpone(delivery, 0, reason)
            return
        self._postponed.add(delivery.id)
        if self._places is not None:
            self._places.free_place(delivery)
        self._wait(delivery, delay_s, delivery.attempt)

    def _wait(self, delivery: Delivery, delay_s: float, attempt: int) -> None:
        again = Delivery(
            id=delivery.id,
            topic=delivery.topic,
            data=delivery.data,
            attributes=delivery.attributes,
            key=delivery.key,
            attempt=attempt,
            published_ms=delivery.published_ms,
            handle=delivery.handle,
            partition=delivery.partition,
            offset=delivery.offset,
        )
        heapq.heappush(self._due, (self._loop.time() + delay_s, next(self._numbers), again))
        self._waiting[again.id] = again
        self._nacked.set()

    async def _renew(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            postponed = [self._waiting[each] for each in self._postponed]
            try:
                await self._source.extend(postponed, 3 * every_s)
            except BusError as error:
                log.warning("the leases of %d postponed messages are not extended: %s", len(postponed), error)

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
        self._waiting.clear()
        self._postponed.clear()
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
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        await self._source.close()
