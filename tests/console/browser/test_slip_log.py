"""The log of a slip on its page: what the parts of a platform have said about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.cli.platform import plain_environment, platform
from tests.console.browser.conftest import OpenPage

LIGHT = ("--without", "pipeline", "--without", "jobs", "--without", "downloads")


def test_what_the_parts_logged_of_a_slip_stands_under_its_steps(open_page: OpenPage, tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT) as up:
        up.wait_for("^open http")
        broker = up.part("broker").url
        command = ["slip", "submit", "chat.message.v1", '{"text": "", "userId": "u-1"}', "--id", "c-1"]
        environment = plain_environment(
            MESSAGE_BUS_DRIVER="http", SLIPSTREAM_URL=broker, SLIP_STORE=str(tmp_path / "slips.db")
        )
        subprocess.run([sys.executable, "-m", "slipstream", *command], env=environment, check=True)
        up.wait_for("c-1 is a dead letter")
        page = open_page(broker, "#/slips/c-1")
        log = page.get_by_role("region", name="Log")
        expect(log).to_contain_text("slips  ")
        expect(log).to_contain_text("a message without words")
        expect(log).to_contain_text("correlationId=c-1")
        page.close()
