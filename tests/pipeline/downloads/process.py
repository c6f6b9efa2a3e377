"""`slipstream jobs …` as a process of its own: Spark allows one driver in a process, and some are killed here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping

from tests.program import Program

READY = "stop with SIGTERM"


class JobsProcess:
    """A program for those who are in a loop."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def all_said(self) -> str:
        return self._program.said

    async def said(self, text: str) -> str:
        """Waits until it has."""
        await asyncio.to_thread(self._program.wait_for, re.escape(text))
        return self.all_said

    async def stop(self) -> int:
        return await asyncio.to_thread(self._program.stop)

    async def kill(self) -> None:
        await asyncio.to_thread(self._program.kill)


@contextlib.asynccontextmanager
async def jobs_process(*command: str, environment: Mapping[str, str]) -> AsyncIterator[JobsProcess]:
    """What is left of it at the end is killed."""
    found = JobsProcess(Program([sys.executable, "-m", "slipstream", "jobs", *command], {**os.environ, **environment}))
    try:
        yield found
    finally:
        await found.kill()
