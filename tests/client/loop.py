"""Tests that await: each in an event loop of its own."""

from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

LIMIT_S = 60.0


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes an `async` test one that pytest runs; fixtures are named as usual."""
    return in_loop_for(LIMIT_S)(test)


def in_loop_for(limit_s: float) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """For a test that may take longer than others, such as one that kills processes and starts new ones."""

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            asyncio.run(_limited(test(*args, **kwargs), limit_s))

        return run

    return decorate


async def _limited(story: Coroutine[Any, Any, None], limit_s: float) -> None:
    """Whoever waits for ever is ended, with what everybody was at just before."""
    stacks = io.StringIO()

    def look() -> None:
        for task in asyncio.all_tasks():
            task.print_stack(file=stacks)

    looking = asyncio.get_running_loop().call_later(limit_s - 1, look)
    try:
        async with asyncio.timeout(limit_s):
            await story
    except TimeoutError as error:
        error.add_note(stacks.getvalue())
        raise
    finally:
        looking.cancel()


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Asks again and again: for what the server tells nobody by itself. A test that waits for ever is ended above."""
    while not await question():
        await asyncio.sleep(0.01)
