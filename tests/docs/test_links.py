"""Every link within the documentation leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, README, ROOT, anchors, prose


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        assert "://" not in target, f"{target} is not ours to keep"
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}, which has no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for target in re.findall(r"\]\(([^)#]+)", prose(page)):
            there = (page.parent / target).resolve()
            if there.suffix == ".md":
                waiting.append(there)
    assert {page.resolve() for page in PAGES} <= seen
