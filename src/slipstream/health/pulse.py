"""The heartbeat of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from slipstream.health.health import Health

BEAT_S = 0.5


@contextlib.asynccontextmanager
async def beating(health: Health) -> AsyncIterator[None]:
    """As long as the loop turns, until the end of the `async with`."""
    health.beat()
    task = asyncio.create_task(_beat(health))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        health.rest()


async def _beat(health: Health) -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        health.beat()
