"""Questions to the tables, answered in another process, asked through a pipe; `tables_worker` is what runs there.

A process can be held to its memory, and ended. DuckDB's own limit counts neither the vectors that it computes with nor
the rows that are made of them: under a limit of 64 MiB a thousand texts of a megabyte took two gigabytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import msgspec

from slipstream.console.answers import Refused

log = logging.getLogger(__name__)

OUT_OF_MEMORY = 3
"""The exit code of a worker whose question needed too much: what is left of its memory may be in pieces."""


class Sql(msgspec.Struct, frozen=True, tag=True):
    sql: str
    limit: int


class Sample(msgspec.Struct, frozen=True, tag=True):
    table: str
    limit: int


class Report(msgspec.Struct, frozen=True, tag=True):
    run: str | None


class Listing(msgspec.Struct, frozen=True, tag=True):
    ends: Mapping[str, Mapping[int, int]]


Question: TypeAlias = Sql | Sample | Report | Listing


class Answered(msgspec.Struct, frozen=True):
    body: bytes = b""
    """As it goes to the browser."""
    code: str = ""
    """Of a refusal; empty where there is none."""
    message: str = ""


LENGTH = struct.Struct("<I")


def framed(message: msgspec.Struct) -> bytes:
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


READY = b"ready"
"""What a worker says first."""


class TablesProcess:
    """Answers one question at a time, from the first on that is asked of it.

    Example:
        process = TablesProcess(root, memory_bytes=1 << 30)
        await process.start()
        answer = await process.ask(Sql("select 1", limit=100))
    """

    def __init__(self, root: Path, memory_bytes: int) -> None:
        self._command = [sys.executable, "-m", "slipstream.console.tables_worker", str(root), str(memory_bytes)]
        self._memory_bytes = memory_bytes
        self._process: Process | None = None
        self._is_ready = False
        self._is_waited_for = False
        self._spilled: TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        """Until it can be asked: importing takes a second, which is nobody's question. Cancelled, it goes on starting.

        Raises Refused.
        """
        if self._process is not None and self._process.returncode is not None:
            await self._over(self._process)  # somebody killed it while nobody asked
        if self._process is None:
            # What it spills outlives it where it is killed. Arrow's own allocator takes a gigabyte, in case of need.
            self._spilled = TemporaryDirectory(prefix="slipstream-tables-", ignore_cleanup_errors=True)
            variables = {**os.environ, "TMPDIR": self._spilled.name, "ARROW_DEFAULT_MEMORY_POOL": "system"}
            self._process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, env=variables)
            self._is_ready = False
        if not self._is_ready:
            await self._receive(self._process, len(READY))
            self._is_ready = True

    async def ask(self, question: Question) -> bytes:
        """Raises Refused. Cancelled, it leaves a process behind that is busy: end it."""
        assert self._process is not None, "it was started"
        assert self._process.stdin is not None
        self._process.stdin.write(framed(question))
        (length,) = LENGTH.unpack(await self._receive(self._process, LENGTH.size))
        answered = msgspec.msgpack.decode(await self._receive(self._process, length), type=Answered)
        if answered.code:
            raise Refused(answered.code, answered.message)
        return answered.body

    async def end(self) -> None:
        """At once, whatever it does. It may be started again."""
        if self._process is None:
            return
        process = self._process
        if process.returncode is None:
            process.kill()
        if self._is_waited_for:
            await process.wait()  # who waits for its answer hears of its end, and clears up
        else:
            await self._over(process)

    async def _receive(self, process: Process, size: int) -> bytes:
        assert process.stdout is not None
        self._is_waited_for = True
        try:
            return await process.stdout.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise self._ended(await self._over(process)) from error
        finally:
            self._is_waited_for = False

    async def _over(self, process: Process) -> int:
        """Its exit code; nothing is left of it."""
        self._process = None
        await process.communicate()
        if self._spilled is not None:
            self._spilled.cleanup()
        assert process.returncode is not None
        return process.returncode

    def _ended(self, code: int) -> Refused:
        # Libraries that cannot do without the memory abort, and a machine that has none left kills.
        if code in {OUT_OF_MEMORY, -signal.SIGABRT, -signal.SIGKILL}:
            return Refused(
                "INVALID_ARGUMENT",
                f"this needs more memory than {self._memory_bytes >> 20} MiB, and was stopped: ask for less, such as "
                "one day of it (CONSOLE_SQL_MEMORY_BYTES)",
            )
        log.error("the process that reads tables ended with exit code %d; the next question starts another", code)
        return Refused("INTERNAL", "the process that reads tables ended; the console's log says more")
