"""Which run is shown, and how."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest

from slipstream.pipeline.looking import Tables
from slipstream.pipeline.report.lineage import NoSuchRun, lineage
from slipstream.pipeline.report.seen import Seen
from tests.pipeline.sample_tables import END, make_all, make_table

SECOND = dt.timedelta(seconds=1)


def shown(root: Path, wanted: str | None = None) -> str:
    return lineage(Seen(Tables(root), dt.timedelta(days=1), END), wanted).body


def labels(body: str) -> list[tuple[int, str]]:
    """How far each row is indented, and what it says, on a screen."""
    wide = body.partition('class="narrow"')[0]
    found = re.findall(r'<text x="(\d+)" y="\d+"(?: class="strong")?>([^<]*)</text>', wide)
    return [(int(x) // 16, text) for x, text in found]


def run(slip: str, number: int, begun: int, **more: Any) -> dict[str, Any]:
    times = {"begun_at": END + begun * SECOND, "last_at": END + (begun + 5) * SECOND}
    return {"correlation_id": slip, "run": number, "parent": "", "state": "under way", "events": 1, **times, **more}


def step(slip: str, number: int, name: str, attempt: int, began: int, **more: Any) -> dict[str, Any]:
    times = {"began_at": END + began * SECOND, "ended_at": END + (began + 1) * SECOND, "last_at": END + began * SECOND}
    same = {"correlation_id": slip, "run": number, "step": name, "attempt": attempt, "state": "done"}
    return {**same, "duration_ms": 1000.0, **times, **more}


def test_a_run_that_failed_is_shown_with_its_branches_where_they_began(tmp_path: Path) -> None:
    make_all(tmp_path)
    body = shown(tmp_path)
    assert labels(body) == [
        (0, "order-1"),
        (1, "validate"),
        (1, "charge #1"),
        (1, "charge #2"),
        (1, "prepare"),
        (2, "papers"),
        (3, "invoice"),
        (2, "warehouse"),
        (3, "reserve"),
        (3, "pick"),
        (1, "notify"),
    ]
    assert "planned, not reached" in body
    assert "It failed at prepare: no_address: the order has no address." in body


def test_the_run_that_is_wanted_is_shown(tmp_path: Path) -> None:
    make_all(tmp_path)
    assert labels(shown(tmp_path, "order-2")) == [(0, "order-2"), (1, "validate")]
    assert labels(shown(tmp_path, "order-1/papers")) == [(0, "papers"), (1, "invoice")]
    with pytest.raises(NoSuchRun, match="nothing is known of the run o'rder-3"):
        shown(tmp_path, "o'rder-3")


def test_a_rerun_stands_under_the_run_before_it(tmp_path: Path) -> None:
    make_table(tmp_path, "slip_runs", [run("s", 0, 0, ended_at=END + SECOND), run("s", 1, 10, steps=["a", "b"])])
    make_table(
        tmp_path, "slip_steps", [step("s", 0, "a", 0, 0), step("s", 1, "a", 0, 10, state="working", ended_at=None)]
    )
    body = shown(tmp_path, "s")
    assert labels(body) == [(0, "s, run 1"), (1, "a"), (0, "s, run 2"), (1, "a"), (1, "b")]
    assert "planned</text>" in body


def test_a_slip_that_is_its_own_branch_does_not_go_on_for_ever(tmp_path: Path) -> None:
    make_table(tmp_path, "slip_runs", [run("a", 0, 0, parent="b"), run("b", 0, 0, parent="a")])
    assert labels(shown(tmp_path, "a")) == [(0, "a"), (2, "b")]


def test_where_only_branches_are_left_they_are_shown(tmp_path: Path) -> None:
    make_table(tmp_path, "slip_runs", [run("s/b", 0, 0, parent="s", branch="b"), run("s/c", 1, 1, parent="s")])
    make_table(tmp_path, "slip_steps", [step("s/b", 0, "a", 0, 0)])
    body = shown(tmp_path, "s")
    assert labels(body) == [(0, "b"), (1, "a"), (0, "s/c")]
    assert "itself the tables have nothing any more" in body


def test_runs_whose_beginning_nobody_knows_are_shown(tmp_path: Path) -> None:
    branch = run("s/b", 0, 3, parent="s", begun_at=None)
    make_table(tmp_path, "slip_runs", [run("s", 0, 0, begun_at=None), run("s", 1, 9, begun_at=None), branch])
    make_table(tmp_path, "slip_steps", [step("s", 0, "a", 0, 0), step("s", 0, "b", 0, 5, began_at=None, ended_at=None)])
    assert (2, "s/b") in labels(shown(tmp_path, "s"))


def envelope(name: str, parent: str, at: int) -> dict[str, Any]:
    times = {"first_at": END + at * SECOND, "last_at": END + (at + 1) * SECOND}
    same = {"origin": "envelope", "run_id": "r", "parent_run_id": "", "topic": "t", "messages": 2}
    return {**same, "step_id": name, "parent_step_id": parent, **times}


def test_what_messages_carry_in_their_envelopes_is_a_tree(tmp_path: Path) -> None:
    rows = [envelope("b", "a", 1), envelope("a", "", 0), envelope("c", "a", 3), envelope("d", "b", 2)]
    make_table(tmp_path, "run_lineage", [*rows, envelope("lost", "elsewhere", 4)])
    for body in (shown(tmp_path), shown(tmp_path, "r")):
        assert labels(body) == [(0, "a"), (1, "b"), (2, "d"), (1, "c"), (0, "lost")]
        assert "5 steps that messages carry in their envelopes, over 5 s" in body


def test_a_circle_of_steps_is_opened_somewhere(tmp_path: Path) -> None:
    make_table(tmp_path, "run_lineage", [envelope("a", "b", 0), envelope("b", "a", 1), envelope("c", "c", 2)])
    assert labels(shown(tmp_path)) == [(0, "a"), (1, "b"), (0, "c")]


def test_where_nothing_was_told_it_is_said(tmp_path: Path) -> None:
    make_table(tmp_path, "stuck_slips")
    assert "No run was told of yet" in shown(tmp_path)
