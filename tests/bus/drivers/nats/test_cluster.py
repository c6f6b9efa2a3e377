"""Three servers, streams of three copies, and the server that leads them killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from slipstream.bus import open_bus
from slipstream.bus.drivers.nats.names import stream_name
from tests.bus.recorder import Recorder
from tests.bus.sites.nats_cluster import SIZE, NatsCluster
from tests.client.loop import in_loop


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    made = NatsCluster()
    made.start()
    try:
        yield made
    finally:
        made.close()


@in_loop
async def test_nothing_is_lost_and_workers_start_while_another_leader_is_elected(
    cluster: NatsCluster, topic: str
) -> None:
    await cluster.ready()
    before, since, fresh = Recorder(), Recorder(), Recorder()
    acknowledged: list[str] = []
    async with open_bus(**cluster.settings()) as bus:
        await bus.subscribe(topic, "before", before)
        assert (await bus.native.stream_info(stream_name(topic))).config.num_replicas == SIZE
        await bus.ensure_group(topic, "since")
        for number in range(20):
            await bus.publish(topic, f"{number}")
            acknowledged.append(f"{number}")
        leader = await cluster.leader_of(stream_name(topic))
        cluster.kill(leader)
        # Whatever asks JetStream for something now finds nobody who could answer.
        async with open_bus(**cluster.settings()) as other:
            subscribing = asyncio.create_task(other.subscribe(topic, "since", since))
            making = asyncio.create_task(other.subscribe(f"{topic}.new", "since", fresh))
            for number in range(20, 40):
                await bus.publish(topic, f"{number}")
                acknowledged.append(f"{number}")
            await asyncio.gather(subscribing, making)
            await other.publish(f"{topic}.new", "a stream and a consumer that were made during the election")
            await fresh.have(1)
            for handled in (before, since):
                while {each.text for each in handled.messages} != {*acknowledged}:  # some may come twice
                    await handled.have(len(handled.messages) + 1)
        assert await cluster.leader_of(stream_name(topic)) != leader
