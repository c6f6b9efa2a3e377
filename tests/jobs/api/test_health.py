from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import httpx

from slipstream.jobs.api import create_app
from tests.jobs.lab import Lab, laboratory


async def asked(lab: Lab, path: str) -> tuple[int, Any]:
    transport = httpx.ASGITransport(create_app(lab.service))
    async with httpx.AsyncClient(transport=transport, base_url="http://jobs") as client:
        response = await client.get(path)
        return response.status_code, response.json()


def test_it_is_live_and_ready_without_a_token_and_says_what_is_down(tmp_path: Path) -> None:
    async def run(token: str) -> Any:
        folder = tmp_path / (token or "open")
        folder.mkdir()
        async with laboratory(folder, token=token) as lab:
            assert await asked(lab, "/health/live") == (200, {"status": "live"})
            assert await asked(lab, "/health/ready") == (200, {"status": "ready"})
            shutil.rmtree(folder / "objects")
            (folder / "objects").write_text("no folder any more")
            status, answer = await asked(lab, "/health/ready")
            assert (status, answer["status"]) == (503, "waiting")
            assert await asked(lab, "/health/live") == (200, {"status": "live"})
            return answer["reason"]

    assert str(tmp_path) in asyncio.run(run(""))
    assert asyncio.run(run("secret")) == "storage down: GET /operators/health says why, to who has the token"
