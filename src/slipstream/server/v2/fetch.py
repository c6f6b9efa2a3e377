"""A pull: answered with the first messages there are, or with none when its time is up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slipstream.api import FetchRequest, FetchResponse
from slipstream.broker import Consumer, Delivery, NotFound, RetryPolicy
from slipstream.engine import Engine
from slipstream.server.v2.describe import to_retry
from slipstream.server.v2.messages import fetched_message

if TYPE_CHECKING:
    from slipstream.server.v2.hot import Reply


class Fetch:
    """The sink of a consumer that takes so many messages and then goes."""

    __slots__ = ("_consumer", "_engine", "_reply", "_timer", "_topic")

    def __init__(self, engine: Engine, reply: Reply, request: FetchRequest) -> None:
        self._engine = engine
        self._reply: Reply | None = reply
        """None once it is answered, or nobody waits for the answer."""
        self._topic = request.topic
        self._timer: asyncio.TimerHandle | None = None
        self._consumer: Consumer | None = engine.attach(
            request.topic,
            request.group,
            request.owner,
            request.lease_ms,
            self,
            request.max_messages,
            request.max_bytes,
            retry=_retry(engine, request),
        )
        # What is there now arrives at the end of this turn of the loop, and so before a timer of no time at all.
        self._timer = asyncio.get_running_loop().call_later(request.wait_ms / 1000, self.answer_now)

    def deliver(self, deliveries: list[Delivery]) -> None:
        reply = self._leave()
        if reply is not None:
            reply.send(FetchResponse([fetched_message(delivery, reply.codec) for delivery in deliveries]))

    def ended(self) -> None:
        self._consumer = None
        reply = self._leave()
        if reply is not None:
            reply.fail(NotFound(f"the group or topic was deleted meanwhile: {self._topic}"))

    def answer_now(self) -> None:
        if self._consumer is not None and self._consumer.delivered:
            return  # messages are on their way: they arrive at the end of this turn of the loop
        reply = self._leave()
        if reply is not None:
            reply.send(FetchResponse([]))

    def abandon(self) -> None:
        self._leave()

    def _leave(self) -> Reply | None:
        """Takes no more; returns who is to be answered, once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            self._engine.detach(consumer)
        reply, self._reply = self._reply, None
        return reply


def _retry(engine: Engine, request: FetchRequest) -> RetryPolicy | None:
    """Return the policy of the handler that fetches; what it leaves out is the group's or the topic's."""
    if request.retry is None:
        return None
    topic = engine.broker.topic(request.topic)
    group = topic.groups.get(request.group)
    return to_retry(request.retry, (group and group.retry) or topic.config.retry)
