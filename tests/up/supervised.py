"""A supervisor at work in a test, and what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from slipstream.up import Part, PartsFile, PartStatus, Supervisor, board, load_settings
from slipstream.up.lock import is_alive, locked

PATIENCE_S = 60.0


class Told:
    """Whatever a supervisor tells, to be waited for."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str, str]] = []
        self.lines: list[tuple[str, str]] = []
        self.killed_parts: list[str] = []
        self.hidden_because: list[str] = []
        self.has_started = asyncio.Event()
        self.is_stopping = asyncio.Event()
        self._news = asyncio.Condition()

    def changed(self, status: PartStatus) -> None:
        self.states.append((status.name, status.state, status.reason))
        self._notify()

    def said(self, name: str, line: str) -> None:
        self.lines.append((name, line))

    def killed(self, name: str, after_ms: int) -> None:
        self.killed_parts.append(name)

    def started(self, parts: Sequence[PartStatus]) -> None:
        self.has_started.set()

    def stopping(self, parts: Sequence[PartStatus]) -> None:
        self.is_stopping.set()

    def hidden(self, path: Path, reason: str) -> None:
        self.hidden_because.append(reason)

    def killing(self) -> None:
        self.killed_parts.append("all")

    async def until(self, name: str, state: str, times: int = 1) -> str:
        """Returns the reason."""

        def reasons() -> list[str]:
            return [reason for each, found, reason in self.states if (each, found) == (name, state)]

        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: len(reasons()) >= times)
        return reasons()[times - 1]

    def _notify(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        self._telling = asyncio.ensure_future(tell())


class Supervised:
    def __init__(self, folder: Path, parts: Sequence[Part], lock: int, **settings: int) -> None:
        self.told = Told()
        self.folder = folder
        self.now_s = 0.0
        """As far as signals are concerned."""
        self.supervisor = Supervisor(
            parts, folder, load_settings(settings), self.told, lock=lock, clock=lambda: self.now_s
        )
        self._running: asyncio.Task[int] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self.supervisor.run())

    async def ended(self) -> int:
        """The exit code."""
        assert self._running is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self._running

    async def stop(self) -> int:
        self.supervisor.stop()
        return await self.ended()

    def file(self) -> PartsFile:
        found = board.read(self.folder / "parts.json")
        assert found is not None
        return found

    def part(self, name: str) -> PartStatus:
        return next(part for part in self.file().parts if part.name == name)

    async def kill(self) -> None:
        if self._running is not None and not self._running.done():
            self.supervisor.kill()
            await self._running


@contextlib.asynccontextmanager
async def supervised(folder: Path, *parts: Part, **settings: int) -> AsyncIterator[Supervised]:
    """At work; whatever becomes of the test, nothing is left."""
    with locked(folder, patience_s=0, wait=lambda: None) as lock:
        found = Supervised(folder, parts, lock, **settings)
        await found.start()
        try:
            yield found
        finally:
            await found.kill()


def until_gone(pids: list[int]) -> None:
    """Of a supervisor that was killed: within the grace that its watcher gives, and more, as the machine is shared."""
    until = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.05)
