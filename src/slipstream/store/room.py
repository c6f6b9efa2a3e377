"""The room on the disk: how much is left, and whether producers should be turned away while there still is some."""

from __future__ import annotations

import logging
from pathlib import Path

from slipstream.store.disk import Disk

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the free space is read, in seconds."""

SHARE = 10
"""No more than this part of a volume is kept free, so that a small one can be used at all."""


class Room:
    """Watches the free space of the volume of a data directory. Read from any thread, written by the journal's."""

    def __init__(self, disk: Disk, directory: Path, keep_bytes: int) -> None:
        self.directory = directory
        self.free_bytes = 0
        """Free space when it was read last."""
        self.low_bytes = 0
        """Producers are refused while less than this is free; 0 for never."""
        self.is_low = False
        self._disk = disk
        self._keep_bytes = keep_bytes
        self._looked_at_s: float | None = None
        self._is_unknown = False

    def look(self, now_s: float) -> bool:
        """Read the free space if it is time to; return whether it has become low, or is no longer."""
        if self._looked_at_s is not None and now_s < self._looked_at_s + LOOK_S:
            return False
        self._looked_at_s = now_s
        try:
            free_bytes, total_bytes = self._disk.space(self.directory)
        except OSError as error:
            # The journal finds out by itself whether it can still be written.
            if not self._is_unknown:
                log.warning("the free space of %s cannot be read: %s", self.directory, error)
            self._is_unknown = True
            return False
        self._is_unknown = False
        self.free_bytes = free_bytes
        self.low_bytes = min(self._keep_bytes, total_bytes // SHARE)
        # A little more than was missing has to be freed, or the state would change with every message.
        was_low, enough_bytes = self.is_low, self.low_bytes + (self.low_bytes // 8 if self.is_low else 0)
        self.is_low = free_bytes < enough_bytes
        return self.is_low != was_low
