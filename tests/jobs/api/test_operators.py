"""The operators' API over a socket: jobs, logs as events, health, replay and cleanup."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from slipstream.jobs.client import JobsClient, ServiceError, ServiceUnreachable
from slipstream.jobs.clock import now_ms
from slipstream.jobs.dead_letters import Selection
from slipstream.jobs.messages import DownloadTask, JobLog, JobState, JobStatus, encode, from_json
from slipstream.jobs.server import listening
from tests.client.loop import in_loop
from tests.jobs.hostile_server import HostileServer, hostile_server
from tests.jobs.lab import Lab, laboratory, manifest


class Site:
    def __init__(self, lab: Lab, url: str, session: aiohttp.ClientSession, server: HostileServer) -> None:
        self.lab = lab
        self.url = url
        self.session = session
        self.server = server

    async def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
        method = "GET" if data is None else "POST"
        async with self.session.request(method, f"{self.url}/operators/{path}", data=data, headers=headers) as answer:
            assert answer.content_type == "application/json", await answer.read()
            return answer.status, json.loads(await answer.read())

    async def events(self, path: str, **headers: str) -> list[tuple[int, JobLog]]:
        async with self.session.get(f"{self.url}/operators/{path}", headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            return parse(await answer.text())


def parse(text: str) -> list[tuple[int, JobLog]]:
    found = []
    for event in filter(None, text.split("\n\n")):
        if not event.startswith(":"):
            fields = dict(line.split(": ", 1) for line in event.split("\n"))
            assert fields["event"] == "log"
            found.append((int(fields["id"]), from_json(JobLog, fields["data"])))
    return found


@contextlib.asynccontextmanager
async def site(folder: Path, **given: Any) -> AsyncIterator[Site]:
    async with (
        hostile_server() as server,
        laboratory(folder, port=0, **given) as lab,
        listening(lab.service) as url,
        aiohttp.ClientSession() as session,
    ):
        yield Site(lab, url, session, server)


@in_loop
async def test_a_service_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.jobs.client.ANSWER_S", 0.01)
    released = asyncio.Event()

    async def mute(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with JobsClient(f"http://127.0.0.1:{port}") as jobs:
            for question in (jobs.jobs, lambda: jobs.job("j"), jobs.health):
                with pytest.raises(ServiceUnreachable, match="takes connections and does not answer"):
                    await question()
        released.set()


@in_loop
async def test_jobs_are_listed_by_state_tenant_and_type_in_pages(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        jobs = []
        for number in range(5):
            path = "/ok/1" if number % 2 else "/status/404"
            tenant = "shop" if number < 3 else ""
            jobs.append(await it.lab.submit({"a": it.server.url(path)}, tenant=tenant))
            await it.lab.ended(jobs[-1])
        found: list[str] = []
        following: str | None = ""
        while following is not None:
            status, page = await it.ask(f"jobs?limit=2&before={following}")
            assert status == 200
            found += [job["job_id"] for job in page["jobs"]]
            following = page["next"]
        assert found == jobs[::-1]
        assert page["counts"] == {"completed": 2, "failed": 3}
        _, page = await it.ask("jobs?state=failed&tenant=shop&type=crawl")
        assert [job["job_id"] for job in page["jobs"]] == [jobs[2], jobs[0]]
        _, page = await it.ask("jobs?type=photos")
        assert page["jobs"] == []


BAD = [
    "jobs?limit=0",
    "jobs?limit=x",
    "jobs?limit=1001",
    "jobs?state=odd",
    "jobs?colour=red",
    "jobs?before=x",
    f"jobs?before={'9' * 30}.a",
    f"jobs?before={'9' * 5000}.a",
    "jobs/known?resources=perhaps",
    "jobs/known/logs?since_offset=-1",
    f"jobs/known/logs?since_offset={'9' * 30}",
    "jobs/known/logs?limit=0",
    "jobs/known/logs?follow=perhaps",
    "dlq?since_ms=x",
    "dlq?limit=0",
]


@in_loop
async def test_what_cannot_be_meant_is_400_and_what_is_not_there_404(tmp_path: Path) -> None:
    async with site(tmp_path, worker=False, max_manifest_bytes=500_000) as it:
        status = JobStatus(job_id="known", resources_total=1)
        await it.lab.service.ledger.fold_status(status)
        for path in BAD:
            code, answer = await it.ask(path)
            assert (code, answer["error"]["code"]) == (400, "INVALID_ARGUMENT"), path
            assert answer["error"]["message"]
        bodies = [
            b"{",
            b"[]",
            b"\xff",
            b'{"select": {"job_id": "\xff"}}',
            b"[" * 100_000,
            b'{"select": 5}',
            b'{"x": 1}',
        ]
        for data in bodies:
            for path in ("replay", "cleanup"):
                code, answer = await it.ask(path, data)
                assert (code, answer["error"]["code"]) == (400, "INVALID_ARGUMENT"), (path, data[:20])
        assert (await it.ask("cleanup", b"{}"))[0] == 400, "how old is not said"
        assert (await it.ask("replay", b" " * 500_001))[0] == 413
        for path in ("jobs/unknown", "jobs/unknown/logs", "jobs/%00", "jobs/a%2Fb", "nothing"):
            assert (await it.ask(path))[0] == 404, path
        assert (await it.ask("jobs", b"{}"))[0] == 405


@in_loop
async def test_a_job_with_any_name_can_be_looked_at(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        for name in ("a/b", "ü ?#", ".."):
            task = DownloadTask(job_id=name, resource_id="a", url=it.server.url("/ok/1"))
            await it.lab.service.bus.publish("fetchbox.jobs.tasks", encode(task), key=name)
            await it.lab.ended(name)
        async with JobsClient(it.url) as client:
            for name in ("a/b", "ü ?#"):
                job = await client.job(name)
                assert (job.job_id, [each.resource_id for each in job.resources]) == (name, ["a"])
                assert len([log async for log in client.logs(name)]) == 3


@in_loop
async def test_logs_are_events_that_are_replayed_exactly_from_any_offset(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        others = await it.lab.submit({"x": it.server.url("/ok/1")})
        job_id = await it.lab.submit({"a": it.server.url("/flaky/1/a"), "b": it.server.url("/status/404")})
        for job in (others, job_id):
            await it.lab.ended(job)
        logs = await it.events(f"jobs/{job_id}/logs")
        assert [log for _, log in logs] == await it.lab.logs(job_id)
        assert len(logs) == 6
        offsets = [offset for offset, _ in logs]
        assert offsets == sorted(set(offsets))
        for number, offset in enumerate(offsets):
            assert await it.events(f"jobs/{job_id}/logs?since_offset={offset}") == logs[number:]
            assert await it.events(f"jobs/{job_id}/logs?since_offset={offset}&limit=2") == logs[number : number + 2]
            assert await it.events(f"jobs/{job_id}/logs", **{"Last-Event-ID": str(offset)}) == logs[number + 1 :]
        assert await it.events(f"jobs/{job_id}/logs?since_offset={offsets[0]}", **{"Last-Event-ID": "99"}) == logs
        for nonsense in ("x", "-5", "9" * 30):
            assert await it.events(f"jobs/{job_id}/logs", **{"Last-Event-ID": nonsense}) == logs
        assert await it.events(f"jobs/{job_id}/logs?since_offset={2**53}") == []
        assert await it.events(f"jobs/{job_id}/logs?follow=true") == logs


@in_loop
async def test_logs_are_followed_until_the_job_has_ended(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        job_id = await it.lab.submit({"a": it.server.url("/hold")})
        following = asyncio.create_task(it.events(f"jobs/{job_id}/logs?follow=true"))
        await it.server.arrived.wait()
        assert not following.done()
        it.server.release.set()
        logs = await following
        assert [log.fields["step"] for _, log in logs] == ["started", "downloaded", "stored"]


@in_loop
async def test_a_job_of_which_others_tell_and_nobody_logs_can_be_followed_to_its_end(tmp_path: Path) -> None:
    async with site(tmp_path, worker=False) as it:
        status = JobStatus(job_id="theirs", resources_total=1, timestamp_ms=now_ms())
        await it.lab.service.ledger.fold_status(status)
        assert await it.events("jobs/theirs/logs") == []
        async with it.session.get(f"{it.url}/operators/jobs/theirs/logs?follow=true") as answer:
            assert answer.status == 200, "it is answered at once"
            status.resources_completed, status.timestamp_ms = 1, now_ms() + 1
            status.state = JobState.JOB_STATE_COMPLETED
            await it.lab.service.ledger.fold_status(status)
            assert parse(await answer.text()) == []


@in_loop
async def test_health_is_503_when_a_part_is_down(tmp_path: Path) -> None:
    async with site(tmp_path, worker=False) as it:
        code, health = await it.ask("health")
        parts = {"bus", "storage", "ledger", "listener", "tasks"}
        assert (code, health["status"], set(health["parts"])) == (200, "ok", parts)
        shutil.rmtree(tmp_path / "objects")
        code, health = await it.ask("health")
        assert (code, health["status"], health["parts"]["storage"]["status"]) == (503, "down", "down")
        assert health["parts"]["storage"]["reason"]
        assert health["parts"]["bus"]["status"] == "ok"
        (tmp_path / "objects").mkdir()
        assert (await it.ask("health"))[0] == 200
        await it.lab.service.bus.close()
        code, health = await it.ask("health")
        assert (code, health["parts"]["bus"]["status"]) == (503, "down")


@in_loop
async def test_operators_need_the_token_where_there_is_one(tmp_path: Path) -> None:
    async with site(tmp_path, worker=False, token="open sesame") as it:
        paths = ("health", "jobs", "jobs/x", "jobs/x/logs", "dlq")
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "open sesame"},
            {"Authorization": "\xff"},
        ):
            for path in paths:
                code, answer = await it.ask(path, None, **headers)
                assert (code, answer["error"]["code"]) == (401, "UNAUTHORIZED")
            for path in ("replay", "cleanup", "rebuild"):
                assert (await it.ask(path, b"{}", **headers))[0] == 401
        assert (await it.ask("health", Authorization="Bearer open sesame"))[0] == 200
        with pytest.raises(ServiceError, match="JOBS_TOKEN"):
            async with JobsClient(it.url) as client:
                await client.submit("photos", manifest({"a": "http://127.0.0.1:1/"}))
        async with JobsClient(it.url, token="open sesame") as client:
            assert (await client.health()).status == "ok"
        async with JobsClient(it.url) as client:
            with pytest.raises(ServiceError, match="JOBS_TOKEN"):
                await client.jobs()


@in_loop
async def test_dead_letters_are_replayed_by_job_code_tenant_and_time(tmp_path: Path) -> None:
    async with site(tmp_path, max_attempts=1) as it, JobsClient(it.url) as client:
        shop = await it.lab.submit({"a": it.server.url("/flaky/1/a"), "b": it.server.url("/flaky/1/b")}, tenant="shop")
        other = await it.lab.submit({"c": it.server.url("/flaky/1/c"), "d": "http://127.0.0.1:1/"})
        for job in (shop, other):
            await it.lab.ended(job)
        letters = (await client.dead_letters(Selection())).letters
        assert sorted(letter.resource_id for letter in letters) == ["a", "b", "c", "d"]
        late = max(letter.failed_at_ms for letter in letters) + 1
        for selection, expected in (
            (Selection(job_id=shop), ["a", "b"]),
            (Selection(tenant="shop", resource_id="a"), ["a"]),
            (Selection(code="DOWNLOAD_CONNECT"), ["d"]),
            (Selection(code="DOWNLOAD_"), ["a", "b", "c", "d"]),
            (Selection(since_ms=late), []),
            (Selection(until_ms=late), ["a", "b", "c", "d"]),
            (Selection(job_type="photos"), []),
        ):
            dealt = await client.replay(selection, dry_run=True)
            assert sorted(letter.resource_id for letter in dealt.letters) == expected
            assert dealt.dry_run
        assert len(await it.lab.tasks()) == 4, "a dry run does nothing"
        assert len((await client.replay(Selection(tenant="shop"))).letters) == 2
        await it.lab.until(lambda: it.lab.service.ledger.job(shop).state == "completed")  # type: ignore[union-attr]
        again = [task for task in await it.lab.tasks() if task.tenant == "shop"][2:]
        assert [task.attempt for task in again] == [0, 0]
        assert (await client.replay(Selection(tenant="shop"))).letters == [], "once"
        assert len((await client.replay(Selection(code="DOWNLOAD_CONNECT"), discard=True)).letters) == 1
        left = (await client.dead_letters(Selection())).letters
        assert [letter.resource_id for letter in left] == ["c"]
        every = (await client.dead_letters(Selection(dealt_with=True))).letters
        assert {letter.resource_id: letter.became for letter in every} == {
            "a": "replayed",
            "b": "replayed",
            "c": "",
            "d": "discarded",
        }


@in_loop
async def test_of_a_resource_with_several_dead_letters_one_replay_is_enough(tmp_path: Path) -> None:
    async with site(tmp_path) as it, JobsClient(it.url) as client:
        task = encode(DownloadTask(job_id="j", resource_id="a", url=it.server.url("/status/404")))
        for _ in range(2):
            await it.lab.service.bus.publish("fetchbox.jobs.tasks", task, key="j")
        await it.lab.buried(2)
        with pytest.raises(ServiceError, match="nothing is selected"):
            await client.replay(Selection())
        dealt = await client.replay(Selection(), everything=True)
        assert (len(dealt.letters), dealt.skipped) == (1, 1)
        await it.lab.buried(3)
        left = (await client.dead_letters(Selection())).letters
        assert len(left) == 1, "that of the replay"


@in_loop
async def test_cleanup_removes_what_is_old_and_says_before_what_it_would(tmp_path: Path) -> None:
    config = tmp_path / "jobs.toml"
    config.write_text(
        f'[storages.archive]\nurl = "{tmp_path}/archive"\n[types.archived]\nstorage = "archive"\n[types.crawl]\n'
    )
    async with site(tmp_path, config=str(config)) as it, JobsClient(it.url) as client:
        for job_type in ("crawl", "archived"):
            await it.lab.ended(await it.lab.submit({"a": it.server.url("/ok/1")}, job_type))
        await it.lab.until(lambda: not it.lab.service.ledger.untold())
        assert (await client.cleanup(3600_000, objects=True)).jobs == 0
        before = it.lab.objects()
        dry = await client.cleanup(0, objects=True, dry_run=True)
        assert (dry.jobs, dry.objects, dry.dry_run) == (2, 4, True)
        assert it.lab.objects() == before
        assert len(list((tmp_path / "archive").rglob("a"))) == 1
        done = await client.cleanup(0, objects=True)
        assert (done.jobs, done.objects) == (2, 4)
        assert [
            path for root in ("objects", "archive") for path in (tmp_path / root).rglob("*") if path.is_file()
        ] == []
        assert (await client.jobs()).jobs == []
