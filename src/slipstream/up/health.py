"""Whether a part is ready: asked of its address again and again, with pauses that grow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
ANSWER_S = 5.0


async def until_ready(url: str, tell: Callable[[str], None]) -> None:
    """Returns when it answers 200. Until then `tell` hears why not, in the part's own words, when that changes."""
    import aiohttp  # noqa: PLC0415 - every command imports this module, and most need nothing of it

    pause, before = FIRST_PAUSE_S, ""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
        while (reason := await _ask(session, url)) is not None:
            if reason != before:
                tell(reason)
                before = reason
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_S)


async def answers(url: str) -> bool:
    """Asked once."""
    import aiohttp  # noqa: PLC0415

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
        return await _ask(session, url) is None


async def _ask(session: aiohttp.ClientSession, url: str) -> str | None:
    """None: it is ready. Else why not, or nothing where it does not even answer."""
    import aiohttp  # noqa: PLC0415

    try:
        async with session.get(url) as response:
            if response.status == 200:
                return None
            return _reason(await response.text())
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""


def _reason(body: str) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("reason", "")) if isinstance(answer, dict) else ""
