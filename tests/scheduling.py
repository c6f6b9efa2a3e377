"""Tests that share a fixture run in a row on one worker of xdist; all others are distributed a few at a time.

Tests that start a Java of their own, and those on a cluster, run in turn on another worker than those of the Spark
session, which would be the last to end otherwise.

The groups of xdist 3.8 are not used: they rename tests, which pytest 9.2 ignores.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

GROUPS = {"cluster": "cluster", "connect": "cluster", "spark": "spark", "browser": "browser", "wheel": "wheel"}
"""Fixtures that take long to build, each with the group of the tests that use it."""
ORDER = ("spark", "browser", "cluster", "wheel")


TESTS_PER_UNIT = 8
"""The number of tests in a unit of work, where they share no fixture: small units keep all workers busy to the end."""


def group_of(item: pytest.Item) -> str | None:
    """Return the group of a test: by its fixtures, or by the mark `spark` if it starts a Java of its own."""
    fixtures = getattr(item, "fixturenames", ())
    found = next((group for name, group in GROUPS.items() if name in fixtures), None)
    return found or ("cluster" if item.get_closest_marker("spark") else None)


def shares_a_fixture(item: pytest.Item) -> bool:
    """Return whether the test uses a fixture of its class, module or package, which would be built again elsewhere."""
    info = getattr(item, "_fixtureinfo", None)
    found = info.name2fixturedefs.values() if info else ()
    return any(each.scope not in {"function", "session"} for fixtures in found for each in fixtures)


def weight(item: pytest.Item) -> int:
    """Return the place of a test in the run: the groups take longest and come first."""
    group = group_of(item)
    return len(ORDER) if group is None else ORDER.index(group)


def write_groups(file: Path, worker: str, items: Iterable[pytest.Item]) -> None:
    """Write the groups of a worker's tests, for the process that distributes them: it collects none itself."""
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.split("::", 1)[0]].append(item)
    groups: dict[str, str] = {}
    for module, tests in modules.items():
        is_one = any(map(shares_a_fixture, tests))
        for number, item in enumerate(tests):
            groups[item.nodeid] = group_of(item) or (module if is_one else f"{module} {number // TESTS_PER_UNIT}")
    written = file.with_suffix(f".{worker}")
    written.write_text(json.dumps(groups))
    written.rename(file)


class UnitsOfWork(LoadScopeScheduling):
    """Distributes units of work in the order in which the workers have collected their tests."""

    def __init__(self, config: pytest.Config, log: Any, groups: Path) -> None:
        super().__init__(config, log)
        self._file = groups

    @cached_property
    def _groups(self) -> dict[str, str]:
        groups: dict[str, str] = json.loads(self._file.read_text())
        return groups

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
