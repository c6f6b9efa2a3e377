"""Runs `consumer_app` as a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bus.sites.site import Site
from tests.forked import Forked

ROOT = Path(__file__).parent.parent.parent


class ConsumerProcess:
    def __init__(self, process: Forked) -> None:
        self._process = process

    async def line(self) -> str:
        """The next it says; "" at its end."""
        assert self._process.stdout is not None
        return (await asyncio.to_thread(self._process.stdout.readline)).strip()

    async def kill(self) -> None:
        if self._process.returncode is not None:
            return
        self._process.kill()
        await asyncio.to_thread(self._process.communicate)


@contextlib.asynccontextmanager
async def consuming(
    site: Site, topic: str, group: str, *, ack_deadline: float, max_deliver: int = 5
) -> AsyncIterator[ConsumerProcess]:
    """Listens when this is entered."""
    process = Forked(
        [sys.executable, "-m", "tests.bus.consumer_app", topic, group, str(ack_deadline), str(max_deliver)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **site.environment()},
    )
    consumer = ConsumerProcess(process)
    try:
        assert await consumer.line() == "listening"
        yield consumer
    finally:
        await consumer.kill()
