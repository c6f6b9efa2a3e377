"""Threads for functions that may never return."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from slipstream.threads import DaemonThreads


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_a_thread_that_hangs_is_replaced_and_ends_when_it_returns() -> None:
    async def run() -> None:
        release, begun = threading.Event(), threading.Semaphore(0)
        threads = DaemonThreads(2, "replaced", replacements=4)

        def wait() -> None:
            begun.release()
            release.wait()

        for _ in range(2):
            calls = [asyncio.ensure_future(threads.call(wait)) for _ in range(2)]
            for _ in calls:
                await asyncio.to_thread(begun.acquire)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        assert threads.stuck == 4
        assert await threads.call(lambda: "answered") == "answered"
        release.set()
        await until(lambda: threads.stuck == 0)
        await until(lambda: sum(thread.name.startswith("replaced-") for thread in threading.enumerate()) == 2)
        assert await threads.call(lambda: "answered") == "answered"
        threads.close()

    asyncio.run(run())


def test_without_replacements_a_thread_is_kept_for_its_call_alone() -> None:
    async def run() -> None:
        release, begun = threading.Event(), threading.Event()
        threads = DaemonThreads(1, "kept")

        def wait() -> None:
            begun.set()
            release.wait()

        call = asyncio.ensure_future(threads.call(wait))
        await asyncio.to_thread(begun.wait)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        following = asyncio.ensure_future(threads.call(lambda: "answered"))
        await asyncio.sleep(0)
        assert (threads.stuck, following.done()) == (1, False)
        release.set()
        assert await following == "answered"
        assert threads.stuck == 0
        threads.close()

    asyncio.run(run())


def test_a_call_that_was_cancelled_before_it_began_is_never_made() -> None:
    async def run() -> None:
        release, begun = threading.Event(), threading.Event()
        threads = DaemonThreads(1, "waiting")
        made: list[str] = []

        def wait() -> None:
            begun.set()
            release.wait()

        first = asyncio.ensure_future(threads.call(wait))
        await asyncio.to_thread(begun.wait)
        second = asyncio.ensure_future(threads.call(lambda: made.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        release.set()
        await first
        await threads.call(lambda: made.append("third"))
        assert made == ["third"]
        threads.close()

    asyncio.run(run())
