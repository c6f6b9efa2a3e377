"""Publishing: messages are gathered into batches, and a batch is tried until it is stored or its time is over.

Google's client gathers as well, but cannot be used where keys are: with message ordering it tries for ever, whatever
time it is given, it starts a thread for each key there is a message of, and a key with a failed message stays closed
until somebody opens it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.api_core.exceptions import NotFound

from slipstream.bus.drivers.driver import Outgoing
from slipstream.bus.drivers.pubsub.calls import PublishRequest, PubsubMessage, publishing
from slipstream.bus.drivers.pubsub.errors import GOOGLE_ERRORS, as_google, bus_error, is_passing
from slipstream.bus.errors import BusClosed, BusError, InvalidArgument, PublishFailed
from slipstream.bus.settings import BusSettings

REQUEST_BYTES_MAX = 10_000_000
REQUEST_OVERHEAD_BYTES = 1_024
"""For the topic."""
MESSAGE_OVERHEAD_BYTES = 8
"""For what protobuf puts before each message."""
ATTRIBUTES_MAX = 100
ATTRIBUTE_NAME_BYTES_MAX = 256
ATTRIBUTE_VALUE_BYTES_MAX = 1_024
KEY_BYTES_MAX = 1_024
"""Pub/Sub's own limits. It would refuse the whole batch for one message, so they are checked before."""

CALLS_MAX = 64
"""Under way at a time: a request has messages of one key only, and there may be any number of keys."""
CALL_TIMEOUT_S = 15.0
"""For one try, after which a connection that has fallen silent is not waited for any longer."""
PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 2.0


class _Waiting(NamedTuple):
    message: Any
    size: int
    until: float
    stored: asyncio.Future[str]


class _Lane:
    """The messages of a topic that have the same key, or none."""

    __slots__ = ("bytes", "is_busy", "is_due", "key", "queue", "timer", "topic")

    def __init__(self, topic: str, key: str) -> None:
        self.topic = topic
        self.key = key
        self.queue: deque[_Waiting] = deque()
        self.bytes = 0
        self.timer: asyncio.TimerHandle | None = None
        self.is_due = False
        """It stands in the line of those who may send."""
        self.is_busy = False
        """A batch of its key is under way, which the next must not overtake."""


