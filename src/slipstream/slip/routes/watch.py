"""Watches the file of a route table: a changed file becomes the table, one that is wrong is reported and waited out."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import NamedTuple

from slipstream.slip.routes.problems import RouteTableInvalid
from slipstream.slip.routes.table import RouteTable

log = logging.getLogger(__name__)


class _Stamp(NamedTuple):
    """What tells two versions of a file apart without reading them. Editors replace a file, so that its number changes;
    and `kubectl`, which replaces a link to a directory."""

    mtime_ns: int
    size: int
    inode: int


class WatchedRoutes:
    """The newest table that was right. The first one is loaded here, and raises RouteTableInvalid: nobody starts
    without routes.

    Example:
        routes = WatchedRoutes(Path("routes.yaml"))
        watching = asyncio.create_task(routes.run())
        routes.table.plan(event)
    """

    def __init__(self, path: Path | str, *, interval_s: float = 1.0) -> None:
        self.path = Path(path)
        self.interval_s = interval_s
        # The stamp is taken first: a file that changes while it is read is read again.
        self._seen = _stamp(self.path)
        self.table = RouteTable.load(self.path)
        self.version = 1
        """How many tables there have been."""
        self.problem: str | None = None
        """Why the newest file was refused; the table is that of an older one."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.interval_s)
            await self.check()

    async def check(self) -> bool:
        """Looks once. Whether there is another table."""
        stamp, loaded = await asyncio.to_thread(self._load_if_changed)
        if loaded is None:
            return False
        self._seen = stamp
        if isinstance(loaded, RouteTable):
            self.table, self.problem = loaded, None
            self.version += 1
            log.info("routes of %s loaded: version %d", self.path, self.version)
            return True
        self.problem = loaded
        log.error("routes of %s refused, version %d stays: %s", self.path, self.version, loaded)
        return False

    def _load_if_changed(self) -> tuple[_Stamp | None, RouteTable | str | None]:
        """In a thread: the table, or what is wrong with it, or None if the file is as it was."""
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return stamp, None
        try:
            return stamp, RouteTable.load(self.path)
        except RouteTableInvalid as error:
            return stamp, str(error)
        except Exception as error:  # noqa: BLE001, whatever is wrong with a file must not end the watching of it
            return stamp, f"{type(error).__name__}: {error}"


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_mtime_ns, found.st_size, found.st_ino)
