"""Whether a part is ready, and later whether it still is: asked of its address again and again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import aiohttp

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
ANSWER_S = 8.0
"""More than the five seconds in which the jobs service asks all that it needs: then it says what does not answer."""
OK = 200
NOBODY = 0
"""Nothing was answered."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Of a part that has been ready."""

    is_ready: bool
    is_alive: bool
    reason: str = ""
    """Why it is not ready, in its own words; nothing where it does not answer."""


async def until_ready(url: str, tell: Callable[[str], None]) -> None:
    """Returns when it answers 200. Until then `tell` hears why not, in the part's own words, when that changes."""
    pause, before = FIRST_PAUSE_S, ""
    async with _session() as session:
        while True:
            status, reason = await _ask(session, url)
            if status == OK:
                return
            if reason != before:
                tell(reason)
                before = reason
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_S)


async def conditions(ready: str, alive: str, every_s: float) -> AsyncGenerator[Condition]:
    """Asked after each pause, for ever. Without an address that says so, alive is who answers."""
    async with _session() as session:
        while True:
            await asyncio.sleep(every_s)
            (is_ready, reason), (is_alive, _) = await asyncio.gather(
                _ask(session, ready), _ask(session, alive or ready)
            )
            yield Condition(
                is_ready=is_ready == OK,
                is_alive=is_ready == OK or (is_alive == OK if alive else is_alive != NOBODY),
                reason=reason,
            )


async def answers(url: str) -> bool:
    """Asked once."""
    async with _session() as session:
        return (await _ask(session, url))[0] == OK


def _session() -> aiohttp.ClientSession:
    import aiohttp  # noqa: PLC0415 - every command imports this module, and most need nothing of it

    # Not kept open: a part closes what is idle for five seconds, and that may be the moment when it is asked again.
    connector = aiohttp.TCPConnector(force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=ANSWER_S))


async def _ask(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """Its status, and why it is not well as far as it says so."""
    import aiohttp  # noqa: PLC0415

    try:
        async with session.get(url) as response:
            return response.status, "" if response.status == OK else _reason(await response.text(errors="replace"))
    except (aiohttp.ClientError, TimeoutError, OSError):
        return NOBODY, ""


def _reason(body: str) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("reason", "")) if isinstance(answer, dict) else ""
