"""What goes to executors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from slipstream.bus import BusSettings
from slipstream.jobs.config import JobConfig, StorageConfig
from slipstream.jobs.settings import JobSettings
from slipstream.pipeline.downloads.order import Setup, setup_of


def _setup(jobs: JobSettings, config: JobConfig | None = None, slots: int = 3) -> Setup:
    return msgspec.msgpack.decode(setup_of(BusSettings(driver="nats"), jobs, config or JobConfig(), slots), type=Setup)


def test_what_a_worker_may_do_at_a_time_is_shared_out() -> None:
    found = _setup(JobSettings(concurrency=32, max_in_flight=300, host_concurrency=2, host_rate_per_s=6)).jobs
    assert (found.concurrency, found.max_in_flight) == (11, 100)
    assert (found.host_concurrency, found.host_rate_per_s) == (1, 2), "for hosts that nobody has planned for"


def test_no_limit_stays_none() -> None:
    found = _setup(JobSettings(host_concurrency=0)).jobs
    assert (found.host_concurrency, found.host_rate_per_s) == (0, 0)


def test_who_has_to_wait_for_longer_than_a_shift_does_so_in_the_stream() -> None:
    assert _setup(JobSettings(hold_ms=30_000, spark_shift_ms=5_000)).jobs.hold_ms == 5_000


def test_a_folder_is_meant_from_where_the_driver_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = JobConfig(storages={"near": StorageConfig(url="near"), "far": StorageConfig(url="s3://far")})
    found = _setup(JobSettings(storage="objects"), config)
    assert found.jobs.storage == str(tmp_path / "objects")
    assert [found.config.storages[name].url for name in ("near", "far")] == [str(tmp_path / "near"), "s3://far"]


def test_the_keys_of_the_object_store_go_along_and_the_token_of_the_service_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("UNRELATED", "not sent")
    found = _setup(JobSettings(token="of the service"))
    assert found.environment["AWS_SECRET_ACCESS_KEY"] == "s3cret"
    assert "UNRELATED" not in found.environment
    assert found.jobs.token == ""
