"""Bundles in one process, without Spark: what is kept between them, and what goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipstream.bus import BusSettings
from slipstream.jobs.config import JobConfig
from slipstream.jobs.download.limits import Share
from slipstream.jobs.given_back import Past
from slipstream.jobs.handed import Handed
from slipstream.jobs.messages import DownloadTask, encode
from slipstream.jobs.task_runner import Ended, GivenBack
from slipstream.pipeline.downloads import station
from slipstream.pipeline.downloads.order import Answer, Broken, Cut, Left, Order, setup_of
from slipstream.pipeline.downloads.station import host_of, run_bundle
from tests.bus.sites import make_site
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop
from tests.jobs.hostile_server import HostileServer, hostile_server
from tests.jobs.lab import Lab, fast, laboratory


@pytest.fixture(autouse=True)
def no_station_is_left() -> Iterator[None]:
    yield
    if station._station is not None:
        station._station.close()
        station._station = None


def _handed(url: str, name: str = "a", **fields: Any) -> Handed:
    task = DownloadTask(job_id="j", resource_id=name, url=url)
    return Handed("fetchbox.jobs.tasks", name, "j", encode(task), 1, 0.0, **fields)


class Place:
    """Where bundles are done, and what they are about."""

    def __init__(self, folder: Path, bus: dict[str, Any], lab: Lab, server: HostileServer) -> None:
        self._folder = folder
        self._bus = BusSettings(**bus)
        self.lab = lab
        self.server = server

    async def run(self, tasks: list[Handed], shift_ms: int = 10_000, cut_ms: int = 0, **given: Any) -> Answer:
        return await bundle(self._folder, self._bus, tasks, shift_ms, cut_ms, **given)


async def bundle(
    folder: Path,
    bus: BusSettings,
    tasks: list[Handed],
    shift_ms: int = 10_000,
    cut_ms: int = 0,
    *,
    shares: dict[str, Share] | None = None,
    held_s: dict[str, float] | None = None,
    **given: Any,
) -> Answer:
    setup = setup_of(bus, fast(folder, **given), JobConfig(), 1)
    order = Order(setup, tasks, shares or {}, held_s or {}, shift_ms, cut_ms)
    data = await asyncio.to_thread(run_bundle, msgspec.msgpack.encode(order))
    return msgspec.msgpack.decode(data, type=Answer)


@contextlib.asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    with contextlib.closing(make_site("http")) as site:
        async with hostile_server() as server, laboratory(folder, worker=False, bus=site.settings()) as lab:
            yield Place(folder, site.settings(), lab, server)


@in_loop
async def test_each_task_has_its_report_in_their_order(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        tasks = [
            _handed(found.server.url("/ok/10"), "well"),
            _handed(found.server.url("/status/404"), "missing"),
            Handed("fetchbox.jobs.tasks", "m", "j", b"\xff garbage", 1, 0.0),
        ]
        reports = (await found.run(tasks)).reports
        assert [each.code for each in reports if isinstance(each, Ended)] == [
            "",
            "DOWNLOAD_HTTP_STATUS",
            "SYSTEM_MALFORMED_TASK",
        ]
        assert isinstance(reports[0], Ended)
        assert reports[0].size == 10
        assert {each.failure_code for each in await found.lab.letters()} == {
            "DOWNLOAD_HTTP_STATUS",
            "SYSTEM_MALFORMED_TASK",
        }


@in_loop
async def test_what_a_process_that_spark_lost_has_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark begins the bundle again by itself: for the bus it is still the first time."""
    async with place(tmp_path) as found:
        tasks = [_handed(found.server.url("/ok/10"))]
        await found.run(tasks)
        (key,) = found.lab.objects()
        left = tmp_path / "objects" / f"{key}#1"
        left.write_bytes(b"half")
        await found.run(tasks)
        assert left.exists(), "nobody has died, as far as anybody knows"
        monkeypatch.setattr(station, "TaskContext", Repeated)
        await found.run(tasks)
        assert not left.exists()


