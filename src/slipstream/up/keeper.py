"""The life of one part: started when what it needs is ready, again when it has crashed, and ended when asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from slipstream.endings import end_tasks
from slipstream.up.guard import Guard
from slipstream.up.health import Condition, conditions, until_ready
from slipstream.up.part import Part, PartStatus, State
from slipstream.up.process import Process
from slipstream.up.said import Said
from slipstream.up.settings import UpSettings

_STAMP = re.compile(r"^\d\d:\d\d:\d\d [A-Z]+ +")
SILENT = "it does not answer"
NOT_FOUND = 127
"""What a shell says of a command that is not there."""


class Listener(Protocol):
    """Whoever shows it to people. Raises nothing: no part ends for how it is shown."""

    def changed(self, status: PartStatus) -> None:
        """It is in another state, or there is another reason."""

    def said(self, name: str, line: str) -> None: ...

    def killed(self, name: str, after_ms: int) -> None:
        """It did not end in time."""


class Keeper:
    """Keeps one part."""

    def __init__(self, part: Part, said: Said, settings: UpSettings, guard: Guard, listener: Listener) -> None:
        self.part = part
        self.status = PartStatus(name=part.name, url=part.url)
        self.ready = asyncio.Event()
        self.was_tried = asyncio.Event()
        """It has been ready once, or it is known that it cannot be for now."""
        self.ended = asyncio.Event()
        """It will not be started any more."""
        self.exit_code = 0
        """Of its last end, where it was not asked for."""
        self.is_given_up = False
        """Because to start it again would not help."""
        self.was_killed = False
        """Because it did not end in time."""
        self._said = said
        self._settings = settings
        self._guard = guard
        self._listener = listener
        self._stopping = asyncio.Event()
        self._process: Process | None = None
        self._not_alive = ""
        """Why it was killed."""
        self._ready_at = 0.0
        self._has_been_ready = False
        self._ended_before = ""
        """How, for who looks at it after it has come back."""

    async def keep(self, others: Mapping[str, Keeper]) -> None:
        """Returns when it is stopped, or to start it again would not help. What it raises is an error of ours."""
        pause_ms = self._settings.restart_base_ms
        try:
            while await self._needs_are_ready(others):
                code = await self._live()
                if self._stopping.is_set():
                    break
                self.exit_code = code
                reason = self._reason(code)
                if code in self.part.hopeless and not self._has_been_ready:
                    self.is_given_up = True
                    self._enter("stopped", f"{reason}; {self.part.hopeless[code]}")
                    return
                if self._was_well():
                    pause_ms = self._settings.restart_base_ms
                self.was_tried.set()
                self._ended_before = f"ended before: {reason}"
                self._enter("crashed", f"{reason}; started again in {pause_ms / 1000:g} s")
                if not await self._unless_stopped(asyncio.sleep(pause_ms / 1000)):
                    break
                pause_ms = min(2 * pause_ms, self._settings.restart_longest_ms)
                self.status.restarts += 1
            self._enter("stopped", "")
        except Exception as error:
            self._enter("stopped", f"whoever keeps it has failed: {error!r}")
            raise
        finally:
            self.was_tried.set()
            self.ended.set()

    async def stop(self) -> None:
        """Asks it to end, and kills it where it does not in time."""
        self._stopping.set()
        if self._process is not None:
            # The leader alone: what it has started it ends itself, Spark's Java say, when it has no use for it.
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self._settings.stop_timeout_ms / 1000):
                    await self.ended.wait()
            except TimeoutError:
                self.was_killed = True
                self._listener.killed(self.part.name, self._settings.stop_timeout_ms)
                if self._process is not None:
                    self._process.kill()
        await self.ended.wait()

    def give_up(self) -> None:
        """It is not started again, whatever becomes of it."""
        self._stopping.set()

    @property
    def log(self) -> list[str]:
        return list(self._said.last)

    def close(self) -> None:
        self._said.close()

    async def _needs_are_ready(self, others: Mapping[str, Keeper]) -> bool:
        """False: it is stopped instead."""
        for name in self.part.needs:
            if not others[name].ready.is_set():
                self._enter("waiting", f"needs {name}")
                if not await self._unless_stopped(others[name].ready.wait()):
                    return False
        return not self._stopping.is_set()

    async def _live(self) -> int:
        """From its start to its end: returns the exit code, less than 0 for a signal."""
        try:
            process = Process(self.part.command, {**os.environ, **self.part.environment}, self._guard, self._hear)
        except OSError as error:
            self._hear(f"{self.part.command[0]} cannot be started: {error.strerror}".encode())
            return NOT_FOUND
        self._process, self._ready_at, self._not_alive = process, 0.0, ""
        self._enter("starting", self._ended_before)
        asking = asyncio.create_task(self._ask(process))
        try:
            return await process.ended()
        finally:
            self._process = None
            self.ready.clear()
            await end_tasks(asking)

    async def _ask(self, process: Process) -> None:
        """Until it is ready, and then whether it still is."""
        part = self.part
        if part.health:
            await until_ready(part.health, lambda reason: self._enter("starting", reason or self._ended_before))
        self._ready_at = time.monotonic()
        self._has_been_ready = True
        self._be_ready()
        if part.health:
            every_s = self._settings.health_every_ms / 1000
            async with contextlib.aclosing(conditions(part.health, part.alive, every_s)) as found:
                await self._watch(process, found)

    async def _watch(self, process: Process, found: AsyncIterator[Condition]) -> None:
        dead = unready = 0
        async for condition in found:
            if self._stopping.is_set():
                return
            dead = 0 if condition.is_alive else dead + 1
            unready = 0 if condition.is_ready else unready + 1
            if condition.is_ready:
                if not self.ready.is_set():
                    self._be_ready()
            elif (
                condition.reason or unready > 1
            ):  # an answer that does not come is no news yet: the machine may be busy
                self.ready.clear()
                self._enter("waiting", condition.reason or SILENT)
            if dead and dead == self._settings.dead_after:
                self._not_alive = f"killed, as it was not alive {dead} times in a row: {condition.reason or SILENT}"
                process.kill()  # and not asked: who does not turn does not hear either
                return

    def _be_ready(self) -> None:
        self.ready.set()
        self.was_tried.set()
        self._enter("running", self._ended_before)

    def _hear(self, line: bytes) -> None:
        self._listener.said(self.part.name, self._said.add(line))

    def _was_well(self) -> bool:
        return self._ready_at > 0 and (time.monotonic() - self._ready_at) * 1000 >= self._settings.well_after_ms

    def _reason(self, code: int) -> str:
        """How it ended, and the last it said: of one that was killed no reason, and so not shown as one."""
        if self._not_alive:
            return self._not_alive
        if code < 0:
            return f"killed by {_signal_name(-code)}"
        how = f"exit code {code}"
        last = next((words for line in reversed(self._said.last) if (words := _words(line))), "")
        return f"{how}: {last}" if last else how

    def _enter(self, state: State, reason: str) -> None:
        status = self.status
        if (status.state, status.reason) == (state, reason) and status.since_ms:
            return
        if status.state != state or not status.since_ms:
            status.since_ms = time.time_ns() // 1_000_000
        status.state, status.reason = state, reason
        status.pid = self._process.pid if self._process is not None else None
        self._listener.changed(status)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, object]) -> bool:
        """False where it was stopped before."""
        task, stopped = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            return not self._stopping.is_set()
        finally:
            task.cancel()
            stopped.cancel()


def _words(line: str) -> str:
    """A line of a log without what every line has."""
    try:
        told = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return _STAMP.sub("", line).strip()
    return str(told.get("msg", line)) if isinstance(told, dict) else line


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
