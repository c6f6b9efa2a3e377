"""The console in a real browser: Debian's Chromium, driven by Playwright.

    def test_a_topic_is_shown(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
        page = open_page(shared.base, "#/topics")
        expect(page.get_by_role("link", name=topic)).to_be_visible()

Whatever a page complains about fails its test: an exception, an error in the browser's console (a broken
Content-Security-Policy is one), a request that failed or was refused. A test that breaks things on purpose says
which of it is its own, with `tolerate`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from tests.console.browser.site import Site, running_site
from tests.run_services import RunServices

OpenPage = Callable[..., Page]
Picture = Callable[[Page, str], None]

ARGUMENTS = [
    "--no-sandbox",  # the tests may run as root, and open nothing but our own pages
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
]
PATIENCE_MS = 30_000
"""How long a page may take for what is expected of it: the machine is shared."""
DESK = (1280, 800)
PHONE = (390, 844)


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if found is None:
        pytest.skip("the console is looked at with Chromium, which is not installed: make browser")
    return found


@pytest.fixture(scope="package")
def browser(chromium: str, services: RunServices) -> Iterator[Browser]:
    """The browser of the run.

    It does not stay open for the whole session: while it is open this thread has an event loop that runs, and tests
    of other packages start their own.
    """
    services.build_once("browser")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Slips, jobs and tables, for those tests that look at them. Each names its own things in it."""
    with running_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def tolerate() -> list[str]:
    """Patterns of what the test breaks on purpose: `tolerate.append("ERR_CONNECTION_REFUSED")`."""
    return []


@pytest.fixture
def open_page(browser: Browser, tolerate: list[str]) -> Iterator[OpenPage]:
    """Opens pages: `open_page(server.base, "#/topics", size=PHONE, theme="dark")`. Each has nothing of another."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(base: str, place: str = "#/", *, size: tuple[int, int] = DESK, theme: str = "light") -> Page:
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            permissions=["clipboard-read", "clipboard-write"],
            locale="en-GB",
            timezone_id="UTC",
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        _hear(page, complaints)
        page.goto(f"{base}/console/{place}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    ours = [each for each in complaints if not any(re.search(pattern, each) for pattern in tolerate)]
    assert not ours, "the page complained:\n" + "\n".join(ours)


def _hear(page: Page, complaints: list[str]) -> None:
    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def on_failed(request: Request) -> None:
        # A stream that the page closes, or a question that it no longer wants answered.
        if request.failure != "net::ERR_ABORTED":
            complaints.append(f"{request.method} {request.url}: {request.failure}")

    def on_response(response: Response) -> None:
        if response.status >= 400:
            complaints.append(f"{response.request.method} {response.url}: {response.status}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    page.on("requestfailed", on_failed)
    page.on("response", on_response)


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Picture:
    """`picture(page, "console-topics")` leaves a picture of that name where `--screenshots DIRECTORY` says."""
    folder: str | None = request.config.getoption("--screenshots")

    def take(page: Page, name: str) -> None:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"{name}.png")

    return take


def is_wider_than_its_window(page: Page) -> bool:
    """Whether a person would have to scroll sideways."""
    found: bool = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return found
