"""The pages of the documentation, taken apart: fenced blocks, sections, tables, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from scripts import generate_docs

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
QUICK_START = ROOT / "docs" / "quick-start.md"
HOW_TO = ROOT / "docs" / "how-to"
FIRST_MINUTE = ROOT / "docs" / "first-minute.md"
TOUR = ROOT / "docs" / "tour.md"
FROM_DRIFTQ = ROOT / "docs" / "from-driftq.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
OPERATIONS = ROOT / "docs" / "operations.md"
CLIENT = ROOT / "docs" / "client.md"
BUS = ROOT / "docs" / "bus.md"
SLIPS = ROOT / "docs" / "slips.md"
MESSAGING = ROOT / "docs" / "messaging.md"
JOBS = ROOT / "docs" / "jobs.md"
CONSOLE = ROOT / "docs" / "console.md"
PIPELINE = ROOT / "docs" / "pipeline.md"
METRICS = ROOT / "docs" / "metrics.md"
OBSERVABILITY = ROOT / "docs" / "observability.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
TESTING = ROOT / "docs" / "testing.md"
GENERATED = [ROOT / "docs" / name for name in generate_docs.PAGES]
TOPICS_OF_V2 = [page for page in sorted((ROOT / "docs" / "v2").glob("*.md")) if page not in GENERATED]
"""The pages about `/v2`, without its reference."""
ABOUT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES = [*ABOUT, *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    line: str
    output: str


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks in one language."""
    return [text for found, text in fences(page.read_text()) if found == language]


def fences(text: str) -> list[tuple[str, str]]:
    """All fenced blocks, in order: (language, text)."""
    return [(found[1], found[2]) for found in _FENCE.finditer(text)]


def commands(block: str) -> list[Command]:
    """A console block: lines that start with `$`, and go on after a backslash, each with what it printed."""
    found = re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    return [Command(each[1], each[2]) for each in found]


def is_program(fragment: str) -> bool:
    """Whether a block of Python is a file of its own: it starts with its name, `# worker.py`."""
    return re.match(r"# \w+\.py\n", fragment) is not None


def prose(page: Path) -> str:
    """Everything but the fenced blocks."""
    return _FENCE.sub("", page.read_text())


def section(page: Path, title: str) -> str:
    """From a heading to the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", page.read_text(), re.MULTILINE)
    assert found, f"{page.name} has no section {title!r}"
    rest = page.read_text()[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in it, without their heads."""
    found = [line.strip("| ").split(" | ") for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    rules = [number for number, cells in enumerate(found) if set("".join(cells)) <= set("-|")]
    skipped = {*rules, *(number - 1 for number in rules)}
    return [cells for number, cells in enumerate(found) if number not in skipped]


def quoted(text: str) -> set[str]:
    """What stands in `backticks`."""
    return set(re.findall(r"`([^`\n]+)`", text))


def anchors(page: Path) -> set[str]:
    """The names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
