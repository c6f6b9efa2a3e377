"""One process at a time on a data directory."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from slipstream.store.damage import DirectoryInUse


def is_foreign(directory: Path) -> bool:
    """It holds files, but none that the store ever made. A new file system comes with a `lost+found`, and `slipstream
    up` has files of its own there before it starts the broker."""
    if (directory / "up" / "parts.json").exists():
        return False
    names = {path.name for path in directory.iterdir()} - {"lost+found"}
    ours = ("LOCK", "journal-", "checkpoint-")
    return bool(names) and not any(name.startswith(ours) for name in names)


class DirectoryLock:
    """Held until `release` or the end of the process, however it ends."""

    def __init__(self, directory: Path, *, announce: bool = True) -> None:
        """`announce` writes who holds it, and a token that only this process and who reads the file know; without, the
        directory stays as it is, and must have been used before."""
        self.token = secrets.token_hex(16)
        path = directory / "LOCK"
        flags = os.O_RDWR | os.O_CREAT if announce else os.O_RDONLY
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").partition("\n")[0]
            os.close(self._fd)
            raise DirectoryInUse(
                f"{directory} is in use by process {holder or 'unknown'}: stop it first, or choose another directory"
            ) from None
        if announce:
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n{self.token}\n".encode())

    def release(self) -> None:
        os.close(self._fd)


def holder_token(directory: Path) -> str:
    """The token of the process that runs, or ran, on the directory; empty where there is none to be read."""
    try:
        lines = (directory / "LOCK").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[1] if len(lines) > 1 else ""