class Publisher:
    """`path` is the whole name of a topic; `make` makes a topic, or raises the BusError that says why it does not."""

    def __init__(
        self,
        settings: BusSettings,
        channel: Any,
        path: Callable[[str], str],
        make: Callable[[str], Awaitable[None]],
    ) -> None:
        self._path = path
        self._make = make
        self._publish = publishing(channel)
        self._loop = asyncio.get_running_loop()
        self._timeout_s = settings.publish_timeout_ms / 1000
        self._latency_s = settings.pubsub_batch_latency_ms / 1000
        self._batch_messages = settings.pubsub_batch_messages
        self._batch_bytes = min(settings.pubsub_batch_bytes, REQUEST_BYTES_MAX - REQUEST_OVERHEAD_BYTES)
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._due: deque[_Lane] = deque()
        self._sending: set[asyncio.Task[None]] = set()

    def post(self, message: Outgoing) -> asyncio.Future[str]:
        # The message id of the bus has no equivalent: Pub/Sub gives each message one of its own, and stores it again
        # when it is published again.
        try:
            _check(message)
            pubsub_message = PubsubMessage(data=message.data, attributes=message.attributes, ordering_key=message.key)
        except ValueError as error:  # half a character, say
            raise InvalidArgument(f"a message to {message.topic} cannot be sent: {error}") from error
        size = pubsub_message.ByteSize() + MESSAGE_OVERHEAD_BYTES
        if size > REQUEST_BYTES_MAX - REQUEST_OVERHEAD_BYTES:
            raise InvalidArgument(f"a message to {message.topic} has {size} bytes, and Pub/Sub takes 10 MB")
        stored: asyncio.Future[str] = self._loop.create_future()
        lane = self._lanes.get((message.topic, message.key))
        if lane is None:
            lane = self._lanes[message.topic, message.key] = _Lane(message.topic, message.key)
        lane.queue.append(_Waiting(pubsub_message, size, self._loop.time() + self._timeout_s, stored))
        lane.bytes += size
        if len(lane.queue) >= self._batch_messages or lane.bytes >= self._batch_bytes:
            self._is_due(lane)
        elif lane.timer is None:
            lane.timer = self._loop.call_later(self._latency_s, self._is_due, lane)
        return stored

    async def close(self) -> None:
        """Whoever closes has waited for what was posted; what is left has nobody who wants it."""
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
            _fail(lane.queue, BusClosed("the bus was closed; whether this was stored is not known"))
        self._due.clear()
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    # Whose turn it is

    def _is_due(self, lane: _Lane) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if not lane.is_due and not lane.is_busy and lane.queue:
            lane.is_due = True
            self._due.append(lane)
            self._send_due()

    def _send_due(self) -> None:
        while self._due and len(self._sending) < CALLS_MAX:
            lane = self._due.popleft()
            lane.is_due = False
            lane.is_busy = bool(lane.key)
            task = self._loop.create_task(self._send(lane, self._take(lane)))
            self._sending.add(task)
            if lane.queue:
                self._is_due(lane)

    def _take(self, lane: _Lane) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while lane.queue and len(batch) < self._batch_messages:
            size += lane.queue[0].size
            if batch and size > self._batch_bytes:
                break
            batch.append(lane.queue.popleft())
            lane.bytes -= batch[-1].size
        return batch

    async def _send(self, lane: _Lane, batch: list[_Waiting]) -> None:
        try:
            await self._store(lane.topic, batch)
        except BusError as error:
            _fail(batch, error)
        except asyncio.CancelledError:
            _fail(batch, BusClosed("the bus was closed; whether this was stored is not known"))
            raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._sending.discard(task)
            lane.is_busy = False
            if lane.queue:
                if lane.timer is None:  # what came meanwhile has waited long enough
                    self._is_due(lane)
            elif self._lanes.get((lane.topic, lane.key)) is lane and lane.key:
                del self._lanes[lane.topic, lane.key]  # there may be any number of keys
            self._send_due()

    # Storing

    async def _store(self, topic: str, batch: list[_Waiting]) -> None:
        request = PublishRequest(topic=self._path(topic), messages=[waiting.message for waiting in batch])
        until = batch[0].until
        pause_s = PAUSE_S_FIRST
        was_made = False
        while True:
            left_s = until - self._loop.time()
            try:
                answer = await self._publish.begin(request, max(min(left_s, CALL_TIMEOUT_S), 0.001))
            except GOOGLE_ERRORS as error:
                if isinstance(as_google(error), NotFound) and not was_made:
                    await self._make(topic)  # it is new, or was deleted meanwhile
                    was_made = True
                elif not is_passing(error) and not isinstance(as_google(error), NotFound):
                    raise _failure(error, topic, len(batch)) from error
                # A topic that was just made is not known at once to all of Google's servers.
                elif until - self._loop.time() <= pause_s:
                    raise PublishFailed(
                        f"{len(batch)} messages to {topic} were not stored in {self._timeout_s:g} s: "
                        f"{bus_error(error, 'the last try failed')}",
                        count=len(batch),
                    ) from error
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, PAUSE_S_MAX)
            else:
                for waiting, message_id in zip(batch, answer.message_ids, strict=True):
                    if not waiting.stored.done():
                        waiting.stored.set_result(message_id)
                return


def _failure(error: BaseException, topic: str, count: int) -> BusError:
    return bus_error(error, f"{count} messages to {topic} were not stored")


def _fail(batch: list[_Waiting] | deque[_Waiting], error: BusError) -> None:
    for waiting in batch:
        if not waiting.stored.done():
            waiting.stored.set_exception(error)


def _check(message: Outgoing) -> None:
    if len(message.key.encode()) > KEY_BYTES_MAX:
        raise InvalidArgument(f"a key has more than the {KEY_BYTES_MAX} bytes that Pub/Sub takes: {message.key!r:.80}")
    if len(message.attributes) > ATTRIBUTES_MAX:
        raise InvalidArgument(f"a message has {len(message.attributes)} attributes, and Pub/Sub takes {ATTRIBUTES_MAX}")
    for name, value in message.attributes.items():
        # Text of a quarter of the length cannot be too long, whatever characters it has.
        if len(name) * 4 > ATTRIBUTE_NAME_BYTES_MAX and len(name.encode()) > ATTRIBUTE_NAME_BYTES_MAX:
            raise InvalidArgument(f"the name of attribute {name!r:.80} has more bytes than the 256 that Pub/Sub takes")
        if len(value) * 4 > ATTRIBUTE_VALUE_BYTES_MAX and len(value.encode()) > ATTRIBUTE_VALUE_BYTES_MAX:
            raise InvalidArgument(
                f"attribute {name} has more bytes than the 1024 that Pub/Sub takes: put it in the data"
            )
        if name.startswith("goog"):
            raise InvalidArgument(f"attribute {name}: Pub/Sub takes no names that start with goog")
