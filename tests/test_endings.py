"""Tasks that are ended."""

from __future__ import annotations

import asyncio
import contextlib

from slipstream.endings import end_tasks
from tests.client.loop import in_loop


@in_loop
async def test_a_cancellation_that_is_lost_is_said_again() -> None:
    began = asyncio.Event()
    lost = 0

    async def loses_the_first() -> None:
        nonlocal lost
        while True:
            began.set()
            if lost:
                await asyncio.Event().wait()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            lost += 1

    async def fails() -> None:
        raise OSError("before anybody asked")

    async def listens() -> None:
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(each()) for each in (loses_the_first, fails, listens)]
    await began.wait()
    await end_tasks(*tasks)
    assert lost == 1
    assert all(task.done() for task in tasks)
    assert isinstance(tasks[1].exception(), OSError)
