"""A web server that misbehaves, and only as it says."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from slipstream.demo.web import FILES, HOST, Web, sha256, write_files
from tests.client.loop import in_loop


@in_loop
async def test_it_misbehaves_once_and_then_is_fine(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    content, name = files[0].read_bytes(), files[0].name
    async with Web(tmp_path).serving() as web, aiohttp.ClientSession() as session:
        assert web.url.startswith(f"http://{HOST}:")

        async def get(way: str) -> tuple[int, bytes, str]:
            async with session.get(f"{web.url}/{way}/{name}") as response:
                return response.status, await response.read(), response.headers.get("Retry-After", "")

        assert await get("fine") == (200, content, "")
        assert await get("slow") == (200, content, "")
        assert (await get("down"))[0] == 503
        assert await get("down") == (200, content, "")
        assert (await get("busy"))[::2] == (503, "1")
        assert await get("busy") == (200, content, "")
        with pytest.raises(aiohttp.ClientPayloadError):
            await get("torn")
        assert await get("torn") == (200, content, "")
        assert [(await get("gone"))[0] for _ in range(2)] == [404, 404]


@in_loop
async def test_nothing_but_the_folder_is_served(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    write_files(tmp_path / "files")
    async with Web(tmp_path / "files").serving() as web, aiohttp.ClientSession() as session:
        for path in ("/fine/../secret", "/fine/%2e%2e/secret", "/secret", "/"):
            async with session.get(web.url + path) as response:
                assert response.status == 404


def test_the_files_are_the_same_every_time(tmp_path: Path) -> None:
    first, again = write_files(tmp_path), write_files(tmp_path)
    assert first == again
    assert len({sha256(path) for path in first}) == FILES