class Repeated:
    """Of a task that Spark runs for the second time."""

    @classmethod
    def get(cls) -> Repeated:
        return cls()

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's name
        return 1


@in_loop
async def test_connections_are_kept_from_bundle_to_bundle(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        for name in "abc":
            await found.run([_handed(found.server.url(f"/ok/{ord(name)}"), name)])
        assert (len(found.server.requests), found.server.connections) == (3, 1)
        await found.run([_handed(found.server.url("/ok/1"), "d")], max_attempts=2)
        assert found.server.connections == 2, "other settings are another station"


@in_loop
async def test_a_share_is_for_its_bundle(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        tasks = [_handed(found.server.url(f"/hold/{number}"), f"r{number}") for number in range(6)]
        running = asyncio.create_task(found.run(tasks, shares={"127.0.0.1": Share(2)}))
        await found.lab.until(lambda: found.server.running == 2)
        found.server.release.set()
        await running
        assert found.server.running_most == 2
        found.server.release.clear()
        running = asyncio.create_task(found.run(tasks))
        await found.lab.until(lambda: found.server.running == 6)
        found.server.release.set()
        await running


@in_loop
async def test_when_the_shift_is_over_nothing_is_begun(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        tasks = [_handed(found.server.url(f"/hold/{number}"), f"r{number}") for number in range(3)]
        running = asyncio.create_task(found.run(tasks, 50, shares={"127.0.0.1": Share(1)}))
        await found.lab.until(lambda: found.server.running == 1)
        asyncio.get_running_loop().call_later(0.1, found.server.release.set)
        reports = (await running).reports
        assert [type(report) for report in reports] == [Ended, Left, Left]


@in_loop
async def test_what_takes_too_long_is_cut(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        tasks = [_handed(found.server.url("/ok/1"), "fast"), _handed(found.server.url("/hold"), "slow")]
        reports = (await found.run(tasks, 1_000, 2_000)).reports
        assert [type(report) for report in reports] == [Ended, Cut]
        assert isinstance((await found.run([_handed(found.server.url("/ok/2"), "next")])).reports[0], Ended)


@in_loop
async def test_a_host_that_asked_to_wait_is_told_and_heard_of(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        answer = await found.run([_handed(found.server.url("/retry-after/60"), past=Past(1, 1))], hold_ms=100)
        [report] = answer.reports
        assert isinstance(report, GivenBack)
        assert (report.past.failed, report.delay_ms > 50_000) == (2, True)
        assert answer.held_s["127.0.0.1"] > 50
        held = await found.run([_handed("http://localhost:1/", "b")], held_s={"localhost": 90.0}, hold_ms=100)
        assert isinstance(held.reports[0], GivenBack), "nobody asks a host that is held elsewhere"


@in_loop
async def test_a_rate_is_handed_on(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        answer = await found.run([_handed(found.server.url("/ok/1"))], shares={"127.0.0.1": Share(0, 0.1)})
        assert answer.resting_s["127.0.0.1"] > 5


@in_loop
async def test_a_bus_that_cannot_be_reached_is_said_and_tried_again(tmp_path: Path) -> None:
    bus = BusSettings(driver="http", url=f"http://127.0.0.1:{free_port()}", connect_timeout_ms=100)
    for _ in range(2):
        [report] = (await bundle(tmp_path, bus, [_handed("http://127.0.0.1:1/")])).reports
        assert isinstance(report, Broken)
        assert "BusUnavailable" in report.why


def test_the_host_of_a_task_is_that_of_its_url() -> None:
    assert host_of(_handed("http://ada:secret@Example.ORG.:8080/x")) == "example.org"
    assert host_of(_handed("http://[::1")) == ""
    assert host_of(Handed("t", "i", "", b"\xff garbage", 1, 0.0)) == ""
