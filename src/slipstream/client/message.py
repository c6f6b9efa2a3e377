"""A message that was fetched: its data, and the ways to say what became of it."""

from __future__ import annotations

import datetime as dt
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from slipstream.api import Envelope, FetchedMessage, Routing
from slipstream.outcome import decode_json, decode_text

if TYPE_CHECKING:
    from slipstream.client.async_client import AsyncClient
    from slipstream.client.portal import Portal

T = TypeVar("T")

NO_ENVELOPE = Envelope()


class Lease:
    """Whether the message is still ours."""

    __slots__ = ("lost",)

    def __init__(self) -> None:
        self.lost = False


class Message:
    """A message on lease to its owner. What a handler gets, and what `ack`, `nack`, `extend` and `once` take."""

    __slots__ = (
        "_fetched",
        "_lease",
        "attempts",
        "attributes",
        "envelope",
        "group",
        "key",
        "last_error",
        "offset",
        "owner",
        "partition",
        "redriven_from",
        "routing",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self, topic: str, group: str, owner: str, fetched: FetchedMessage[bytes], lease: Lease | None = None
    ) -> None:
        self._fetched = fetched
        self.topic = topic
        self.group = group
        self.owner = owner
        self.partition = fetched.partition
        self.offset = fetched.offset
        self.attempts = fetched.attempts
        """1 the first time."""
        self.key = fetched.key
        self.value = fetched.value
        self.attributes = fetched.attributes or {}
        self.envelope = fetched.envelope or NO_ENVELOPE
        self.routing: Routing | None = fetched.routing
        self.last_error = fetched.last_error
        """Why the attempts before this one failed."""
        self.timestamp_ms = fetched.timestamp_ms
        """When it was stored."""
        self.redriven_from = fetched.redriven_from
        self._lease = lease or Lease()

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    @property
    def text(self) -> str:
        """The value as UTF-8 text. Raises Undecodable, which rejects the message."""
        return decode_text(self.value)

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, kind: type[T]) -> T: ...

    def json(self, kind: Any = Any) -> Any:
        """The value as JSON; as a struct, dataclass or any other type where one is given. Raises Undecodable, which
        rejects the message.

        Example:
            order = message.json(Order)
        """
        return decode_json(self.value, kind)

    @property
    def timestamp(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.timestamp_ms / 1000, dt.UTC)

    @property
    def lease_lost(self) -> bool:
        """True once the worker has learnt that the message is another's now. A handler that runs in a thread cannot
        be stopped from outside: one that runs long may ask here, and give up."""
        return self._lease.lost

    def __repr__(self) -> str:
        """Its place, not its value, which may be large and may be secret."""
        return f"<{type(self).__name__} {self.topic}/{self.partition}/{self.offset} attempt {self.attempts}>"


class AsyncMessage(Message):
    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient, topic: str, group: str, owner: str, fetched: FetchedMessage[bytes]) -> None:
        super().__init__(topic, group, owner, fetched)
        self._client = client

    async def ack(self) -> None:
        """It is done."""
        await self._client.ack(self)

    async def nack(
        self, reason: str = "", *, delay_ms: int | None = None, retryable: bool = True, traceback: str = ""
    ) -> None:
        """Report that this attempt failed."""
        await self._client.nack(self, reason=reason, delay_ms=delay_ms, retryable=retryable, traceback=traceback)

    async def extend(self, lease_ms: int = 10_000) -> int:
        """More time, from now; returns until when, in ms since 1970."""
        return await self._client.extend(self, lease_ms=lease_ms)

    def once(self, key: str | None = None, *, lease_ms: int = 10_000) -> AbstractAsyncContextManager[bool]:
        """See `AsyncClient.once`."""
        return self._client.once(self, key, lease_ms=lease_ms)


class SyncMessage(Message):
    """The same where nothing is awaited."""

    __slots__ = ("_message", "_portal")

    def __init__(self, portal: Portal, message: AsyncMessage) -> None:
        super().__init__(message.topic, message.group, message.owner, message._fetched, message._lease)
        self._message = message
        self._portal = portal

    def ack(self) -> None:
        """It is done."""
        self._portal.run(self._message.ack())

    def nack(
        self, reason: str = "", *, delay_ms: int | None = None, retryable: bool = True, traceback: str = ""
    ) -> None:
        """Report that this attempt failed."""
        self._portal.run(self._message.nack(reason, delay_ms=delay_ms, retryable=retryable, traceback=traceback))

    def extend(self, lease_ms: int = 10_000) -> int:
        """More time, from now; returns until when, in ms since 1970."""
        return self._portal.run(self._message.extend(lease_ms))

    def once(self, key: str | None = None, *, lease_ms: int = 10_000) -> AbstractContextManager[bool]:
        """See `Client.once`."""
        return self._portal.entered(self._message.once(key, lease_ms=lease_ms))
