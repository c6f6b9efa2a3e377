"""`slipstream bench`: how fast this server is from here, for the messages you have in mind."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import rich_click as click

from slipstream.cli.output import EXIT_CODES, Output, speaks
from slipstream.cli.values import Duration, Size

if TYPE_CHECKING:
    from slipstream.client import AsyncClient, Client


class Result(msgspec.Struct, frozen=True):
    what: str
    messages: int
    seconds: float
    messages_per_s: float
    p50_ms: float
    p99_ms: float
    """Of one request."""


_Times: TypeAlias = list[float]


@click.command(epilog=EXIT_CODES)
@click.option("--seconds", "duration", type=Duration(), default="3s", show_default=True, help="Of each measurement.")
@click.option("--size", type=Size(), default="200", show_default=True, help="Of a message, in bytes.")
@click.option("--batch", type=click.IntRange(1), default=100, show_default=True, help="Messages a request.")
@click.option("--connections", type=click.IntRange(1), default=8, show_default=True, help="Requests at a time.")
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True, help="Of the topic it makes.")
@speaks
def bench(
    client: Client, output: Output, duration: int, size: int, batch: int, connections: int, partitions: int
) -> None:
    """Measure the server: single produces, batches, and batches fetched and acked.

    Makes a topic of its own and deletes it afterwards. The numbers are this client's: Python, on this machine.
    """
    topic = f"slipstream.bench.{secrets.token_hex(4)}"
    client.create_topic(topic, partitions)
    try:
        results = asyncio.run(_measure(client.url, topic, duration / 1000, size, batch, connections))
    finally:
        client.delete_topic(topic)
    if output.as_json:
        output.json(results)
    else:
        output.table(
            ["", ">MESSAGES/S", ">P50", ">P99"],
            [(r.what, f"{r.messages_per_s:,.0f}", f"{r.p50_ms:.2f} ms", f"{r.p99_ms:.2f} ms") for r in results],
        )


async def _measure(url: str, topic: str, seconds: float, size: int, batch: int, connections: int) -> list[Result]:
    from slipstream.client import AsyncClient  # noqa: PLC0415

    values = [secrets.token_bytes(size) for _ in range(1_000)]
    async with AsyncClient(url) as client:

        async def produce(count: int, times: _Times, until: float) -> int:
            stored = 0
            while (started := time.perf_counter()) < until:
                await client.produce_batch(topic, values[:count], idempotency_key=None)
                times.append(time.perf_counter() - started)
                stored += count
            return stored

        results = []
        for count in (1, batch):
            times: _Times = []
            began = time.perf_counter()
            counts = await asyncio.gather(*(produce(count, times, began + seconds) for _ in range(connections)))
            what = "produce, one a request" if count == 1 else f"produce, {count} a request"
            results.append(_result(what, sum(counts), time.perf_counter() - began, times))
        results.append(await _drain(client, topic, batch, connections))
    return results


async def _drain(client: AsyncClient, topic: str, batch: int, connections: int) -> Result:
    times: _Times = []

    async def drain(owner: str) -> int:
        done = 0
        while True:
            started = time.perf_counter()
            messages = await client.fetch(topic, "bench", max_messages=batch, owner=owner)
            if not messages:
                return done
            await client.ack(*messages)
            times.append(time.perf_counter() - started)
            done += len(messages)

    began = time.perf_counter()
    counts = await asyncio.gather(*(drain(f"bench-{number}") for number in range(connections)))
    return _result(f"fetch and ack, {batch} a request", sum(counts), time.perf_counter() - began, times)


def _result(what: str, messages: int, seconds: float, times: _Times) -> Result:
    ordered = sorted(times) or [0.0]

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)

    return Result(what, messages, round(seconds, 3), round(messages / seconds), at(0.5), at(0.99))
