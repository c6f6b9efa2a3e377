"""Reading ranges of the log in another thread, where the disk may take its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from slipstream.broker import Unavailable
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
