"""Listening to subjects as they pass: JetStream stores what core NATS carries, so that anybody may overhear it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from slipstream.bus.drivers.driver import NO_OFFSET, Stored
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.headers import from_headers

NOT_TOPICS = ("$", "_INBOX.")
HANDED_OUT = "$JS.ACK."


async def tap(connection: Connection, prefix: str, listening: asyncio.Event | None) -> AsyncGenerator[Stored, None]:
    """A reader that does not keep up misses messages, and slows down nobody."""
    arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def hear(msg: Msg) -> None:
        await arrived.put(msg)

    whole_tokens, dot, _ = prefix.rpartition(".")
    subscription = await connection.nats.subscribe(f"{whole_tokens}{dot}>", cb=hear)
    try:
        await connection.nats.flush()
        if listening is not None:
            listening.set()
        while True:
            msg = await arrived.get()
            if not msg.subject.startswith(prefix) or msg.subject.startswith(NOT_TOPICS):
                continue
            # What JetStream hands to a consumer goes to an inbox, but under the subject that it was published to.
            if not msg.reply.startswith(HANDED_OUT):
                yield overheard(msg)
    finally:
        if not connection.nats.is_closed:
            with contextlib.suppress(NatsError):  # the connection is gone, and the subscription with it
                await subscription.unsubscribe()


def overheard(msg: Msg) -> Stored:
    attributes, key = from_headers(msg.headers)
    now_ms = time.time_ns() // 1_000_000
    return Stored(
        topic=msg.subject,
        partition=0,
        offset=NO_OFFSET,
        data=msg.data,
        attributes=attributes,
        key=key,
        published_ms=now_ms,
    )
