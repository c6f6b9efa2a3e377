"""What the room on the disk allows: everything, all but new messages, or nothing at all."""

from __future__ import annotations

import logging

from slipstream.broker import DiskLow, Unavailable
from slipstream.engine.condition import Condition
from slipstream.engine.storage import Storage

log = logging.getLogger(__name__)

RETRY_AFTER_MS = 5_000
"""What clients are asked to wait for. Room is made more slowly than queues are worked off."""


class DiskRoom:
    """The room on the disk of one store."""

    def __init__(self, store: Storage) -> None:
        self.stall: Unavailable | None = None
        """Why nothing is written until there is room."""
        self._store = store

    @property
    def low(self) -> DiskLow | None:
        """Why no new messages are taken, so that acks and compaction have the room that is left."""
        room, waits = self._store.room, self._store.compactor.stalled
        if room is None or not (room.is_low or waits is not None):
            return None
        if waits is not None:
            cause = f"a compaction waits for room on the disk ({waits})"
        else:
            free, kept = f"{room.free_bytes >> 20} MiB", f"{room.low_bytes >> 20} MiB"
            cause = (
                f"the disk is nearly full: {free} are free, {kept} are kept for acks and compaction (disk_free_bytes)"
            )
        return DiskLow(f"{cause}; producers are refused until there is room", RETRY_AFTER_MS)

    @property
    def condition(self) -> Condition | None:
        low, room = self.low, self._store.room
        if low is None or room is None:
            return None
        place = f"make room on the volume of {room.directory.absolute()}, or shorten the retention of topics"
        text = "producers are refused: the disk is nearly full"
        return Condition(kind="disk", level="error", text=text, detail=f"{low.message}; {place}")

    def note_stall(self, error: OSError) -> Unavailable:
        """Note that there is no room for the journal."""
        self.stall = Unavailable(
            f"there is no room on the disk for the journal ({error}): writes are refused until there is, without a "
            "restart; what was refused in this moment may be stored later",
            RETRY_AFTER_MS,
        )
        return self.stall

    def note_change(self) -> None:
        """Log that the free space has become low, or is no longer."""
        room = self._store.room
        assert room is not None, "the room has changed"
        if room.is_low:
            free, kept = room.free_bytes >> 20, room.low_bytes >> 20
            log.error("the disk is nearly full, and producers are refused: %d MiB are free, of %d to keep", free, kept)
        else:
            log.info("the disk has room again, and producers are served: %d MiB are free", room.free_bytes >> 20)
