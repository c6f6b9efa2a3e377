"""Runs `consumer_app` as a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bus.sites.site import Site

ROOT = Path(__file__).parent.parent.parent


class ConsumerProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        """The next it says; "" at its end."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        assert self._process.stdout is not None
        await self._process.stdout.read()
        await self._process.wait()


@contextlib.asynccontextmanager
async def consuming(
    site: Site, topic: str, group: str, *, ack_deadline: float, max_deliver: int = 5
) -> AsyncIterator[ConsumerProcess]:
    """Listens when this is entered."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bus.consumer_app",
        topic,
        group,
        str(ack_deadline),
        str(max_deliver),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **site.environment()},
    )
    consumer = ConsumerProcess(process)
    try:
        assert await consumer.line() == "listening"
        yield consumer
    finally:
        await consumer.kill()
