"""Numbers of a real broker in another process, as the overview reads them."""

from __future__ import annotations

import contextlib

import httpx

from slipstream.console.broker import BrokerStats
from slipstream.console.problems import Seen, problems
from slipstream.console.settings import Thresholds
from slipstream.console.watch import Watch
from slipstream.testing import MemoryBroker
from tests.client.loop import in_loop


@in_loop
async def test_a_stream_that_lets_its_lease_run_out_is_a_problem() -> None:
    with MemoryBroker() as broker, broker.client() as client, httpx.Client(base_url=broker.url) as http:
        client.create_topic("orders")
        client.produce("orders", "one")
        source = BrokerStats(broker.url)
        query = {"topic": "orders", "group": "billing", "owner": "silent", "lease_ms": "1000"}
        async with contextlib.aclosing(source.samples(100)) as samples:

            async def found() -> list[tuple[str, str]]:
                stats = await anext(samples)
                groups, _ = Watch().see(stats)
                seen = Seen(now_ms=stats.time_ms, groups=groups)
                return [(each.text, each.detail) for each in problems(seen, Thresholds())]

            with http.stream("GET", "/v1/consume", params=query) as response:
                lines = response.iter_lines()  # closes the stream when it is forgotten
                next(lines)
                assert await found() == []
                broker.advance(seconds=10)
                while not (texts := await found()):
                    pass  # a sample from before
                ((text, detail),) = texts
                assert text.startswith("group billing of orders: its only consumer is parked")
                assert detail.startswith("the leases of silent ran out without one ack; it gets no messages until")
        await source.close()
