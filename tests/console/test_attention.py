"""What the console remembers of problems, over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.api.overview import Acknowledgement, Problem
from slipstream.console.attention import RESOLVED_AFTER_MS, Attention
from tests.client.loop import in_loop

ADA = Acknowledgement(by="Ada", at_ms=5_000)


def problem(key: str = "dead letters orders", mark: int = 1) -> Problem:
    return Problem(level="warning", text=key, key=key, mark=mark)


def shown(attention: Attention, now_ms: int, *problems: Problem, is_complete: bool = True) -> list[tuple[str, str]]:
    """Return for each problem its key and who has acknowledged it."""
    found = attention.recall(problems, now_ms, is_complete=is_complete)
    return [(each.key, "" if each.acknowledged is None else each.acknowledged.by) for each in found]


def test_a_problem_stays_until_it_is_resolved_and_says_since_when_it_is_there() -> None:
    attention = Attention("")
    for now_ms in (1_000, 10**6, 10**9):
        (found,) = attention.recall([problem()], now_ms, is_complete=True)
        assert found.since_ms == 1_000


def test_an_acknowledged_problem_is_last_and_comes_back_when_it_gets_worse() -> None:
    attention = Attention("")
    one, other = problem("a", mark=3), problem("b")
    assert shown(attention, 0, one, other) == [("a", ""), ("b", "")]
    assert attention.acknowledge("a", ADA)
    assert shown(attention, 1, one, other) == [("b", ""), ("a", "Ada")]
    assert shown(attention, 2, problem("a", mark=2)) == [("a", "Ada")], "some are redriven"
    assert shown(attention, 3, problem("a", mark=3)) == [("a", "")], "and then there is a new one"


def test_an_acknowledgement_can_be_withdrawn_and_needs_a_problem() -> None:
    attention = Attention("")
    assert not attention.acknowledge("a", ADA)
    shown(attention, 0, problem("a"))
    attention.acknowledge("a", ADA)
    attention.acknowledge("a", None)
    assert shown(attention, 1, problem("a")) == [("a", "")]


def test_a_problem_that_happens_again_after_it_was_resolved_is_shown_again() -> None:
    attention = Attention("")
    shown(attention, 0, problem("a"))
    attention.acknowledge("a", ADA)
    shown(attention, 1_000)
    assert shown(attention, RESOLVED_AFTER_MS, problem("a")) == [("a", "Ada")], "it was away for a moment only"
    shown(attention, 100_000)
    shown(attention, 100_000 + RESOLVED_AFTER_MS)
    assert shown(attention, 200_000, problem("a")) == [("a", "")]


def test_what_cannot_be_asked_is_not_resolved() -> None:
    attention = Attention("")
    shown(attention, 0, problem("a"))
    attention.acknowledge("a", ADA)
    for now_ms in (0, 10**6, 10**7):
        shown(attention, now_ms, is_complete=False)
    assert shown(attention, 10**8, problem("a")) == [("a", "Ada")]


@in_loop
async def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "console.json")
    before = Attention(path)
    await before.open()
    shown(before, 7, problem("a", mark=4), problem("b"))
    before.acknowledge("a", ADA)
    await before.save({("orders", "billing"): 3_000})
    after = Attention(path)
    await after.open()
    assert after.still_since == {("orders", "billing"): 3_000}
    assert shown(after, 10**9, problem("a", mark=4), problem("b")) == [("b", ""), ("a", "Ada")]
    (found, _) = after.recall([problem("b"), problem("a", mark=4)], 10**9, is_complete=True)
    assert found.since_ms == 7
    assert shown(after, 10**9, problem("a", mark=5)) == [("a", "")]


@in_loop
async def test_a_file_that_cannot_be_used_is_logged_and_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "console.json"
    path.write_text("{nonsense")
    attention = Attention(str(path))
    await attention.open()
    assert "cannot be read, and acknowledged problems are shown again" in caplog.text
    away = Attention(str(path / "console.json"))  # below a file
    for now_ms in (1, 2):
        shown(away, now_ms, problem(str(now_ms)))
        await away.save({})
    assert caplog.text.count("cannot be written, and a restart forgets what was acknowledged") == 1
