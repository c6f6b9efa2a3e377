"""What the engine is told about messages that were handed out: that they are done, or how long they are kept.

Google's client says it behind our back, once, and nobody learns whether it was heard. Here whoever settles a message
knows, because it is said again until it is heard or the lease is over anyway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from slipstream.bus.drivers.pubsub.calls import (
    AcknowledgeRequest,
    ModifyAckDeadlineRequest,
    acknowledging,
    modifying_deadlines,
)
from slipstream.bus.drivers.pubsub.errors import GOOGLE_ERRORS, bus_error, is_passing
from slipstream.bus.errors import BusError, BusUnavailable

IDS_MAX = 1_000
"""In one call: its size is limited, and an id has about 200 bytes."""
CALL_TIMEOUT_S = 15.0
NACK_PATIENCE_S = 5.0
"""Nothing is lost by one that is not heard: the message comes again when its lease is over."""
PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 1.0


class Settlements:
    """Of one subscription. `patience_s` is how long an ack is repeated: as long as a lease, after which the message is
    handed out again and settled anew."""

    def __init__(self, channel: Any, subscription: str, patience_s: float) -> None:
        self._acknowledge = acknowledging(channel)
        self._modify = modifying_deadlines(channel)
        self._subscription = subscription
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._acks = _Line(self._send_acks)
        self._nacks = _Line(lambda ids: self._send_deadline(ids, 0, NACK_PATIENCE_S))

    async def ack(self, ack_id: str) -> None:
        await self._acks.say(ack_id)

    async def nack(self, ack_id: str) -> None:
        await self._nacks.say(ack_id)

    async def extend(self, ack_ids: list[str], lease_s: int) -> None:
        """Tried for a third of that time, after which it is tried again by whoever keeps the lease."""
        for start in range(0, len(ack_ids), IDS_MAX):
            await self._send_deadline(ack_ids[start : start + IDS_MAX], lease_s, lease_s / 3)

    async def close(self, timeout_s: float) -> None:
        """Waits for what is being said."""
        await self._acks.close(timeout_s)
        await self._nacks.close(timeout_s)

    async def _send_acks(self, ids: list[str]) -> None:
        request = AcknowledgeRequest(subscription=self._subscription, ack_ids=ids)
        await self._until_heard(self._acknowledge.begin, request, self._patience_s, f"{len(ids)} acks")

    async def _send_deadline(self, ids: list[str], lease_s: int, patience_s: float) -> None:
        request = ModifyAckDeadlineRequest(subscription=self._subscription, ack_ids=ids, ack_deadline_seconds=lease_s)
        await self._until_heard(self._modify.begin, request, patience_s, f"the deadlines of {len(ids)} messages")

    async def _until_heard(
        self, begin: Callable[[Any, float], asyncio.Future[Any]], request: Any, patience_s: float, what: str
    ) -> None:
        until = self._loop.time() + patience_s
        pause_s = PAUSE_S_FIRST
        while True:
            try:
                await begin(request, min(max(until - self._loop.time(), 0.001), CALL_TIMEOUT_S))
            except GOOGLE_ERRORS as error:
                if not is_passing(error) or self._loop.time() + pause_s >= until:
                    raise bus_error(error, f"{what} were not heard by {self._subscription}") from error
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
            else:
                return


class _Line:
    """One call is under way at a time; what is said meanwhile goes with the next."""

    def __init__(self, send: Callable[[list[str]], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self._batches: deque[tuple[list[str], asyncio.Future[None]]] = deque()
        self._speaking: asyncio.Task[None] | None = None

    async def say(self, ack_id: str) -> None:
        """Returns when it was heard. Who is cancelled meanwhile has said it nevertheless."""
        if not self._batches or len(self._batches[-1][0]) >= IDS_MAX:
            self._batches.append(([], asyncio.get_running_loop().create_future()))
        ids, heard = self._batches[-1]
        ids.append(ack_id)
        if self._speaking is None:
            self._speaking = asyncio.create_task(self._speak())
        await asyncio.shield(heard)

    async def _speak(self) -> None:
        try:
            while self._batches:
                ids, heard = self._batches.popleft()
                try:
                    await self._send(ids)
                except BusError as error:
                    _fail(heard, error)
                except asyncio.CancelledError:
                    _fail(heard, BusUnavailable("the subscriber was closed before the engine had heard this"))
                    raise
                else:
                    heard.set_result(None)
        finally:
            self._speaking = None

    async def close(self, timeout_s: float) -> None:
        if self._speaking is not None:
            speaking = self._speaking
            await asyncio.wait({speaking}, timeout=timeout_s)
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
        for _, heard in self._batches:
            _fail(heard, BusUnavailable("the subscriber was closed before the engine had heard this"))
        self._batches.clear()


def _fail(heard: asyncio.Future[None], error: BusError) -> None:
    heard.set_exception(error)
    heard.exception()  # whoever said it may have been cancelled
