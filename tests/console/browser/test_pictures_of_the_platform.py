"""The picture of the overview: all parts, a demonstration, and a shop that is visited, for some minutes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.cli.platform import plain_environment, platform
from tests.console.browser.conftest import OpenPage, Picture
from tests.console.browser.scene import furnish, visited
from tests.server_process import ServerProcess

SEEN_S = 240
"""For so long something must have gone on, for a picture of the last ten minutes."""


@pytest.mark.timeout(900)
def test_overview(open_page: OpenPage, request: pytest.FixtureRequest, picture: Picture, tmp_path: Path) -> None:
    if request.config.getoption("--screenshots") is None:
        pytest.skip("nobody has asked for pictures: make screenshots")
    with platform(tmp_path) as up:
        up.wait_for("^open http")
        broker = ServerProcess(tmp_path)
        broker.port = int(up.part("broker").url.rpartition(":")[2])
        with contextlib.closing(broker.client), visited(broker):
            time.sleep(SEEN_S / 2)
            command = [sys.executable, "-m", "slipstream", "demo", "--data", str(tmp_path)]
            subprocess.run(command, env=plain_environment(), check=True, capture_output=True)
            furnish(broker)
            time.sleep(SEEN_S / 2)
            page = open_page(broker.base)
            expect(page.locator(".problem").first).to_be_visible()
            page.wait_for_timeout(1_500)  # for the next numbers
            picture(page, "console-overview")
            page.close()
