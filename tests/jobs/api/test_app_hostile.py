"""What no honest client asks for: an answer that says so, and no error of the service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from slipstream.jobs.api import create_app
from tests.client.loop import in_loop
from tests.jobs.lab import laboratory, manifest

MANIFEST = manifest({"a": "http://127.0.0.1:1/"})


@contextlib.asynccontextmanager
async def api(folder: Path, token: str = "") -> AsyncIterator[httpx.AsyncClient]:
    async with laboratory(folder, worker=False, token=token) as lab:
        transport = httpx.ASGITransport(create_app(lab.service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            yield client


@pytest.mark.parametrize("path", ["/operators/replay", "/operators/cleanup"])
@pytest.mark.parametrize("body", [b"{", b"\xff", b"[]", b'{"x": 1}'])
@in_loop
async def test_a_body_that_is_no_request(tmp_path: Path, path: str, body: bytes) -> None:
    async with api(tmp_path) as client:
        answer = await client.post(path, content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_ARGUMENT")


@in_loop
async def test_a_body_without_an_end(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        assert (await client.post("/operators/replay", content=b" " * 6_000_000)).status_code == 413


@in_loop
async def test_numbers_that_nothing_has_room_for(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        assert (await client.get("/operators/jobs", params={"before": f"{10**30}.x"})).status_code == 400
        headers = {"x-fetchbox-job-type": "photos"}
        job_id = (await client.post("/jobs", content=MANIFEST, headers=headers)).json()["job_id"]
        answer = await client.get(f"/operators/jobs/{job_id}/logs", headers={"last-event-id": "9" * 5_000})
        assert answer.status_code == 200


@in_loop
async def test_a_tenant_is_found_again_in_any_script(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        headers = {b"x-fetchbox-job-type": b"photos", b"x-fetchbox-tenant": "Bäckerei 東".encode()}
        assert (await client.post("/jobs", content=MANIFEST, headers=headers)).status_code == 202
        [job] = (await client.get("/operators/jobs", params={"tenant": "Bäckerei 東"})).json()["jobs"]
        assert job["tenant"] == "Bäckerei 東"


@in_loop
async def test_a_token_of_any_script_opens(tmp_path: Path) -> None:
    async with api(tmp_path, token="geheim-ß") as client:
        headers = {b"authorization": "Bearer geheim-ß".encode()}
        assert (await client.get("/operators/jobs", headers=headers)).status_code == 200
        assert (await client.get("/operators/jobs", headers={b"authorization": b"Bearer \xff"})).status_code == 401
