"""The driver: limits of hosts across all that run, tasks that kill their process, and those that take long."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slipstream.bus import BusError, open_bus
from slipstream.jobs.config import JobConfig
from slipstream.jobs.controls import Held
from slipstream.jobs.failure import Code
from slipstream.jobs.messages import decode_task
from slipstream.jobs.task_runner import Ended
from slipstream.pipeline.downloads.order import Answer, Left, Order, Report
from slipstream.pipeline.downloads.station import run_bundle
from slipstream.pipeline.downloads.worker import RunOrder, SparkWorker
from slipstream.pipeline.tasks import run_tasks
from tests.bus.sites import make_site
from tests.client.loop import in_loop, in_loop_for
from tests.jobs.hostile_server import HostileServer, hostile_server
from tests.jobs.lab import Lab, fast, laboratory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
DELIVERIES = 9


def _on(spark: SparkSession, order: bytes) -> bytes:
    return run_tasks(spark, run_bundle, [order])[0]


def _on_some_that_die(spark: SparkSession, order: bytes) -> bytes:
    return run_tasks(spark, die_of_poison, [order])[0]


def die_of_poison(data: bytes) -> bytes:
    """A process that is at the end of its memory has no last words."""
    order = msgspec.msgpack.decode(data, type=Order)
    for task in order.tasks:
        if decode_task(task.data).resource_id == "poison" and task.attempt <= DELIVERIES:
            os._exit(1)
    return run_bundle(data)


@contextlib.asynccontextmanager
async def at_work(folder: Path, run_order: RunOrder, **given: Any) -> AsyncIterator[tuple[Lab, HostileServer]]:
    with contextlib.closing(make_site("http")) as site:
        async with (
            hostile_server() as server,
            laboratory(folder, worker=False, bus=site.settings()) as lab,
            open_bus(**site.settings()) as bus_of_worker,
            SparkWorker(fast(folder, **given), JobConfig(), run_order, SLOTS).running(bus_of_worker),
        ):
            yield lab, server


@in_loop
async def test_the_limit_of_a_host_holds_for_all_bundles_together(spark: SparkSession, tmp_path: Path) -> None:
    async with at_work(tmp_path, functools.partial(_on, spark), host_concurrency=3) as (lab, server):
        job_id = await lab.submit({f"r{number}": server.url(f"/hold/{number}") for number in range(12)})
        await lab.until(lambda: server.running == 3)
        server.release.set()
        assert (await lab.ended(job_id)).state == "completed"
        assert server.running_most == 3


@in_loop_for(240)
async def test_a_task_that_kills_its_process_is_a_dead_letter_and_the_others_are_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_order = functools.partial(_on_some_that_die, spark)
    async with at_work(tmp_path, run_order, max_deliveries=DELIVERIES) as (lab, server):
        urls = {f"r{number}": server.url(f"/ok/{number}") for number in range(20)}
        job = await lab.ended(await lab.submit({**urls, "poison": server.url("/ok/666")}))
        assert (job.resources_completed, job.resources_failed) == (20, 1)
        assert lab.resources(job.job_id)["poison"].error_code == Code.SYSTEM_EXHAUSTED
        assert server.paths["/ok/666"] == 0


@in_loop
async def test_a_download_that_takes_long_keeps_no_others_waiting(spark: SparkSession, tmp_path: Path) -> None:
    given = {"spark_shift_ms": 100, "spark_cut_ms": 300, "spark_bundle": 4, "host_concurrency": 8}
    async with at_work(tmp_path, functools.partial(_on, spark), **given) as (lab, server):
        slow = await lab.submit({f"s{number}": server.url(f"/hold/{number}") for number in range(4)})
        await lab.until(lambda: server.running == 4)
        job = await lab.ended(await lab.submit({f"r{number}": server.url(f"/ok/{number}") for number in range(40)}))
        assert job.state == "completed", "while the others are still under way"
        await lab.until(lambda: any(server.paths[f"/hold/{number}"] == 2 for number in range(4)))
        server.release.set()
        assert (await lab.ended(slow)).state == "completed"


@in_loop
async def test_a_host_that_asked_one_process_to_wait_is_asked_by_none(spark: SparkSession, tmp_path: Path) -> None:
    async with at_work(tmp_path, functools.partial(_on, spark), hold_ms=100, host_concurrency=1) as (lab, server):
        first = await lab.submit({"first": server.url("/retry-after/600")})
        while "retry" not in [log.fields["step"] for log in await lab.logs(first)]:
            await asyncio.sleep(0.01)
        await lab.submit({f"r{number}": server.url(f"/ok/{number}/waits") for number in range(50)})
        others = {f"r{number}": server.url(f"/ok/{number}/other", host="localhost") for number in range(50)}
        assert (await lab.ended(await lab.submit(others))).state == "completed"
        assert [request.path for request in server.requests if "127.0.0.1" in request.headers["host"]] == [
            "/retry-after/600"
        ]


@in_loop
async def test_what_was_not_begun_is_given_back_at_the_end_and_done_by_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    with contextlib.closing(make_site("http")) as site:
        async with (
            hostile_server() as server,
            laboratory(tmp_path, worker=False, bus=site.settings()) as lab,
            open_bus(**site.settings()) as bus,
        ):
            settings = fast(tmp_path, host_concurrency=1, spark_shift_ms=200)
            worker = SparkWorker(settings, JobConfig(), functools.partial(_on, spark), SLOTS)
            async with worker.running(bus):
                job_id = await lab.submit({f"r{number}": server.url(f"/hold/{number}") for number in range(20)})
                await lab.until(lambda: server.running == 1)
                asyncio.get_running_loop().call_later(0.3, server.release.set)  # while it is being stopped
            asked = len(server.requests)
            assert asked < 20
            again = SparkWorker(fast(tmp_path), JobConfig(), functools.partial(_on, spark), SLOTS)
            async with again.running(bus):
                assert (await lab.ended(job_id)).resources_completed == 20
            assert len(server.requests) == 20, "what was under way was finished, and nothing done twice"


class Executors:
    """A cluster that holds each bundle until it is let go, and stores nothing."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.release = threading.Event()

    def run(self, data: bytes) -> bytes:
        order = msgspec.msgpack.decode(data, type=Order)
        self.asked.append([decode_task(task.data).resource_id for task in order.tasks])
        self.release.wait()
        reports: list[Report] = [Left() if number else Ended() for number in range(len(order.tasks))]
        return msgspec.msgpack.encode(Answer(reports))


