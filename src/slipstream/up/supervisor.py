"""All parts together: started in the order of what they need, stopped in the reverse."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, Protocol

from slipstream.endings import end_tasks
from slipstream.up import board
from slipstream.up.guard import Guard
from slipstream.up.keeper import Keeper, Listener
from slipstream.up.part import Part, PartStatus
from slipstream.up.said import Said
from slipstream.up.settings import UpSettings

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 0.5
"""A signal so soon after the first is the same one: a group of processes is told at once, and `make` passes on what it
hears."""
REFRESH_S = 1.0
"""What parts say is in `parts.json` after so long, though no state has changed."""
INTERRUPTED = 130

_Told = ParamSpec("_Told")


class Show(Listener, Protocol):
    """Tells people what happens."""

    def started(self, parts: Sequence[PartStatus]) -> None:
        """Everything runs that can, for the first time; what has crashed is not waited for."""

    def stopping(self, parts: Sequence[PartStatus]) -> None: ...

    def killing(self) -> None:
        """Somebody does not want to wait."""

    def hidden(self, path: Path, reason: str) -> None:
        """Nobody can see any more in `path` how the parts are."""


class Supervisor:
    """Runs parts until a signal says stop.

    Example:
        code = await Supervisor(parts, data / "up", load_settings({}), show).run()
    """

    def __init__(
        self,
        parts: Sequence[Part],
        folder: Path,
        settings: UpSettings,
        show: Show,
        *,
        lock: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder` is for the logs and `parts.json`; `lock` is a file that stays open as long as any part may run."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "parts.json"
        self._show = show
        self._guard = Guard(lock)
        self._keepers = {
            part.name: Keeper(
                part,
                Said(folder / f"{part.name}.log", max_bytes=settings.log_bytes, files=settings.log_files),
                settings,
                self._guard,
                self,
            )
            for part in parts
        }
        self._stop = asyncio.Event()
        self._news = asyncio.Event()
        self._clock = clock
        self._was_asked = False
        self._asked_at: float | None = None
        """By a first SIGINT or SIGTERM."""
        self._is_killing = False
        self._is_hidden = False
        self._has_failed_to_tell = False

    async def run(self) -> int:
        """Returns the exit code: 0 if all parts ended as asked, that of a vital part which stays away, 1 if one
        had to be killed, 130 if somebody did not want to wait. Raises what a keeper has raised, after everything has
        ended."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._hear_signal, number)
        self._write()
        keeping = [asyncio.create_task(keeper.keep(self._keepers)) for keeper in self._keepers.values()]
        for task in keeping:
            task.add_done_callback(self._stop_if_failed)
        beside = [
            asyncio.create_task(self._refresh()),
            asyncio.create_task(self._tell_when_started()),
            *(asyncio.create_task(self._mind(keeper)) for keeper in self._keepers.values() if keeper.part.is_vital),
        ]
        try:
            await self._stop.wait()
            self._tell(self._show.stopping, self._statuses)
            await self._drain()
            await asyncio.gather(*keeping)
            return self._exit_code()
        finally:
            self._guard.kill_all()  # nobody is left where something of ours went wrong
            await end_tasks(*beside, *keeping)
            self._guard.close()
            self._write()
            for keeper in self._keepers.values():
                keeper.close()
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Drains."""
        self._was_asked = True
        self._stop.set()

    def kill(self) -> None:
        """Waits for nobody any more."""
        self.stop()
        if not self._is_killing:
            self._is_killing = True
            self._tell(self._show.killing)
            for keeper in self._keepers.values():
                keeper.give_up()
            self._guard.kill_all()

    def _hear_signal(self, number: int) -> None:
        """The second time somebody does not want to wait. A terminal that is closed sends SIGHUP twice in a moment, and
        nobody is there who could want anything."""
        self.stop()
        if number == signal.SIGHUP:
            return
        if self._asked_at is None:
            self._asked_at = self._clock()
        elif self._clock() - self._asked_at >= AGAIN_S:
            self.kill()

    # What keepers tell

    def changed(self, status: PartStatus) -> None:
        self._write()
        self._tell(self._show.changed, status)

    def said(self, name: str, line: str) -> None:
        self._news.set()
        self._tell(self._show.said, name, line)

    def killed(self, name: str, after_ms: int) -> None:
        self._tell(self._show.killed, name, after_ms)

    def _tell(self, tell: Callable[_Told, None], *what: _Told.args, **more: _Told.kwargs) -> None:
        """The parts go on, whatever is wrong with how they are shown; that is said once."""
        try:
            tell(*what, **more)
        except Exception:
            if not self._has_failed_to_tell:
                log.exception("something cannot be shown, and more may be missing: what parts say is in their logs")
            self._has_failed_to_tell = True

    def _stop_if_failed(self, keeping: asyncio.Task[None]) -> None:
        if not keeping.cancelled() and keeping.exception() is not None:
            self._stop.set()

    async def _drain(self) -> None:
        """Who needs another ends before it, the others side by side."""
        stopping: dict[str, asyncio.Task[None]] = {}

        async def stop(keeper: Keeper) -> None:
            users = [each for each in self._keepers.values() if keeper.part.name in each.part.needs]
            await asyncio.gather(*(asyncio.shield(stopping[user.part.name]) for user in users))
            await keeper.stop()

        for name, keeper in self._keepers.items():
            stopping[name] = asyncio.create_task(stop(keeper))
        await asyncio.gather(*stopping.values())

    async def _mind(self, keeper: Keeper) -> None:
        await keeper.ended.wait()
        self._stop.set()

    async def _tell_when_started(self) -> None:
        for keeper in self._keepers.values():
            await keeper.was_tried.wait()
        if not self._stop.is_set():
            self._tell(self._show.started, self._statuses)

    async def _refresh(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self._write()
            await asyncio.sleep(REFRESH_S)

    def _exit_code(self) -> int:
        vital = [keeper for keeper in self._keepers.values() if keeper.part.is_vital and keeper.is_given_up]
        if self._is_killing:
            return INTERRUPTED
        if not self._was_asked and vital:
            return vital[0].exit_code or 1
        return 1 if any(keeper.was_killed for keeper in self._keepers.values()) else 0

    @property
    def _statuses(self) -> list[PartStatus]:
        return [keeper.status for keeper in self._keepers.values()]

    def _write(self) -> None:
        for keeper in self._keepers.values():
            keeper.status.log = keeper.log
        try:
            board.write(self._path, self._statuses)
        except OSError as error:
            # A full disk, say. The parts need their supervisor now more than ever, whoever cannot look at them.
            if not self._is_hidden:
                self._tell(self._show.hidden, self._path, error.strerror or str(error))
            self._is_hidden = True
        else:
            self._is_hidden = False
