"""What the console counts, by itself and for whoever watches."""

from __future__ import annotations

import contextlib

from prometheus_client import CollectorRegistry

from slipstream.console import Sources, create_console
from slipstream.console.metrics import metrics_in
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, events, listening, stats


@in_loop
async def test_answers_are_counted_by_their_route_and_not_by_the_ids_in_it() -> None:
    registry = CollectorRegistry()
    console = create_console(Sources(Numbers(), metrics=metrics_in(registry)))
    async with listening(console) as url:
        for slip in ("c-1", "c-2"):
            await ask(f"{url}/v2/slips/{slip}")
        await ask(f"{url}/nothing")
    await console.close()

    def counted(route: str, status: str) -> float | None:
        return registry.get_sample_value("console_requests_total", {"route": route, "status": status})

    assert counted("/v2/slips/{rest:path}", "5xx") == 2, "slips are not shown by this process"
    assert counted("none", "4xx") == 1


@in_loop
async def test_who_follows_the_overview_is_counted() -> None:
    registry = CollectorRegistry()
    numbers = Numbers()
    console = create_console(Sources(numbers, metrics=metrics_in(registry)))
    await console.open()
    async with listening(console) as url:
        await numbers.told.put(stats())
        async with contextlib.aclosing(events(f"{url}/v2/overview")) as stream:
            while (await anext(stream))[0] != "overview":
                pass
            assert registry.get_sample_value("console_watching") == 1
        console.stop()
    await console.close()
    assert registry.get_sample_value("console_watching") == 0
