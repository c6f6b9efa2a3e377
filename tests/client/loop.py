"""Tests that await: each in an event loop of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes an `async` test one that pytest runs; fixtures are named as usual."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(_limited(test(*args, **kwargs)))

    return run


async def _limited(story: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(60):
        await story


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Asks again and again: for what the server tells nobody by itself. A test that waits for ever is ended above."""
    while not await question():
        pass
