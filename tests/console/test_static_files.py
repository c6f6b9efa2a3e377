"""The page itself."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from slipstream.console import Sources, create_console
from slipstream.console.static_files import FOLDER
from tests.client.loop import in_loop
from tests.console.site import Numbers, listening

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())

KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def test_there_is_a_page() -> None:
    assert FOLDER / "index.html" in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_nothing_comes_from_elsewhere_and_nothing_stands_in_the_page_itself(path: Path) -> None:
    """As the policy of the page demands."""
    text = path.read_text()
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", text)
    if path.suffix == ".html":
        assert not re.search(r"<script(?![^>]*\bsrc=)|\bstyle=|<style|\bon\w+=", text)


@in_loop
async def test_files_are_served_with_their_kind_and_asked_for_again() -> None:
    async with listening(create_console(Sources(Numbers()))) as url, aiohttp.ClientSession() as session:
        for path in FILES:
            async with session.get(f"{url}/console/{path.relative_to(FOLDER)}") as answer:
                assert answer.status == 200
                assert answer.headers["Content-Type"].startswith(KINDS[path.suffix])
                assert answer.headers["Cache-Control"] == "no-cache"
                assert await answer.read() == path.read_bytes()
                etag = answer.headers["ETag"]
            async with session.get(answer.url, headers={"If-None-Match": etag}) as again:
                assert (again.status, await again.read()) == (304, b"")


@in_loop
async def test_the_folder_is_its_page_and_nothing_beside_it_is_given_out() -> None:
    async with listening(create_console(Sources(Numbers()))) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/console", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (307, "/console/")
        async with session.get(f"{url}/console/") as answer:
            assert await answer.read() == (FOLDER / "index.html").read_bytes()
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        for name in ("../app.py", "%2e%2e/app.py", "nothing.js", "lib"):
            async with session.get(URL(f"{url}/console/{name}", encoded=True)) as answer:
                assert answer.status in {400, 404}
                assert (await answer.json())["request_id"] == answer.headers["X-Request-Id"]
        async with session.post(f"{url}/console/") as answer:
            assert (answer.status, (await answer.json())["error"]) == (405, "METHOD_NOT_ALLOWED")


@in_loop
async def test_a_browser_at_the_root_is_led_to_the_page_and_a_program_is_told() -> None:
    """On NATS this is the process that people open."""
    async with listening(create_console(Sources(Numbers()))) as url, aiohttp.ClientSession() as session:
        async with session.get(url, headers={"Accept": "text/html"}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (307, "/console/")
        async with session.get(url, headers={"Accept": "application/json"}) as answer:
            assert (answer.status, (await answer.json())["console"]) == (200, "/console/")
