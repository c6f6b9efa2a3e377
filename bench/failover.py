"""How long nothing is published or consumed when the server that leads a stream is killed: the bus next to nats-py.

Both publish to one stream of three copies and consume through the same durable consumer, so that they wait for the same
elections. What differs is how soon each client notices that there is a leader again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from itertools import pairwise

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from bench.servers import NatsCluster
from slipstream.bus import Message, open_bus

TOPIC, STREAM, GROUP = "failover.v1", "failover=v1", "bench"
PAUSE_S = 0.01
"""Between two messages of a publisher."""
WARM_S = 2.0
AFTER_S = 2.0
"""How long all four go on after the last of them has come back."""

Silences = dict[str, float]
"""The longest pause of each: `ours publish`, `bare publish`, `ours consume`, `bare consume`, in seconds."""


def measure_silences(cluster: NatsCluster) -> Silences:
    """Kill the leader once, and return how long each was silent."""
    return asyncio.run(_measure(cluster))


class _Beats:
    def __init__(self) -> None:
        self.times: list[float] = []

    def beat(self) -> None:
        self.times.append(time.monotonic())

    def longest(self, since: float) -> float:
        times = [max(since, each) for each in self.times]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def is_back(self, since: float) -> bool:
        return bool(self.times) and self.times[-1] > since + 1.0


async def _measure(cluster: NatsCluster) -> Silences:
    beats = {f"{whose} {what}": _Beats() for whose in ("ours", "bare") for what in ("publish", "consume")}
    async with open_bus(driver="nats", nats_url=cluster.url, nats_replicas=3) as bus:

        async def take(message: Message) -> None:
            beats["ours consume"].beat()

        await bus.subscribe(TOPIC, GROUP, take, max_in_flight=8)
        client = await nats.connect(cluster.url.split(","), max_reconnect_attempts=-1, reconnect_time_wait=0.25)
        js = client.jetstream()
        tasks = [
            asyncio.create_task(_publish(lambda: bus.publish(TOPIC, b"x"), beats["ours publish"].beat)),
            asyncio.create_task(_publish(lambda: js.publish(TOPIC, b"x"), beats["bare publish"].beat)),
            asyncio.create_task(_consume(js, beats["bare consume"].beat)),
        ]
        try:
            await asyncio.sleep(WARM_S)
            leader = (await js.stream_info(STREAM)).cluster
            assert leader is not None
            killed_at = time.monotonic()
            cluster.kill(str(leader.leader))
            while not all(each.is_back(killed_at) for each in beats.values()):
                await asyncio.sleep(0.1)
            await asyncio.sleep(AFTER_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _close(client)
    return {name: each.longest(killed_at) for name, each in beats.items()}


async def _publish(publish: Callable[[], object], beat: Callable[[], None]) -> None:
    """As an application would: what fails is tried again at once."""
    while True:
        with contextlib.suppress(NatsError, OSError):
            await publish()  # type: ignore[misc]
            beat()
        await asyncio.sleep(PAUSE_S)


async def _consume(js: JetStreamContext, beat: Callable[[], None]) -> None:
    """The loop of nats-py's own examples."""
    subscription = await js.pull_subscribe_bind(consumer=GROUP, stream=STREAM)
    while True:
        try:
            for message in await subscription.fetch(8, timeout=5):
                await message.ack()
                beat()
        except (NatsError, OSError):
            await asyncio.sleep(PAUSE_S)


async def _close(client: Client) -> None:
    with contextlib.suppress(NatsError, OSError):
        await client.close()
