"""Download jobs in the console: asked of the real service, with its token."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import open_bus
from slipstream.console import Sources, create_console
from slipstream.console.answers import Refused
from slipstream.console.jobs import Jobs
from slipstream.console.problems import Seen
from slipstream.jobs.server import listening as jobs_listening
from slipstream.jobs.service import serving
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, events, listening
from tests.jobs.hostile_server import HostileServer, hostile_server
from tests.jobs.lab import Lab, fast

TOKEN = "of-the-operators"


class Site:
    def __init__(self, url: str, lab: Lab, files: HostileServer, jobs: Jobs) -> None:
        self.url = url
        self.lab = lab
        self.files = files
        self.jobs = jobs

    async def ended(self, *paths: str) -> str:
        """A job that downloads these."""
        job_id = await self.lab.submit({f"r{number}": self.files.url(path) for number, path in enumerate(paths)})
        await self.lab.ended(job_id)
        return job_id


@contextlib.asynccontextmanager
async def looking(folder: Path, token: str = TOKEN) -> AsyncIterator[Site]:
    async with (
        hostile_server() as files,
        open_bus(driver="memory", registry=CollectorRegistry()) as bus,
        serving(bus=bus, worker=True, settings=fast(folder, token=TOKEN, port=0, max_attempts=1)) as service,
        jobs_listening(service) as service_url,
    ):
        jobs = Jobs(service_url, token, is_expected=lambda: True)
        console = create_console(Sources(Numbers(), jobs=jobs))
        try:
            async with listening(console) as url:
                yield Site(url, Lab(service, folder), files, jobs)
                console.stop()
        finally:
            await console.close()


@in_loop
async def test_jobs_are_listed_and_shown_as_the_service_has_them(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        job_id = await site.ended("/ok/100", "/status/404")
        _, page, headers = await ask(f"{site.url}/v2/jobs?limit=5", headers={"Authorization": "Basic of-a-browser"})
        assert [job["job_id"] for job in page["jobs"]] == [job_id]
        assert page["counts"]["partial"] == 1
        assert headers["X-Request-Id"]
        _, job, _ = await ask(f"{site.url}/v2/jobs/{job_id}")
        assert (job["state"], len(job["resources"])) == ("partial", 2)
        _, letters, _ = await ask(f"{site.url}/v2/job-dead-letters?job_id={job_id}")
        assert (letters["total"], letters["letters"][0]["resource_id"]) == (1, "r1")
        status, answer, _ = await ask(f"{site.url}/v2/job-replays", "POST", json={"select": {"job_id": job_id}})
        assert (status, len(answer["letters"])) == (200, 1)


@in_loop
async def test_logs_are_streamed_and_go_on_behind_the_last_one_seen(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        job_id = await site.ended("/ok/100", "/ok/100")
        lines: list[tuple[int, Any]] = []
        async with aiohttp.ClientSession() as session, session.get(f"{site.url}/v2/jobs/{job_id}/logs") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            offset = -1
            async for line in answer.content:
                field, _, text = line.decode().strip().partition(": ")
                offset = int(text) if field == "id" else offset
                if field == "data":
                    lines.append((offset, json.loads(text)))
        assert len(lines) >= 2
        assert all(line["job_id"] == job_id for _, line in lines)
        rest = events(f"{site.url}/v2/jobs/{job_id}/logs", Last_Event_ID=str(lines[0][0]))
        assert [line async for _, line in rest] == [line for _, line in lines[1:]]


@in_loop
async def test_a_log_that_is_followed_arrives_while_the_job_goes_on(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        job_id = await site.lab.submit({"held": site.files.url("/hold"), "quick": site.files.url("/ok/100")})
        followed = events(f"{site.url}/v2/jobs/{job_id}/logs?follow=true")
        name, first = await anext(followed)
        assert (name, first["job_id"]) == ("log", job_id)
        job = site.lab.service.ledger.job(job_id)
        assert job is None or not job.is_ended
        site.files.release.set()
        async for _ in followed:
            pass  # it ends with the job
        assert (await site.lab.ended(job_id)).state == "completed"


@in_loop
async def test_what_the_service_refuses_is_said_in_the_consoles_form(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        for path, method, status in (
            ("/v2/jobs/nobody", "GET", 404),
            ("/v2/jobs?limit=0", "GET", 400),
            ("/v2/job-replays", "POST", 400),
            ("/v2/jobs", "DELETE", 405),
            ("/v2/jobs/x", "POST", 405),
        ):
            found, answer, headers = await ask(f"{site.url}{path}", method)
            assert found == status, path
            assert isinstance(answer["error"], str)
            assert answer["message"]
            assert answer["request_id"] == headers["X-Request-Id"]


@in_loop
async def test_a_token_that_is_wrong_is_said_to_whoever_runs_the_console(tmp_path: Path) -> None:
    async with looking(tmp_path, token="another") as site:
        status, answer, _ = await ask(f"{site.url}/v2/jobs")
        assert (status, answer["error"]) == (401, "UNAUTHORIZED")
        assert "JOBS_TOKEN" in answer["message"]
        with pytest.raises(Refused):
            await site.jobs.look(Seen(now_ms=0))


@in_loop
async def test_jobs_that_failed_are_a_problem_and_jobs_are_found(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.ended("/ok/100")
        assert await site.jobs.look(Seen(now_ms=0)) == Seen(now_ms=0)
        failed = await site.ended("/status/404")
        seen = (await site.jobs.look(Seen(now_ms=0))).jobs
        assert (seen.dead_letters, seen.newest_id) == (1, failed)
        assert seen.newest_reason
        for text in (failed, failed[-12:]):
            _, answer, _ = await ask(f"{site.url}/v2/search?q={text}")
            assert answer["hits"] == [{"kind": "job", "text": failed, "link": f"#/jobs/{failed}"}]


@in_loop
async def test_a_service_that_is_away_is_told_where_somebody_counts_on_it() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert await Jobs(url, "", is_expected=lambda: False).look(Seen(now_ms=0)) == Seen(now_ms=0)
    jobs = Jobs(url, "", is_expected=lambda: True)
    with pytest.raises(Refused, match="no service answers"):
        await jobs.look(Seen(now_ms=0))
    console = create_console(Sources(Numbers(), jobs=jobs))
    async with listening(console) as here:
        status, answer, _ = await ask(f"{here}/v2/jobs")
        assert (status, answer["error"]) == (503, "UNAVAILABLE")
        assert "slipstream jobs serve" in answer["message"]
        _, answer, _ = await ask(f"{here}/v2/search?q=anything")
        assert answer["hits"] == [], "one that is away keeps the others from nothing"
    await console.close()
