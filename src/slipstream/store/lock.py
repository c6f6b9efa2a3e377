"""One process at a time on a data directory."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from pathlib import Path

from slipstream.store.damage import DirectoryInUse


def is_foreign(directory: Path) -> bool:
    """It holds files, but none that the store ever made. A new file system comes with a `lost+found`, and `slipstream
    up` and the console have files of their own there before the broker starts."""
    if (directory / "up" / "parts.json").exists():
        return False
    names = {path.name for path in directory.iterdir()} - {"lost+found", "console.json"}
    ours = ("LOCK", "journal-", "checkpoint-")
    return bool(names) and not any(name.startswith(ours) for name in names)


READER_PAUSE_S = 0.05
"""How long a second attempt waits for a process that only looks whether the lock is held (`holder_address`)."""


class DirectoryLock:
    """The lock of a data directory, held until `release` or the end of the process, however it ends."""

    def __init__(self, directory: Path, *, announce: bool = True) -> None:
        """`announce` writes who holds it, and a token that only this process and who reads the file know; without, the
        directory stays as it is, and must have been used before."""
        self.token = secrets.token_hex(16)
        path = directory / "LOCK"
        flags = os.O_RDWR | os.O_CREAT if announce else os.O_RDONLY
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        if not (self._lock() or self._lock(READER_PAUSE_S)):
            holder = os.read(self._fd, 32).decode(errors="replace").partition("\n")[0]
            os.close(self._fd)
            raise DirectoryInUse(
                f"{directory} is in use by process {holder or 'unknown'}: stop it first, or choose another directory"
            )
        self._written = b""
        if announce:
            os.ftruncate(self._fd, 0)
            self._written = f"{os.getpid()}\n{self.token}\n".encode()
            os.write(self._fd, self._written)

    def _lock(self, pause_s: float = 0.0) -> bool:
        time.sleep(pause_s)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def announce_address(self, address: str) -> None:
        """Write the URL of the server that runs on the directory, for programs that look for it here."""
        os.pwrite(self._fd, f"{address}\n".encode(), len(self._written))

    def release(self) -> None:
        if self._written:
            os.ftruncate(self._fd, len(self._written))  # the address is no longer valid
        os.close(self._fd)


def holder_address(directory: Path) -> str:
    """Return the URL of the server that runs on the directory; an empty text if none does, or it is no server."""
    try:
        descriptor = os.open(directory / "LOCK", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""  # nothing has ever run on it, or it is another user's
    try:
        lines = os.read(descriptor, 1024).decode(errors="replace").splitlines()
        if len(lines) < 3:
            return ""
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return lines[2]
    finally:
        os.close(descriptor)
    return ""  # a server that was killed has left its address


def holder_token(directory: Path) -> str:
    """Return the token of the process that runs, or ran, on the directory; an empty text if there is none."""
    try:
        lines = (directory / "LOCK").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[1] if len(lines) > 1 else ""
