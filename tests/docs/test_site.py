"""The site of the documentation: it is built as `make docs` does, has every page, and comes from nowhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import site_pages
from tests.docs.pages import ABOUT, ROOT, anchors

CONFIGURATION = ROOT / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(CONFIGURATION), "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def listed(nav: Any) -> Iterator[str]:
    """The pages of the navigation, in its order."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from listed(each)


def test_every_page_has_one_place_in_the_navigation() -> None:
    nav = list(listed(site_pages.expanded(yaml.safe_load(CONFIGURATION.read_text())["nav"])))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    others = [f"repository/{page.name}" for page in ABOUT if page.name != "README.md"]
    assert sorted(nav) == sorted([*pages, *others])


def test_what_pages_link_to_outside_of_docs_is_on_the_site(site: Path) -> None:
    assert "Apache License" in (site / "repository" / "LICENSE" / "index.html").read_text()
    worker = (site / "repository" / "examples" / "worker.py" / "index.html").read_text()
    assert "def " in re.sub("<[^>]+>", "", worker)
    for path in site_pages.outside():
        there = site / Path(site_pages.place(path)).with_suffix("")
        assert (there / "index.html").exists() or (there.parent / "index.html").exists(), path


class Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in {"src", "href"} and value is not None:
                self.found.append(value)
            if name == "id" and value is not None:
                self.names.add(value)


def addresses(page: Path) -> Addresses:
    parser = Addresses()
    parser.feed(page.read_text())
    return parser


def test_nothing_comes_from_elsewhere_and_every_link_leads_to_a_file(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for address in addresses(page).found:
            assert not re.match(r"\w+:|//", address), f"{page.relative_to(site)} wants {address}"
            there = page.parent / address.partition("#")[0]
            assert there.exists(), f"{page.relative_to(site)} leads to {address}"


def test_headings_have_the_names_that_they_have_in_the_repository(site: Path) -> None:
    for name in ("protocol", "runbook", "slips", "operations", "concepts"):
        there = addresses(site / name / "index.html").names
        assert anchors(ROOT / "docs" / f"{name}.md") <= there


def test_markdown_means_the_same_on_the_site_as_in_the_repository(site: Path) -> None:
    """A list or a table that follows a line of text at once is one in the repository, and was text on the site."""
    for page in site.rglob("index.html"):
        paragraphs = re.findall(r"<p>(.*?)</p>", page.read_text(), re.DOTALL)
        lost = [text for text in paragraphs if re.search(r"^(?:[-*] |\d+\. |\||#+ |```)", text, re.MULTILINE)]
        assert not lost, f"{page.relative_to(site)}: {lost[0][:200]}"


@pytest.mark.parametrize(
    ("source", "markdown", "expected"),
    [
        ("docs/bus.md", "[a](../examples/worker.py)", "[a](repository/examples/worker.py.md)"),
        ("docs/how-to/redrive.md", "[a](../../README.md#start)", "[a](../repository/README.md#start)"),
        ("docs/README.md", "[a](adr/)", "[a](adr/README.md)"),
        ("README.md", "![a](docs/images/parts.svg)", "![a](../images/parts.svg)"),
        ("README.md", "[a](docs/bus.md#engines) [b](LICENSE)", "[a](../bus.md#engines) [b](LICENSE.md)"),
        ("docs/bus.md", "[a](nowhere.md) [b](#engines)", "[a](nowhere.md) [b](#engines)"),
        ("docs/bus.md", "```sh\n[a](../README.md)\n```", "```sh\n[a](../README.md)\n```"),
    ],
)
def test_a_link_is_written_once_for_both(source: str, markdown: str, expected: str) -> None:
    assert site_pages.rewritten(markdown, ROOT / source) == expected


def test_the_index_of_decisions_lists_all_of_them_by_their_titles() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    rows = dict(re.findall(r"^\| \[(.+)\]\((\d.+\.md)\) \|", index, re.MULTILINE))
    titles = {path.read_text().partition("\n")[0].removeprefix("# "): path.name for path in decisions()}
    assert rows == titles


def decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))


def test_pictures_can_be_read_in_the_dark_and_without_eyes() -> None:
    for name in ("life-of-a-message", "slip", "parts", "once"):
        picture = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
        assert "prefers-color-scheme: dark" in picture
        assert re.search(r'role="img" aria-label="[^"]{40,}"', picture)
        assert f"images/{name}.svg" in (ROOT / "docs" / "concepts.md").read_text()
