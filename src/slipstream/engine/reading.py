"""Reading ranges of the log: in another thread, where the disk may take its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from slipstream.broker import Partition, Unavailable
from slipstream.store import LogSlice, SliceGone

ResultT = TypeVar("ResultT")

ATTEMPTS = 5
"""A slice is taken again if compaction moved its records meanwhile, which does not happen every second."""


async def read_slice(take: Callable[[], LogSlice], read: Callable[[LogSlice], ResultT]) -> ResultT:
    """`take` is called here, in the broker's thread; `read` elsewhere.

    Raises LogUnreadable, or Unavailable where the records moved each time.
    """
    loop = asyncio.get_running_loop()
    for _ in range(ATTEMPTS):
        try:
            return await loop.run_in_executor(None, read, take())
        except SliceGone as error:
            gone = error
    raise Unavailable("the records were moved while they were read; try again") from gone


def first_offset(partition: Partition) -> int:
    """Below this nothing can be read any more. Raises LogUnreadable."""
    if partition.first_index and not partition.first_offset:
        # Removed by a release that did not note it.
        if partition.first_index == partition.committed:
            return partition.topic.next_offset
        return partition.log.read(partition.first_index).offset
    return partition.first_offset


def next_offset(partition: Partition) -> int:
    """Everything written to the partition is below this. Raises LogUnreadable."""
    if partition.committed == partition.first_index:
        return first_offset(partition)
    return partition.log.offset_before(partition.committed) + 1
