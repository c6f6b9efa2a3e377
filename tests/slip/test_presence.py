"""Heartbeats of workers, and what they say about a step that was taken."""

from __future__ import annotations

import msgspec

from slipstream.slip import clock, open_store
from slipstream.slip.presence import LOST_AFTER_MS, RECORD, Heartbeat, Presence, workers
from tests.client.loop import in_loop

DAY_MS = 24 * 3600 * 1000


@in_loop
async def test_a_worker_is_known_from_its_start_and_as_stopped_after_its_end() -> None:
    async with open_store(":memory:") as store:
        heartbeat = Heartbeat(store, "host:1", {"charge": "internal.charge.v1"}, DAY_MS)
        await heartbeat.start()
        running = (await workers(store))["host:1"]
        assert running.steps == {"charge": "internal.charge.v1"}
        assert running.is_running(clock.now_ms())
        assert not running.is_running(clock.now_ms() + LOST_AFTER_MS + 1000), "silence is taken for death"
        await heartbeat.stop()
        assert (await workers(store))["host:1"].stopped


@in_loop
async def test_two_workers_of_a_process_are_one_with_the_steps_of_both() -> None:
    async with open_store(":memory:") as store:
        one, two = Heartbeat(store, "host:1", {"a": "a.v1"}, DAY_MS), Heartbeat(store, "host:1", {"b": "b.v1"}, DAY_MS)
        await one.start()
        await two.start()
        assert (await workers(store))["host:1"].steps == {"a": "a.v1", "b": "b.v1"}
        await one.stop()
        assert not (await workers(store))["host:1"].stopped, "the other is still at work"
        await two.stop()
        assert (await workers(store))["host:1"].stopped


@in_loop
async def test_the_process_that_had_the_number_before_is_another() -> None:
    """A container that is restarted has the same host name, and its process the same number."""
    async with open_store(":memory:") as store:
        now_ms = clock.now_ms()
        dead = Presence(now_ms - DAY_MS, now_ms - 10 * LOST_AFTER_MS, {"a": "a.v1"})
        await store.put(RECORD, "host:1#1", msgspec.json.encode(dead), ttl_ms=DAY_MS)
        heartbeat = Heartbeat(store, "host:1", {"b": "b.v1"}, DAY_MS)
        await heartbeat.start()
        found = (await workers(store))["host:1"]
        assert found.began_ms >= now_ms
        assert found.steps == {"b": "b.v1"}
        await heartbeat.stop()


@in_loop
async def test_workers_that_died_long_ago_are_forgotten() -> None:
    async with open_store(":memory:") as store:
        long_ago = Presence(0, clock.now_ms() - 2 * DAY_MS)
        await store.put(RECORD, "host:7#1", msgspec.json.encode(long_ago), ttl_ms=100 * DAY_MS)
        heartbeat = Heartbeat(store, "host:1", {}, DAY_MS)
        await heartbeat.start()
        assert list(await workers(store)) == ["host:1"]
        await heartbeat.stop()
