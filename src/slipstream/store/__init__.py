"""The data directory: the only code that touches disk. It knows bytes, frames and files, and nothing of leases.

A shared journal takes every change with group commit; a compactor turns closed journal files into Arrow segments, one
per range of a partition, and writes a checkpoint, so that memory and recovery time stay bounded.

    DIR/LOCK                                   held by the process that runs on the directory: its token and address
    DIR/journal-000000000007                   commits since the last checkpoints
    DIR/checkpoint-000000000007                state and list of segments as of the start of that journal file
    DIR/segments/3-orders/0/0000000000000000-512.arrow   topic id and name, partition, first record and count
"""

from slipstream.store.arrow import do_without_numpy
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.damage import Damaged, DirectoryInUse, ForeignDirectory, TornTail
from slipstream.store.disk import Disk
from slipstream.store.journal import Durability
from slipstream.store.log import StoredLog
from slipstream.store.memory import MemoryLog, MemoryStore
from slipstream.store.room import Room
from slipstream.store.slice import LogSlice, SliceGone
from slipstream.store.store import Owner, Schedule, Store, StoreConfig

__all__ = [
    "Damaged",
    "DirectoryInUse",
    "Disk",
    "Durability",
    "ForeignDirectory",
    "LogSlice",
    "MemoryLog",
    "MemoryStore",
    "Owner",
    "Room",
    "Schedule",
    "SegmentInfo",
    "SliceGone",
    "Store",
    "StoreConfig",
    "StoredLog",
    "TornTail",
    "do_without_numpy",
]
