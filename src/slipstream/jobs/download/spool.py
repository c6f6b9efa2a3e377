"""Where the bytes of a download are kept until it is complete: in memory as long as they are few, then in a file."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from slipstream.jobs.download.checksum import Checksum, new_hash
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.settings import JobSettings

if TYPE_CHECKING:
    from hashlib import _Hash

INLINE_BYTES = 64 * 1024
"""As much is hashed where we are: that took 50 to 65 µs, and handing it to a thread and back 125 and more."""
BATCH_BYTES = 256 * 1024
"""Pieces wait until they are so many bytes together, and go to a thread at once."""


class Spool:
    """Takes the bytes of one task, over all its attempts.

    Example:
        with Spool(settings, parse_checksum("sha256:…")) as spool:
            await spool.write(b"…")
            await spool.finish()
            spool.verify()
            store(spool.content())
    """

    # Ten thousand small files are ten thousand of these.
    __slots__ = (
        "_checksum",
        "_file",
        "_folder",
        "_hinted",
        "_is_closed",
        "_kept",
        "_memory_bytes",
        "_pending",
        "_pending_bytes",
        "_sha256",
        "is_resumed",
        "size",
        "total",
        "validator",
    )

    def __init__(self, settings: JobSettings, checksum: Checksum | None = None) -> None:
        self._folder = settings.spool or None
        self._memory_bytes = settings.spool_memory_bytes
        self._checksum = checksum
        self.size = 0
        self.validator = ""
        """What a server must confirm (If-Range) before a later attempt goes on after these bytes; "" if none can."""
        self.total: int | None = None
        """How many it will be, as far as the server has said."""
        self.is_resumed = False
        """Its bytes are of more than one answer."""
        self._kept: list[bytes] = []
        """Hashed, and in memory."""
        self._pending: list[bytes] = []
        """Neither hashed nor in the file."""
        self._pending_bytes = 0
        self._file: IO[bytes] | None = None
        self._is_closed = False
        self._sha256: _Hash | None = None
        self._hinted: _Hash | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # What comes in

    async def write(self, piece: bytes) -> None:
        self._pending.append(piece)
        self._pending_bytes += len(piece)
        self.size += len(piece)
        if self._pending_bytes >= BATCH_BYTES or (self._file is None and self.size > self._memory_bytes):
            await self._settle()

    async def finish(self) -> None:
        """Before anything is read from it: nothing is pending any more."""
        await self._settle()

    async def start_anew(self) -> None:
        """Forgets everything: the next byte is the first. The file stays; it will likely be needed again."""
        self.size = 0
        self.validator = ""
        self.total = None
        self.is_resumed = False
        self._kept.clear()
        self._pending = []
        self._pending_bytes = 0
        self._sha256 = self._hinted = None
        if self._file is not None:
            await self._in_thread(self._truncate)

    def close(self) -> None:
        """The file has no name, and is gone with this."""
        self._is_closed = True
        self._kept.clear()
        self._pending = []
        if self._file is not None:
            self._file.close()
            self._file = None

    # What is known about it

    @property
    def is_in_memory(self) -> bool:
        return self._file is None

    @property
    def is_new(self) -> bool:
        """Nothing was ever written to it, or it was started anew."""
        return not self.size and not self.validator

    @property
    def sha256(self) -> str:
        assert not self._pending, "finish it first"
        return (self._sha256 or new_hash("sha256")).hexdigest()

    def verify(self) -> None:
        """Raises TaskFailed if it is not what the manifest promised."""
        assert not self._pending, "finish it first"
        expected = self._checksum
        if expected is None:
            return
        hashed = (self._sha256 if expected.algorithm == "sha256" else self._hinted) or expected.new_hash()
        if not expected.matches(hashed.digest()):
            raise TaskFailed(
                Code.DOWNLOAD_CHECKSUM,
                f"{self.size} bytes have the checksum {expected.algorithm}:{hashed.hexdigest()}, not {expected}",
                # The whole is as the server has it. Two halves may be of two versions, though it denied that.
                is_retryable=self.is_resumed,
            )

    def content(self) -> bytes | IO[bytes]:
        """All of it: bytes, or the file, at its start. Who reads the file leaves it open; it is the spool's."""
        assert not self._pending, "finish it first"
        if self._file is None:
            return self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
        self._file.seek(0)
        return self._file

    # How it is kept

    async def _settle(self) -> None:
        if not self._pending:
            return
        pieces, size = self._pending, self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if size <= INLINE_BYTES and self._file is None and self.size <= self._memory_bytes:
            self._hash(pieces)
            self._kept.extend(pieces)
        else:
            await self._in_thread(lambda: self._take(pieces))

    def _hash(self, pieces: list[bytes]) -> None:
        if self._sha256 is None:
            self._sha256 = new_hash("sha256")
            if self._checksum is not None and self._checksum.algorithm != "sha256":  # which is computed anyway
                self._hinted = self._checksum.new_hash()
        for piece in pieces:
            self._sha256.update(piece)
            if self._hinted is not None:
                self._hinted.update(piece)

    def _take(self, pieces: list[bytes]) -> None:
        self._hash(pieces)
        if self._file is None and self.size <= self._memory_bytes:
            self._kept.extend(pieces)
            return
        if self._file is None:
            self._file = self._open()
            pieces = [*self._kept, *pieces]
            self._kept = []
        self._file.writelines(pieces)

    def _open(self) -> IO[bytes]:
        if self._folder is not None:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._folder, prefix="slipstream-", buffering=BATCH_BYTES)

    def _truncate(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()

    async def _in_thread(self, function: Callable[[], None]) -> None:
        """A thread cannot be cancelled: who is cancelled here waits for it, so that nothing is written to a file that
        is closed, nor left half written for the next attempt."""
        future = asyncio.get_running_loop().run_in_executor(None, self._guarded, function)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
            except TaskFailed:
                break
        if cancelled is not None:
            future.exception()  # looked at, so that nobody is told it was not
            raise cancelled
        future.result()

    def _guarded(self, function: Callable[[], None]) -> None:
        assert not self._is_closed, "the spool is closed"
        try:
            function()
        except OSError as error:
            self.validator = ""  # what is there now is anybody's guess
            raise TaskFailed(
                Code.SYSTEM_SPOOL,
                f"the download cannot be kept in {self._folder or tempfile.gettempdir()} (JOBS_SPOOL): {error}",
                is_retryable=True,
            ) from error
