"""The client, for programs with an event loop."""

from __future__ import annotations

import os
import re
import secrets
import socket
import weakref
from types import TracebackType
from typing import Self

from slipstream.client.commits import Commits
from slipstream.client.consume import Consume
from slipstream.client.dead_letters import DeadLetters
from slipstream.client.errors import ProduceFailed
from slipstream.client.events import Events
from slipstream.client.groups import Groups
from slipstream.client.log import Log
from slipstream.client.once import Once
from slipstream.client.operations import Operations
from slipstream.client.produce import Produce
from slipstream.client.producer import Producer, ProducerLimits
from slipstream.client.retry import Retries
from slipstream.client.topics import Topics
from slipstream.client.transport import Transport

DEFAULT_URL = "http://127.0.0.1:8080"


class AsyncClient(Topics, Produce, Consume, Log, Commits, Groups, Operations, DeadLetters, Once, Events):
    """Speaks to one server. It connects when it is first used, keeps its connections, and belongs to one event loop.

    Without a `url` it is the one in the environment variable SLIPSTREAM_URL, or else http://127.0.0.1:8080.

    An answer may take `timeout_ms`. What fails and may be repeated is repeated, after pauses that begin at
    `backoff_ms`, double up to `backoff_ms_max`, and are at least as long as the server asks; `retry_for_ms` after the
    first attempt the last failure is raised.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            await client.create_topic("orders")
            await client.produce("orders", "two books", key="user:1")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        owner: str | None = None,
        timeout_ms: int = 10_000,
        retry_for_ms: int = 30_000,
        backoff_ms: int = 50,
        backoff_ms_max: int = 5_000,
        max_connections: int = 100,
    ) -> None:
        self.url = url or os.environ.get("SLIPSTREAM_URL") or DEFAULT_URL
        self.owner = owner or _unique_owner()
        self.retries = Retries(for_ms=retry_for_ms, backoff_ms=backoff_ms, backoff_ms_max=backoff_ms_max)
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._transport = Transport(self.url, timeout_ms, self.retries, max_connections)

    def producer(
        self,
        topic: str,
        *,
        linger_ms: int = 5,
        max_batch_messages: int = 1_000,
        max_batch_bytes: int = 512 << 10,
        max_buffered_messages: int = 10_000,
        max_buffered_bytes: int = 16 << 20,
        retry_for_ms: int = 120_000,
    ) -> Producer:
        """For many messages to one topic: gathers them into batches and waits when it is too fast.

        Example:
            async with client.producer("orders") as producer:
                for order in orders:
                    await producer.send(order, key=order.customer)
        """
        limits = ProducerLimits(
            linger_ms=linger_ms,
            max_batch_messages=max_batch_messages,
            max_batch_bytes=max_batch_bytes,
            max_buffered_messages=max_buffered_messages,
            max_buffered_bytes=max_buffered_bytes,
            retry_for_ms=retry_for_ms,
        )
        producer = Producer(self, topic, limits)
        self._producers.add(producer)
        return producer

    async def close(self) -> None:
        """Ends the connections. Producers that were not closed are, so that nothing they hold is lost; raises as they
        do."""
        failures = []
        try:
            for producer in list(self._producers):
                try:
                    await producer.close()
                except ProduceFailed as failed:
                    failures.append(failed)
        finally:
            await self._transport.close()
        if failures:
            for other in failures[1:]:
                failures[0].add_note(str(other))
            raise failures[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _unique_owner() -> str:
    """Says where to look for it, and is no other's: not even of the process that had this number before."""
    host = re.sub(r"[^A-Za-z0-9._:-]", "-", socket.gethostname())[:100]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
