"""Provisioning on every engine: what is missing is made, what differs is changed, and what cannot be had is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from slipstream.bus import Message, TopicInfo, open_bus
from slipstream.bus.opening import Opening
from slipstream.jobs.groups import ledger_options, worker_options
from slipstream.jobs.messages import JobState, JobStatus, decode
from slipstream.jobs.provision import Provisioned, ensure_topics, provision
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.streams import DAY_MS, GB, LEDGER_GROUP, WORKERS, streams
from tests.bus.sites.site import Site
from tests.client.loop import in_loop
from tests.jobs.lab import laboratory

SETTINGS = JobSettings()
STREAMS = streams(SETTINGS.namespace)


def cannot_be_had(done: list[Provisioned]) -> dict[str, set[str]]:
    found = {each.topic: {d.what for d in each.differences if not d.is_settled} for each in done}
    return {topic: what for topic, what in found.items() if what}


@in_loop
async def test_the_streams_are_made_and_the_second_time_nothing_is_changed(
    site: Site, any_bus: Callable[[], Opening]
) -> None:
    async with any_bus() as bus:
        first = await provision(bus, SETTINGS)
        infos = [await bus.topic(stream.topic) for stream in STREAMS.all()]
        second = await provision(bus, SETTINGS)
        assert [await bus.topic(stream.topic) for stream in STREAMS.all()] == infos
    assert [each.topic for each in first] == [stream.topic for stream in STREAMS.all()]
    assert all(each.created for each in first)
    assert not any(each.is_changed for each in second)
    assert cannot_be_had(first) == cannot_be_had(second), "what this engine cannot do is told every time"
    for stream, info in zip(STREAMS.all(), infos, strict=True):
        assert info is not None
        assert info.partitions == (stream.partitions if site.has_partitions else 1)


@in_loop
async def test_what_cannot_be_had_is_told(site: Site, any_bus: Callable[[], Opening]) -> None:
    async with any_bus() as bus:
        found = cannot_be_had(await provision(bus, SETTINGS))
    expected: dict[str, set[str]] = {}
    for stream in STREAMS.all():
        lacking = set() if site.has_partitions or stream.partitions == 1 else {"partitions"}
        if stream.retention_bytes and not site.limits_bytes:
            lacking.add("size")
        if stream.retention_ms > 31 * DAY_MS and not site.keeps_for_ever:
            lacking.add("time")
        if site.driver == "nats":
            found.get(stream.topic, set()).discard("size")  # the disk of this machine may be smaller than the limit
        if lacking:
            expected[stream.topic] = lacking
    assert found == expected


@in_loop
async def test_the_limit_of_bytes_is_that_of_the_stream_as_a_whole(site: Site, any_bus: Callable[[], Opening]) -> None:
    async with any_bus() as bus:
        await ensure_topics(bus, STREAMS)
        info = await bus.topic(STREAMS.tasks.topic)
        assert info is not None
        if site.has_partitions:
            assert info.partitions * (info.retention_bytes or 0) == 100 * GB
            await bus.adjust_topic(STREAMS.tasks.topic, partitions=16)
            tasks = (await provision(bus, SETTINGS))[0]
            assert (tasks.is_changed, tasks.size, tasks.partitions) == (True, "100 GB", "16")
            assert cannot_be_had([tasks]) == {}, "more partitions than are wanted are no lack"
            assert await bus.topic(STREAMS.tasks.topic) == TopicInfo(
                STREAMS.tasks.topic, 16, 7 * DAY_MS, 100 * GB // 16
            )
            assert not (await provision(bus, SETTINGS))[0].is_changed
        elif site.limits_bytes:
            assert info.retention_bytes in {100 * GB, 0}, "all of it in one; or none, where the disk has no room"


@in_loop
async def test_a_stream_with_another_retention_is_changed_and_it_is_said(
    site: Site, any_bus: Callable[[], Opening]
) -> None:
    topic = STREAMS.status.topic
    async with any_bus() as bus:
        await bus.ensure_topic(topic, partitions=2, retention=3600)
        status = (await provision(bus, SETTINGS))[1]
        info = await bus.topic(topic)
    assert (status.topic, status.created) == (topic, False)
    assert info is not None
    (time,) = [each for each in status.differences if each.what == "time"]
    assert (time.was, time.wanted) == ("0.0416667 d", "14 d")
    if not site.adjusts_retention:
        assert (time.is_settled, status.is_changed) == (False, False)
        return
    assert (time.is_settled, time.now, status.is_changed) == (True, "14 d", True)
    assert info.retention_ms == 14 * DAY_MS
    assert info.partitions == (4 if site.has_partitions else 1)


@in_loop
async def test_the_groups_see_what_was_published_before_they_began(any_bus: Callable[[], Opening]) -> None:
    async with any_bus() as bus:
        await provision(bus, SETTINGS)
        groups = [
            (STREAMS.tasks, WORKERS, worker_options(SETTINGS)),
            (STREAMS.status, LEDGER_GROUP, ledger_options(STREAMS, 64)),
            (STREAMS.logs, LEDGER_GROUP, ledger_options(STREAMS, 64)),
        ]
        for stream, _, _ in groups:
            await bus.publish(stream.topic, stream.topic, key="job")
        came: asyncio.Queue[str] = asyncio.Queue()

        async def take(message: Message) -> None:
            came.put_nowait(message.text)

        for stream, group, options in groups:
            await bus.subscribe(stream.topic, group, take, options)
        assert {await came.get() for _ in groups} == {stream.topic for stream, _, _ in groups}


@in_loop
async def test_the_groups_are_there_before_anything_subscribes(tmp_path: Path) -> None:
    """So that retention that removes what they have not finished is counted, and said."""
    async with open_bus(driver="embedded", data=str(tmp_path / "bus")) as opened:
        await provision(opened, SETTINGS)
        await provision(opened, SETTINGS)
        topics = opened.native.broker.state.topics
        groups = {name: list(topic.groups) for name, topic in topics.items() if topic.groups}
    assert groups == {STREAMS.tasks.topic: [WORKERS], STREAMS.status.topic: [LEDGER_GROUP]}


@in_loop
async def test_operators_with_a_group_of_their_own_name_miss_nothing(tmp_path: Path) -> None:
    """The group that the table of the seed names for them is not that of the service."""
    async with laboratory(tmp_path) as lab:
        states: list[tuple[str, int]] = []

        async def take(message: Message) -> None:
            status = decode(JobStatus, message.data)
            states.append((status.job_id, status.state))

        await lab.service.bus.subscribe(STREAMS.status.topic, "operators", take)
        jobs = [await lab.submit({"a": "http://127.0.0.1:1/"}) for _ in range(5)]
        wanted = {(job, state) for job in jobs for state in (JobState.JOB_STATE_QUEUED, JobState.JOB_STATE_FAILED)}
        await lab.until(lambda: wanted <= set(states))
