"""Every page about `/v2` is run from top to bottom on a server of its own, and shows what really happens."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.examples import examples, run_page
from tests.docs.pages import HOW_TO, ROOT, TESTING, TOPICS_OF_V2, blocks, is_program
from tests.server_process import ServerProcess

PAGES = [*TOPICS_OF_V2, TESTING]


def each_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages speak curl")
@each_page(PAGES)
def test_the_page_goes_as_it_says(page: Path, server: ServerProcess, tmp_path: Path) -> None:
    run_page(page, server, tmp_path)


@each_page(TOPICS_OF_V2)
def test_the_page_shows_curl_the_client_and_the_command_line(page: Path) -> None:
    shown = [(example.language, example.text) for example in examples(page)]
    assert any(language == "console" and "curl" in text for language, text in shown), "no curl"
    assert any(language == "python" for language, _ in shown), "no Python"


@each_page([TESTING, HOW_TO / "test-your-workers.md"])
def test_the_test_file_passes(page: Path, tmp_path: Path) -> None:
    files = [block for block in blocks(page, "python") if is_program(block)]
    for block in files:
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    plain = ("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:timeout")
    command = [sys.executable, "-m", "pytest", "-q", *plain, str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    count = sum(block.count("\ndef test_") for block in files)
    assert count >= 2
    assert f"{count} passed" in result.stdout, result.stdout + result.stderr


def test_a_page_has_examples() -> None:
    assert len(TOPICS_OF_V2) >= 8
    assert all(len(examples(page)) >= 2 for page in PAGES)
