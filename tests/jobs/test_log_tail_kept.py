"""Whether there are logs to be had at all, on every engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstream.bus import Unsupported
from slipstream.bus.opening import Opening
from slipstream.jobs.ledger import open_ledger
from slipstream.jobs.log_tail import LogTail
from slipstream.jobs.provision import ensure_topics
from slipstream.jobs.streams import streams
from tests.bus.sites.site import Site
from tests.client.loop import in_loop

STREAMS = streams("fetchbox")


@pytest.mark.parametrize("follow", [False, True])
@in_loop
async def test_a_job_without_logs_has_none_and_an_engine_without_says_so(
    site: Site, any_bus: Callable[[], Opening], follow: bool
) -> None:
    async with any_bus() as bus, open_ledger(":memory:") as ledger:
        await ensure_topics(bus, STREAMS)
        await ledger.queue("j-1", "photos", "", "", ["a"])
        job = ledger.job("j-1")
        assert job is not None
        logs = LogTail(bus, ledger, STREAMS).logs(job, follow=follow)
        if not site.reads:
            with pytest.raises(Unsupported):
                await anext(logs)
        elif follow:
            assert await anext(logs) is None, "it is still alive, and waits"
        else:
            assert [each async for each in logs] == []
