"""Follows a partition of a stream for as long as the process runs, whatever fails on the way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from slipstream.bus import Bus, BusError, InvalidArgument, Stored, Unsupported
from slipstream.jobs.errors import JobsError

log = logging.getLogger(__name__)

PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 10.0


class Follower:
    """The messages of a partition from a position on, in batches, without an end.

    `position` returns the offset to go on from; the consumer keeps it. A batch that `take` fails on comes again.
    `gather_s` is the pause between two batches, in seconds: the messages that come meanwhile are one batch.
    """

    def __init__(
        self,
        bus: Bus,
        topic: str,
        partition: int,
        position: Callable[[], int],
        take: Callable[[Sequence[Stored]], Awaitable[None]],
        gather_s: float = 0.0,
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._partition = partition
        self._position = position
        self._take = take
        self._gather_s = gather_s
        self.failure: Exception | None = None
        """The reason why the partition cannot be followed, as long as it cannot."""

    async def run(self) -> None:
        """Follow until cancelled. Raise Unsupported where the engine keeps no log; report any other failure once, and
        try again: without a follower nothing is counted, and nothing is cancelled."""
        pause_s = PAUSE_S_MIN
        while True:
            try:
                if isinstance(self.failure, BusError) and await self._bus.topic(self._topic):
                    self.failure = None  # the bus is back; other failures are over when a batch was taken
                start = await self._start()
                async with contextlib.aclosing(self._bus.follow(self._topic, self._partition, start)) as batches:
                    async for batch in batches:
                        await self._take(batch)
                        self.failure, pause_s = None, PAUSE_S_MIN
                        await asyncio.sleep(self._gather_s)
            except Unsupported:
                raise
            except Exception as error:
                if self.failure is None:
                    is_bug = not isinstance(error, BusError | JobsError)
                    log.warning(
                        "%s/%d cannot be followed, trying on: %s", self._topic, self._partition, error, exc_info=is_bug
                    )
                self.failure = error
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _start(self) -> int:
        """Return the offset to read from: the one noted, or 0 where the stream ends before it.

        Such a stream was deleted and created again, and nothing of it was read.
        """
        position = self._position()
        if not position:
            return 0
        try:
            async with contextlib.aclosing(self._bus.read(self._topic, self._partition, position - 1)) as messages:
                async for _ in messages:
                    return position
        except InvalidArgument:
            return position
        log.warning(
            "%s/%d ends before offset %d, which was read: it is read from its beginning",
            self._topic,
            self._partition,
            position,
        )
        return 0
