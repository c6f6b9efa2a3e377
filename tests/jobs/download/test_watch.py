"""One timer for many deadlines."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from slipstream.jobs.download.watch import Watch
from tests.client.loop import in_loop


@in_loop
async def test_what_takes_too_long_is_ended() -> None:
    watch = Watch(0.01)
    with pytest.raises(TimeoutError), watch.over(time.monotonic() + 0.01):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    watch.close()


@in_loop
async def test_a_deadline_may_move() -> None:
    watch = Watch(0.01)
    with watch.over(time.monotonic()) as watched:
        watched.expires_at = math.inf
        await asyncio.sleep(0.03)
        watched.expires_at = 0
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
    watch.close()


@in_loop
async def test_a_cancellation_by_somebody_else_is_not_taken_for_a_timeout() -> None:
    watch, began = Watch(0.01), asyncio.Event()

    async def work(expires_at: float) -> None:
        with watch.over(expires_at):
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work(math.inf))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    watch.close()


@in_loop
async def test_a_cancellation_at_the_same_moment_wins() -> None:
    watch, began = Watch(0.01), asyncio.Event()

    async def work() -> None:
        with watch.over(math.inf) as watched:
            began.set()
            watched.expires_at = 0
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await began.wait()
    for watched in watch._watched:
        watched.expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    watch.close()


@in_loop
async def test_there_is_no_timer_while_nothing_is_under_way() -> None:
    watch = Watch(0.01)
    with watch.over(math.inf):
        assert watch._timer is not None
    while watch._timer is not None:
        await asyncio.sleep(0.005)
