"""The producer, for programs without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from slipstream.api import Placed, ProduceMessage
from slipstream.client.errors import SlipstreamError
from slipstream.client.portal import Portal, settle_with
from slipstream.client.produce import MessageFields, Payload, compose
from slipstream.client.producer import Producer, ProducerLimits, size_of

HANDED_MESSAGES = 256
HANDED_BYTES = 1 << 20
"""What may be on its way into the loop. Only the producer there decides whether there is room."""


class _Handed(NamedTuple):
    message: ProduceMessage[bytes]
    size: int
    stored: concurrent.futures.Future[Placed]


class SyncProducer:
    """`Producer` where nothing is awaited: `send` blocks while there is no room. Threads may share one.

    Messages are handed to the loop some at a time, because a change of threads costs more than a message does.
    """

    def __init__(self, portal: Portal, producer: Producer) -> None:
        self._portal = portal
        self._producer = producer
        self._handed: deque[_Handed] = deque()
        self._handed_bytes = 0
        self._handover: asyncio.Task[None] | None = None
        self._is_handing_over = False
        self._changed = threading.Condition()
        portal.producers.add(self)

    @property
    def topic(self) -> str:
        return self._producer.topic

    @property
    def limits(self) -> ProducerLimits:
        return self._producer.limits

    @property
    def buffered_messages(self) -> int:
        """Given to the producer, and neither stored nor failed yet."""
        return self._producer.buffered_messages + len(self._handed)

    @property
    def buffered_bytes(self) -> int:
        return self._producer.buffered_bytes + self._handed_bytes

    def send(self, value: Payload, **fields: Unpack[MessageFields]) -> concurrent.futures.Future[Placed]:
        """Takes a message as soon as there is room for it, and returns a future of where it was stored.

        Example:
            producer.send("two books", key="user:1")  # it is on its way
            placed = producer.send("one lamp").result()  # it is stored
        """
        self._producer.check_open()
        message = compose(value, **fields)
        handed = _Handed(message, size_of(message), concurrent.futures.Future())
        with self._changed:
            while self._handed and not self._fits(handed.size):
                self._changed.wait()
            self._handed.append(handed)
            self._handed_bytes += handed.size
            if not self._is_handing_over:
                self._portal.loop.call_soon_threadsafe(self._begin_handing_over)
                self._is_handing_over = True
        return handed.stored

    def flush(self) -> None:
        """Returns when everything sent before is stored; raises ProduceFailed if something since the last time was
        not."""

        async def flush() -> None:
            await self._all_handed_over()
            await self._producer.flush()

        self._portal.run(flush())

    def close(self) -> None:
        """Stores what is left; raises as `flush` does."""

        async def close() -> None:
            await self._all_handed_over()
            await self._producer.close()

        self._portal.run(close())

    def hand_over(self) -> None:
        """Returns when the producer in the loop has everything."""
        self._portal.run(self._all_handed_over())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def leave() -> None:
            await self._all_handed_over()
            await self._producer.__aexit__(kind, error, trace)

        self._portal.run(leave())

    def _fits(self, size: int) -> bool:
        return len(self._handed) < HANDED_MESSAGES and self._handed_bytes + size <= HANDED_BYTES

    # In the loop

    def _begin_handing_over(self) -> None:
        self._handover = asyncio.create_task(self._hand_over_all())

    async def _hand_over_all(self) -> None:
        while batch := self._take():
            for handed in batch:
                try:
                    stored = await self._producer.take(handed.message, handed.size)
                except SlipstreamError as error:  # it was closed in between
                    if handed.stored.set_running_or_notify_cancel():
                        handed.stored.set_exception(error)
                else:
                    settle_with(stored, handed.stored)

    def _take(self) -> list[_Handed]:
        with self._changed:
            batch = list(self._handed)
            self._handed.clear()
            self._handed_bytes = 0
            self._is_handing_over = bool(batch)
            self._changed.notify_all()
        return batch

    async def _all_handed_over(self) -> None:
        while self._is_handing_over:
            await asyncio.sleep(0)  # the turn in which it begins
            if self._handover is not None:
                await asyncio.wait({self._handover})
