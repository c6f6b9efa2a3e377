"""The contract an application writes against. `Bus` is both; a test may put anything in their place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, Unpack

from slipstream.bus.attributes import Attributes
from slipstream.bus.message import Message
from slipstream.bus.options import OptionFields, SubscribeOptions

Data: TypeAlias = bytes | str
"""str is sent as UTF-8."""

Handler: TypeAlias = Callable[[Message], Awaitable[object]] | Callable[[Message], object]
"""Gets the message. `async`, or an ordinary function, which then runs in a thread."""


class MessagePublisher(Protocol):
    async def publish(
        self,
        topic: str,
        data: Data,
        attributes: Attributes | None = None,
        key: str | None = None,
        *,
        message_id: str | None = None,
    ) -> str: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...


class SubscriptionHandle(Protocol):
    """A subscription that runs, until it is closed."""

    @property
    def in_flight(self) -> int: ...

    async def close(self) -> None: ...


class MessageSubscriber(Protocol):
    async def subscribe(
        self,
        topic: str,
        group: str,
        handler: Handler,
        options: SubscribeOptions | None = None,
        **fields: Unpack[OptionFields],
    ) -> SubscriptionHandle: ...

    async def close(self) -> None: ...
