"""Producers that know nothing of Slipstream publish tasks, and workers store what they name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.sites.http import HttpSite
from tests.bus.sites.nats import NatsSite
from tests.bus.sites.site import Site
from tests.cli.job_site import Jobs, Web, environment, running, until, web_server
from tests.forked import run

EXAMPLES = Path(__file__).parents[2] / "examples" / "jobs"


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as made:
        yield made


def produce(example: str, server: str, url: str) -> str:
    """The job's id, that it prints."""
    command = [sys.executable, str(EXAMPLES / example), server, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()[0]


@pytest.mark.parametrize(("example", "kind"), [("produce_v2.py", HttpSite), ("produce_nats.py", NatsSite)])
def test_what_it_publishes_is_downloaded_stored_and_counted(
    example: str, kind: type[HttpSite | NatsSite], tmp_path: Path, web: Web
) -> None:
    site: HttpSite | NatsSite = kind()
    try:
        bus = site.environment()
        provision(tmp_path, site)
        server = site.server.base if isinstance(site, HttpSite) else site.url
        early = produce(example, server, f"{web.url}/ok/early")
        with running(tmp_path, "serve", "--port", "0", **bus) as service, running(tmp_path, "worker", **bus) as worker:
            late = produce(example, server, f"{web.url}/ok/late")
            failing = produce(example, server, f"{web.url}/gone/x")
            for job_id, name in ((early, "early"), (late, "late")):
                stored = tmp_path / "objects" / "resources" / "photos" / job_id / "cat"
                until(stored.exists)
                assert stored.read_text() == f"this is /ok/{name}"
            jobs = Jobs(service.url)
            until(lambda: len(jobs.lines("list")) == 3)
            (letter,) = until(lambda: jobs.lines("dlq", "list", "--job", failing))
            assert (letter["code"], letter["resource_id"]) == ("DOWNLOAD_HTTP_STATUS", "cat")
            assert jobs.lines("logs", late)[0]["fields"]["step"] == "started"
            worker.stop()
            service.stop()
    finally:
        site.close()


def provision(directory: Path, site: Site) -> None:
    command = [sys.executable, "-m", "slipstream", "jobs", "provision"]
    run(command, env=environment(directory, **site.environment()), cwd=directory, check=True)
