"""What is done with one task, without anybody who takes it from a bus."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.jobs import task_runner
from slipstream.jobs.burials import Burials
from slipstream.jobs.clock import now_ms
from slipstream.jobs.config import JobConfig
from slipstream.jobs.download.fetch import Fetcher
from slipstream.jobs.failure import Code
from slipstream.jobs.given_back import Past
from slipstream.jobs.handed import Handed
from slipstream.jobs.messages import DownloadTask, encode
from slipstream.jobs.plan import Planner
from slipstream.jobs.reporter import Reporter
from slipstream.jobs.storage import Storages
from slipstream.jobs.task_runner import Ended, GivenBack, TaskRunner, host_named
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import Lab, fast, laboratory


@contextlib.asynccontextmanager
async def runner_of(lab: Lab, folder: Path, **given: Any) -> AsyncIterator[TaskRunner]:
    settings, bus = fast(folder, **given), lab.service.bus
    storages = Storages(settings.storage, JobConfig(), sync=False)
    async with Fetcher(settings) as fetcher, Reporter(bus, "fetchbox.jobs.logs").running() as reporter:
        burials = Burials(bus, "fetchbox.jobs.dlq", reporter)
        yield TaskRunner(bus, settings, Planner(JobConfig(), storages), fetcher, reporter, burials)
    storages.close()


def _handed(url: str, attempt: int = 1, **fields: Any) -> Handed:
    data = encode(DownloadTask(job_id="j", resource_id="a", url=url))
    return Handed("fetchbox.jobs.tasks", "0-0", "j", data, attempt, 0.0, **fields)


@in_loop
async def test_what_is_stored_has_ended(tmp_path: Path) -> None:
    async with (
        hostile_server() as server,
        laboratory(tmp_path, worker=False) as lab,
        runner_of(lab, tmp_path) as runner,
    ):
        ended = await runner.run(_handed(server.url("/ok/10")))
        assert isinstance(ended, Ended)
        assert (ended.code, ended.size) == ("", 10)
        assert (await lab.ended("j")).resources_completed == 1


@pytest.mark.parametrize("again", [{"attempt": 2}, {"is_repeated": True}])
@in_loop
async def test_what_one_who_was_killed_has_left_is_removed_when_it_is_handed_out_again(
    again: dict[str, Any], tmp_path: Path
) -> None:
    async with (
        hostile_server() as server,
        laboratory(tmp_path, worker=False) as lab,
        runner_of(lab, tmp_path) as runner,
    ):
        await runner.run(_handed(server.url("/ok/10")))
        (key,) = lab.objects()
        left = [tmp_path / "objects" / f"{key}#{number}" for number in (1, 2)]
        others = tmp_path / "objects" / f"{key}b#1"
        for path in (*left, others):
            path.write_bytes(b"half")
        await runner.run(_handed(server.url("/ok/10"), **again))
        assert not any(path.exists() for path in left)
        assert others.exists(), "somebody may be at that one"
        assert lab.objects() == [key]


@in_loop
async def test_what_is_buried_has_ended_with_its_code(tmp_path: Path) -> None:
    async with (
        hostile_server() as server,
        laboratory(tmp_path, worker=False) as lab,
        runner_of(lab, tmp_path, max_deliveries=3) as runner,
    ):
        for task, code in (
            (_handed(server.url("/status/404")), Code.DOWNLOAD_HTTP_STATUS),
            (_handed(server.url("/ok/10"), attempt=4), Code.SYSTEM_EXHAUSTED),
        ):
            ended = await runner.run(task)
            assert isinstance(ended, Ended)
            assert ended.code == code
        assert server.paths["/ok/10"] == 0


@in_loop
async def test_who_has_to_wait_for_long_is_given_back_with_the_attempts_so_far(tmp_path: Path) -> None:
    async with (
        hostile_server() as server,
        laboratory(tmp_path, worker=False) as lab,
        runner_of(lab, tmp_path, hold_ms=10) as runner,
    ):
        outcome = await runner.run(_handed(server.url("/retry-after/60"), past=Past(2, 1)))
        assert isinstance(outcome, GivenBack)
        assert (outcome.past, outcome.is_counted) == (Past(3, 1), True), "the host has used up the patience long ago"
        assert outcome.delay_ms >= 60_000


@in_loop
async def test_the_patience_with_a_host_begins_with_its_first_answer_and_is_not_all_spent_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(task_runner, "THROTTLED_S_MAX", 0.0)
    async with (
        hostile_server() as server,
        laboratory(tmp_path, worker=False) as lab,
        runner_of(lab, tmp_path) as runner,
    ):
        outcome = await runner.run(_handed(server.url("/retry-after/60"), past=Past(2)))  # published in 1970
        assert isinstance(outcome, GivenBack)
        assert (outcome.past.failed, outcome.is_counted) == (2, False)
        assert outcome.past.throttled_ms >= now_ms() - 60_000


def test_a_host_is_named_as_turns_are_given_out() -> None:
    assert host_named("http://Example.ORG.:80/x") == "example.org"
    assert host_named("http://[") == ""
