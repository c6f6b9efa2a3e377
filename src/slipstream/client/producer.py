"""Producing much: messages are gathered into batches, in order, and the producer waits when it is too fast."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, Unpack

import msgspec

from slipstream.api import Placed, ProduceMessage
from slipstream.client.errors import InvalidArgument, NotFound, ProduceFailed, SlipstreamError
from slipstream.client.produce import MessageFields, Payload, compose

if TYPE_CHECKING:
    from slipstream.client.async_client import AsyncClient

_encode = msgspec.msgpack.Encoder().encode


class ProducerLimits(msgspec.Struct, frozen=True, kw_only=True):
    linger_ms: int = 5
    """How long the first message of a batch waits for others, where none is under way."""
    max_batch_messages: int = 1_000
    max_batch_bytes: int = 512 << 10
    """Half of what a server takes in a request unless it is told otherwise; the rest is for names and numbers."""
    max_buffered_messages: int = 10_000
    max_buffered_bytes: int = 16 << 20
    """`send` waits while more than this has been given to the producer and not been stored."""
    retry_for_ms: int = 120_000
    """Well below the ten minutes for which the server remembers the keys of batches."""


class _Waiting(NamedTuple):
    message: ProduceMessage[bytes]
    size: int
    since: float
    stored: asyncio.Future[Placed]


class Producer:
    """Sends messages to one topic, in the order of `send`. Made by `client.producer(topic)`.

    One batch is under way at a time, so that a repeat of it cannot be overtaken by the next; what comes meanwhile is
    the next. (That was enough for 90,000 durable messages of 200 bytes a second, server and client on the same two
    cores.) Each batch carries a key of its own: however often it has to be sent, it is stored once.

    `send` waits until there is room and returns a future of the place. Nobody has to look at it: `flush`, `close` and
    the end of the `async with` raise ProduceFailed if a message was not stored. The server takes a batch as a whole or
    not at all. If it refuses one, the batch is taken apart until the bad messages stand alone, and only they fail.
    """

    def __init__(self, client: AsyncClient, topic: str, limits: ProducerLimits) -> None:
        self.topic = topic
        self.limits = limits
        self.buffered_messages = 0
        """Given to the producer, and neither stored nor failed yet."""
        self.buffered_bytes = 0
        self._client = client
        self._retries = msgspec.structs.replace(client.retries, for_ms=limits.retry_for_ms)
        self._name = uuid.uuid4().hex
        self._batches = 0
        self._queue: deque[_Waiting] = deque()
        self._queue_bytes = 0
        self._under_way: list[_Waiting] = []
        self._turns: deque[tuple[_Waiting, asyncio.Future[None]]] = deque()
        """Who waits for room, in the order they came."""
        self._accepted = self._settled = 0
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        """(how many have to be settled for it, who waits for it)"""
        self._failed = 0
        self._first_failure: BaseException | None = None
        self._closing = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def send(self, value: Payload, **fields: Unpack[MessageFields]) -> asyncio.Future[Placed]:
        """Takes a message as soon as there is room for it, and returns a future of where it was stored.

        Example:
            await producer.send("two books", key="user:1")  # it is on its way
            placed = await (await producer.send("one lamp"))  # it is stored
        """
        message = compose(value, **fields)
        return await self.take(message, size_of(message))

    async def take(self, message: ProduceMessage[bytes], size: int) -> asyncio.Future[Placed]:
        """`send`, for a message of known size."""
        self.check_open()
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        waiting = _Waiting(message, size, loop.time(), loop.create_future())
        if not self._turns and self._fits(waiting.size):
            self._accept(waiting)
        else:
            turn: asyncio.Future[None] = loop.create_future()
            self._turns.append((waiting, turn))
            await turn
        return waiting.stored

    def check_open(self) -> None:
        if self._closing:
            raise SlipstreamError("this producer is closed: make a new one")

    async def flush(self) -> None:
        """Returns when everything sent before is stored; raises ProduceFailed if something since the last time was not.

        Example:
            await producer.flush()
        """
        if self._settled < self._accepted:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushes.append((self._accepted, done))
            self._wake.set()
            await done
        self._raise_failures()

    async def close(self) -> None:
        """Stores what is left; raises as `flush` does."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            try:
                await asyncio.wait({self._task})
            except asyncio.CancelledError:
                self._task.cancel()
                raise
        self._raise_failures()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ProduceFailed as failed:
            if error is None:
                raise
            error.add_note(str(failed))  # it is on its way, and must arrive

    # Room

    def _fits(self, size: int) -> bool:
        """A message larger than the whole buffer gets it for itself."""
        return not self.buffered_messages or (
            self.buffered_messages < self.limits.max_buffered_messages
            and self.buffered_bytes + size <= self.limits.max_buffered_bytes
        )

    def _accept(self, waiting: _Waiting) -> None:
        self.buffered_messages += 1
        self.buffered_bytes += waiting.size
        self._accepted += 1
        self._queue.append(waiting)
        self._queue_bytes += waiting.size
        # The sender is not woken for each message: only where there was none, and where it need not wait for more.
        if len(self._queue) == 1 or self._is_full():
            self._wake.set()

    def _release(self, waiting: _Waiting) -> None:
        self.buffered_messages -= 1
        self.buffered_bytes -= waiting.size
        self._settled += 1
        while self._flushes and self._flushes[0][0] <= self._settled:
            _, done = self._flushes.popleft()
            if not done.done():
                done.set_result(None)
        while self._turns and (self._turns[0][1].done() or self._fits(self._turns[0][0].size)):
            # Accepted here and not by who waits, so that nobody who comes later can be before them.
            following, turn = self._turns.popleft()
            if not turn.done():  # who waited may have been cancelled
                self._accept(following)
                turn.set_result(None)

    # Sending

    async def _run(self) -> None:
        try:
            while self._queue or not self._closing:
                self._wake.clear()
                if not self._queue:
                    await self._wake.wait()
                    continue
                await self._linger()
                self._under_way = self._take()
                await self._store(self._under_way)
        finally:
            self._abandon()

    def _is_full(self) -> bool:
        return len(self._queue) >= self.limits.max_batch_messages or self._queue_bytes >= self.limits.max_batch_bytes

    async def _linger(self) -> None:
        """Waits for more, unless the batch is full or somebody waits for it."""
        loop = asyncio.get_running_loop()
        until = self._queue[0].since + self.limits.linger_ms / 1000
        while not (self._is_full() or self._flushes or self._closing) and loop.time() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
                self._wake.clear()

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and len(batch) < self.limits.max_batch_messages:
            size += self._queue[0].size
            if batch and size > self.limits.max_batch_bytes:
                break
            batch.append(self._queue.popleft())
            self._queue_bytes -= batch[-1].size
        return batch

    async def _store(self, batch: list[_Waiting]) -> None:
        self._batches += 1
        key = f"{self._name}:{self._batches}"
        try:
            places = await self._request([waiting.message for waiting in batch], key, batch[-1].since)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told to who sent these, and the rest goes on
            if len(batch) > 1 and _is_of_one(error, batch):
                middle = len(batch) // 2
                await self._store(batch[:middle])
                await self._store(batch[middle:])
            else:
                self._fail(batch, error)
        else:
            for waiting, placed in zip(batch, places, strict=True):
                if not waiting.stored.done():
                    waiting.stored.set_result(placed)
                self._release(waiting)

    async def _request(self, messages: list[ProduceMessage[bytes]], key: str, since: float) -> list[Placed]:
        """`since`: when the newest of them was sent, by the clock of the loop."""
        return await self._client._produce(self.topic, messages, key, self._retries)

    def _fail(self, batch: Iterable[_Waiting], error: BaseException) -> None:
        self._first_failure = self._first_failure or error
        for waiting in batch:
            self._failed += 1
            if not waiting.stored.done():
                waiting.stored.set_exception(error)
                waiting.stored.exception()  # `flush` and `close` tell; asyncio need not complain about it as well
            self._release(waiting)

    def _abandon(self) -> None:
        """The sender ends. If it was cancelled, nobody may wait for ever for what it leaves behind."""
        while left := [waiting for waiting in (*self._under_way, *self._queue) if not waiting.stored.done()]:
            self._under_way = []
            self._queue.clear()
            self._fail(left, SlipstreamError("the producer was stopped; whether this was stored is not known"))
        # Messages whose futures were cancelled are not among those, and were counted on.
        for done in [*(done for _, done in self._flushes), *(turn for _, turn in self._turns)]:
            if not done.done():
                done.set_exception(SlipstreamError("the producer was stopped; not everything is known to be stored"))

    def _raise_failures(self) -> None:
        if not self._failed:
            return
        count, first = self._failed, self._first_failure
        self._failed, self._first_failure = 0, None
        raise ProduceFailed(f"{count} messages to {self.topic} were not stored: {first}", count=count) from first


def size_of(message: ProduceMessage[bytes]) -> int:
    """As it travels. What cannot travel is found here, and refused to who sends it."""
    try:
        return len(_encode(message))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidArgument(f"the message cannot be sent: {error}") from error


def _is_of_one(error: BaseException, batch: list[_Waiting]) -> bool:
    """Whether the batch was refused for some of its messages, so that the others have a chance without them."""
    if isinstance(error, NotFound):
        return any(waiting.message.envelope and waiting.message.envelope.target_topic for waiting in batch)
    return isinstance(error, InvalidArgument)
