from __future__ import annotations

import asyncio

from slipstream.health import Health, HealthSettings, beating


def test_the_loop_beats_until_the_end_and_trouble_is_asked_where_it_turns() -> None:
    asyncio.run(_beaten())


async def _beaten() -> None:
    asked = asyncio.Event()

    def trouble() -> str:
        asyncio.get_running_loop()
        asked.set()
        return ""

    health = Health(HealthSettings())
    async with beating(health):
        health.ready(trouble)
        async with asyncio.timeout(30):
            await asked.wait()
    assert len(asyncio.all_tasks()) == 1, "nobody beats any more"
