"""A message in the hands of a handler."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.failure import Failure
from slipstream.bus.options import seconds
from slipstream.outcome import Duration, decode_json, decode_text

if TYPE_CHECKING:
    from slipstream.bus.run import Run

T = TypeVar("T")


class Message:
    """What a handler gets. When the handler returns, the message is acked, and when it raises, nacked; who wants to
    decide earlier calls `ack` or `nack`, and the first word counts.

    `ack`, `nack` and `extend` take effect when they are called, from the handler's thread or the loop's. In a coroutine
    they can be awaited, to know that the engine has been told.
    """

    __slots__ = (
        "_delivery",
        "_run",
        "attempt",
        "attributes",
        "data",
        "group",
        "id",
        "key",
        "offset",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, group: str, delivery: Delivery, run: Run) -> None:
        self.topic = topic
        """Without the prefix: as it was subscribed to."""
        self.group = group
        self.id = delivery.id
        """The engine's name for it, the same at every attempt."""
        self.data = delivery.data
        self.attributes = dict(delivery.attributes)  # the handler's: a dead letter is the message as it was
        self.key = delivery.key
        self.attempt = delivery.attempt
        """1 the first time."""
        self.partition = delivery.partition
        self.offset = delivery.offset
        """Its place in the log, for `read` and `follow`; NO_OFFSET (-1) where the engine tells none."""
        self._delivery = delivery
        self._run = run

    def ack(self) -> Awaitable[None]:
        """It is done."""
        return self._run.settle_early(None)

    def nack(self, delay: Duration | None = None, reason: str = "nack") -> Awaitable[None]:
        """This attempt failed: the message comes again after `delay`, or as the backoff says, or is a dead letter if
        this was the last attempt."""
        return self._run.settle_early(Failure(reason, None if delay is None else seconds(delay)))

    def postpone(self, delay: Duration, reason: str = "postponed") -> Awaitable[None]:
        """Give the message back unattempted: it comes again after `delay` with the same attempt number, and never
        becomes a dead letter for it."""
        return self._run.settle_early(Failure(reason, seconds(delay), is_counted=False))

    def extend(self, duration: Duration | None = None) -> Awaitable[None]:
        """More time, from now; by default another `ack_deadline`."""
        return self._run.extend(None if duration is None else seconds(duration))

    @property
    def lease_lost(self) -> bool:
        """True once it is known that the message is another's now. A function in a thread cannot be stopped from
        outside: one that runs long may ask here, and give up."""
        return self._run.lost

    @property
    def correlation_id(self) -> str:
        return self.attributes.get("correlationId", "")

    @property
    def published_at(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._delivery.published_ms / 1000, dt.UTC)

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises Undecodable, which rejects the message."""
        return decode_text(self.data)

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, kind: type[T]) -> T: ...

    def json(self, kind: Any = Any) -> Any:
        """The data, which must be JSON; as a struct, dataclass or any other type where one is given.

        Example:
            order = message.json(Order)
        """
        return decode_json(self.data, kind)

    def __repr__(self) -> str:
        """Not its data, which may be large and may be secret."""
        return f"<Message {self.topic} {self.id} attempt {self.attempt}>"
