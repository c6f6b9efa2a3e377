"""A process of ours, in a group of its own: what it says, line by line, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from slipstream.endings import end_tasks
from slipstream.up.guard import Guard
from slipstream.up.lines import Lines

CHUNK = 1 << 16
LAST_WORDS_S = 1.0
"""How long what it has said is read after its end, though others hold the pipe open."""


class Process:
    """Announced to the guard from its first moment on, and known to it until its end, which ends its group.

    Not asyncio's own: before Python 3.12 that ends when nobody holds the pipe any more, and a child of a child does.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], guard: Guard, hear: Callable[[bytes], None]
    ) -> None:
        """Started at once, in the loop that runs. Raises OSError."""
        guard.prepare()
        self._guard = guard
        self._hear = hear
        self._popen = _Announced(command, environment, guard)
        assert self._popen.stdout is not None
        self.pid = self._popen.pid
        guard.began(self.pid)
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(self._popen.stdout))
        # In a thread of its own, as many as there are processes; one that cannot be ended keeps nobody.
        threading.Thread(target=self._wait, args=(asyncio.get_running_loop(),), daemon=True).start()

    @property
    def is_running(self) -> bool:
        return not self._code.done()

    def send_signal(self, number: int) -> None:
        """To itself, and not to what it has started; nothing happens where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(number)

    def kill(self) -> None:
        """With all that it has started."""
        self._guard.kill(self.pid)

    async def ended(self) -> int:
        """Returns its exit code, less than 0 for a signal, when all that it has said is heard and nothing of its group
        is left. Raises what `hear` has raised: what nobody reads any more would stand still for ever."""
        either: list[asyncio.Future[Any]] = [self._code, self._reading]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._reading.done():
            self._reading.result()
        code = await asyncio.shield(self._code)
        self._guard.ended(self.pid)
        await asyncio.wait([self._reading], timeout=LAST_WORDS_S)
        await end_tasks(self._reading)
        return code

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            loop.call_soon_threadsafe(self._code.set_result, code)

    async def _read(self, pipe: IO[bytes]) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        lines = Lines()
        try:
            while chunk := await reader.read(CHUNK):
                for line in lines.add(chunk):
                    self._hear(line)
            for line in lines.end():
                self._hear(line)
        finally:
            transport.close()


class _Announced(subprocess.Popen[bytes]):
    """Announced before it is known whether there is such a program: where there is none, that is taken back."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], guard: Guard) -> None:
        try:
            super().__init__(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,  # so that Ctrl-C reaches us alone, and a kill all of it
                preexec_fn=guard.announce,  # it writes a few bytes to a pipe, and takes no lock
            )
        except OSError:
            if self.pid is not None:
                guard.forget(self.pid)
            raise
