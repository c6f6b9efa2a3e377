"""`slipstream jobs …` as a process of its own: Spark allows one driver in a process, and some are killed here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping

from tests.pipeline.cluster import Cluster

READY = "stop with SIGTERM"


class JobsProcess:
    """In a group of its own, with the Java that it starts."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: list[str] = []
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def said(self, text: str) -> str:
        """Waits until it has, on stderr."""
        async with self._news:
            await self._news.wait_for(lambda: text in self.all_said or self._lines[-1:] == [""])
        assert text in self.all_said, self.all_said
        return self.all_said

    @property
    def all_said(self) -> str:
        return "".join(self._lines)

    async def stop(self) -> int:
        """As an operator does; returns the exit code."""
        self._process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        code = await self._process.wait()
        await self._reading
        return code

    async def kill(self) -> None:
        """Without a word, and its Java with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            await self._heard(line.decode())
        await self._heard("")

    async def _heard(self, line: str) -> None:
        async with self._news:
            self._lines.append(line)
            self._news.notify_all()


@contextlib.asynccontextmanager
async def jobs_process(*command: str, environment: Mapping[str, str]) -> AsyncIterator[JobsProcess]:
    """What is left of it at the end is killed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipstream", "jobs", *command),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    found = JobsProcess(process)
    try:
        yield found
    finally:
        await found.kill()


def on(cluster: Cluster) -> list[str]:
    """The options of a command that runs there."""
    conf = [word for name, value in cluster.conf.items() for word in ("--conf", f"{name}={value}")]
    return ["--master", cluster.master, *conf]