@contextlib.asynccontextmanager
async def without_spark(folder: Path, executors: Executors, **given: Any) -> AsyncIterator[tuple[Lab, SparkWorker]]:
    async with laboratory(folder, worker=False) as lab:
        worker = SparkWorker(fast(folder, **given), JobConfig(), executors.run, 1)
        async with worker.running(lab.service.bus):
            try:
                yield lab, worker
            finally:
                executors.release.set()


def _dropped(lab: Lab, held: Held) -> float:
    """Return how many tasks were ended as cancelled, or given back for later."""
    registry = lab.service.bus.registry
    assert registry is not None
    if held == "cancelled":
        return registry.get_sample_value("jobs_tasks_total", {"outcome": "cancelled", "code": ""}) or 0
    labels = {"driver": lab.service.bus.driver, "topic": "fetchbox.jobs.tasks", "event": "postponed"}
    return registry.get_sample_value("messages_total", labels) or 0


@in_loop
async def test_a_worker_that_cannot_subscribe_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def away(*_: object) -> None:
        raise BusError("away")

    async with laboratory(tmp_path, worker=False) as lab:
        monkeypatch.setattr(lab.service.bus, "subscribe", away)
        before = len(asyncio.all_tasks())
        with pytest.raises(BusError):
            async with SparkWorker(fast(tmp_path), JobConfig(), Executors().run, 1).running(lab.service.bus):
                pass
        assert len(asyncio.all_tasks()) == before
        await lab.until(lambda: not any(each.name.startswith("slipstream-bundles") for each in threading.enumerate()))


@pytest.mark.parametrize("held", ["cancelled", "paused"])
@in_loop
async def test_what_is_in_hand_of_a_job_that_is_held_is_not_downloaded(held: Held, tmp_path: Path) -> None:
    executors = Executors()
    async with without_spark(tmp_path, executors) as (lab, worker):
        running = await lab.submit({"a": "http://a/", "b": "http://a/"})
        await lab.until(lambda: len(executors.asked) == 1)
        waiting = await lab.submit({"c": "http://b/", "d": "http://b/"})
        await lab.until(lambda: len(worker._waiting) + len(executors.asked[0]) == 4)
        for job_id in (running, waiting):
            await lab.service.control(job_id, held)
        await lab.until(lambda: len(worker._waiting) == 0)
        executors.release.set()
        await lab.until(lambda: _dropped(lab, held) >= 3)
        assert len(executors.asked) == 1, "what a bundle has left is not begun by another"


@in_loop
async def test_hosts_that_never_answer_leave_room_for_others(tmp_path: Path) -> None:
    executors = Executors()
    given = {"max_in_flight": 16, "spark_bundle": 2, "host_concurrency": 1}
    async with without_spark(tmp_path, executors, **given) as (lab, worker):
        for host in "ab":
            await lab.submit({f"{host}{number}": f"http://{host}/" for number in range(20)})
        await lab.until(lambda: _dropped(lab, "paused") >= 20)
        await lab.until(lambda: len(worker._waiting) <= 8)
