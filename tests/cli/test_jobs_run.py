"""`slipstream jobs run`, `serve` and `worker` as processes, on the broker inside and on NATS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.sites.nats import NatsSite
from tests.cli.job_site import Jobs, Web, environment, running, until, web_server
from tests.forked import run


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with web_server() as made:
        yield made


def ended(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipstream", "jobs", *arguments]
    return run(command, cwd=directory, env=environment(directory, **variables))


def refused(directory: Path, *arguments: str, **variables: str) -> str:
    done = ended(directory, *arguments, **variables)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    return done.stderr


def test_all_of_it_in_one_process_stores_and_remembers_what_it_did(tmp_path: Path, web: Web) -> None:
    with running(tmp_path, "run", "--port", "0", "--concurrency", "4") as process:
        assert "on the embedded bus, with a worker of 4 downloads at a time" in process.said
        jobs = Jobs(process.url)
        job_id = jobs.submit(f"{web.url}/ok/a.txt", f"{web.url}/ok/b.txt", f"{web.url}/gone/c.txt")
        found = jobs.json("status", job_id, "--wait", expect=1)
        assert (found["state"], found["resources_completed"], found["resources_failed"]) == ("partial", 2, 1)
        process.stop()
    assert (tmp_path / "objects" / "resources" / "photos" / job_id / "a.txt").read_text() == "this is /ok/a.txt"

    with running(tmp_path, "run", "--port", "0") as process:
        found = Jobs(process.url).json("status", job_id)
        assert (found["state"], found["resources_completed"]) == ("partial", 2)
        process.stop()


def test_it_is_killed_in_the_middle_and_the_next_one_goes_on(tmp_path: Path, web: Web) -> None:
    slow = [f"{web.url}/slow/{number}" for number in range(5)]
    short = {"JOBS_ACK_DEADLINE_MS": "1000", "JOBS_HOST_CONCURRENCY": "6"}
    with running(tmp_path, "run", "--port", "0", **short) as process:
        job_id = Jobs(process.url).submit(*slow, f"{web.url}/ok/first")
        until(lambda: Jobs(process.url).json("status", job_id)["resources_completed"] == 1)
        process.process.kill()
    web.go.set()
    with running(tmp_path, "run", "--port", "0", **short) as process:
        assert Jobs(process.url).json("status", job_id, "--wait")["resources_completed"] == 6


def test_a_service_and_two_workers_share_a_bus(tmp_path: Path, web: Web) -> None:
    nats = NatsSite()
    try:
        bus = nats.environment() | {"JOBS_ACK_DEADLINE_MS": "2000"}  # of the one that is killed
        provisioned = ended(tmp_path, "provision", **bus)
        assert "+ fetchbox.jobs.tasks: created" in provisioned.stdout, provisioned.stderr
        again = ended(tmp_path, "provision", **bus).stdout
        assert again.count("nothing to change") == 5
        assert "partitions: 1, though 8 is wanted: not to be had here" in again
        with running(tmp_path, "serve", "--port", "0", **bus) as service:
            jobs = Jobs(service.url)
            job_id = jobs.submit(*(f"{web.url}/ok/{number}" for number in range(40)))
            assert jobs.json("status", job_id)["state"] == "queued", "there is no worker yet"
            with running(tmp_path, "worker", **bus) as one, running(tmp_path, "worker", **bus) as other:
                assert jobs.json("status", job_id, "--wait")["resources_completed"] == 40
                job_id = jobs.submit(*(f"{web.url}/ok/{number}" for number in range(40)))
                one.process.kill()
                assert jobs.json("status", job_id, "--wait")["resources_completed"] == 40, "the other does it all"
                other.stop()
            service.stop()
    finally:
        nats.close()


def test_what_cannot_run_is_said(tmp_path: Path) -> None:
    assert "out of reach of a worker elsewhere" in refused(tmp_path, "serve")
    assert "out of reach of the service elsewhere" in refused(tmp_path, "worker")
    assert "gone.toml cannot be read" in refused(tmp_path, "run", "--config", "gone.toml")
    assert "JOBS_MAX_ATTEMPTS" in refused(tmp_path, "run", JOBS_MAX_ATTEMPTS="none")
    with running(tmp_path, "run", "--port", "0") as process:
        port = process.url.rpartition(":")[2]
        elsewhere = {"SLIPSTREAM_DATA": str(tmp_path / "other"), "JOBS_LEDGER": str(tmp_path / "other.db")}
        assert "cannot be listened at" in refused(tmp_path, "run", "--port", port, **elsewhere)
    unreachable = ended(
        tmp_path, "provision", MESSAGE_BUS_DRIVER="nats", NATS_URL="nats://127.0.0.1:9", BUS_CONNECT_TIMEOUT_MS="500"
    )
    assert unreachable.returncode == 5, unreachable.stderr


def test_provisioning_says_what_it_made_and_what_it_changed(tmp_path: Path) -> None:
    assert ended(tmp_path, "provision").stdout.splitlines() == [
        "+ fetchbox.jobs.tasks: created: partitions 8, time 7 d, size 100 GB",
        "+ fetchbox.jobs.status: created: partitions 4, time 14 d, size no limit",
        "+ fetchbox.jobs.logs: created: partitions 4, time 30 d, size no limit",
        "+ fetchbox.jobs.dlq: created: partitions 2, time 90 d, size no limit",
        "+ fetchbox.jobs.control: created: partitions 1, time 90 d, size no limit",
    ]
    assert ended(tmp_path, "provision").stdout.count("nothing to change") == 5
