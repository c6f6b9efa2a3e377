"""The producer, for programs without an event loop."""

from __future__ import annotations

import concurrent.futures
from types import TracebackType
from typing import Self, Unpack

from slipstream.api import Placed
from slipstream.client.portal import Portal, settled
from slipstream.client.produce import MessageFields, Payload
from slipstream.client.producer import Producer, ProducerLimits


class SyncProducer:
    """`Producer` where nothing is awaited: `send` blocks while there is no room."""

    def __init__(self, portal: Portal, producer: Producer) -> None:
        self._portal = portal
        self._producer = producer

    @property
    def topic(self) -> str:
        return self._producer.topic

    @property
    def limits(self) -> ProducerLimits:
        return self._producer.limits

    @property
    def buffered_messages(self) -> int:
        """Given to the producer, and neither stored nor failed yet."""
        return self._producer.buffered_messages

    @property
    def buffered_bytes(self) -> int:
        return self._producer.buffered_bytes

    def send(self, value: Payload, **fields: Unpack[MessageFields]) -> concurrent.futures.Future[Placed]:
        """Takes a message as soon as there is room for it, and returns a future of where it was stored.

        Example:
            producer.send("two books", key="user:1")  # it is on its way
            placed = producer.send("one lamp").result()  # it is stored
        """

        async def send() -> concurrent.futures.Future[Placed]:
            return settled(await self._producer.send(value, **fields))

        return self._portal.run(send())

    def flush(self) -> None:
        """Returns when everything sent before is stored; raises ProduceFailed if something was not."""
        self._portal.run(self._producer.flush())

    def close(self) -> None:
        """Stores what is left; raises as `flush` does."""
        self._portal.run(self._producer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.run(self._producer.__aexit__(kind, error, trace))
