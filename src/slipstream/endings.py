"""How tasks of a loop are ended."""

from __future__ import annotations

import asyncio

AGAIN_S = 1.0
"""After which a task is told once more."""


async def end_tasks(*tasks: asyncio.Task[None]) -> None:
    """Returns when all have ended. Each is cancelled until it has: the client of Redis takes our cancellation for its
    own when it comes as its timeout runs out, and the loop around it would go on for ever.

    Example:
        await end_tasks(self._watch)
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_S)
