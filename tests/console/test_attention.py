"""What the console remembers of problems, over restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from slipstream.api.overview import Acknowledgement, Problem
from slipstream.console.attention import RESOLVED_AFTER_MS, Attention
from slipstream.console.problems import BROKER, MARK_UNKNOWN, PARTS
from slipstream.console.watch import Still
from tests.client.loop import in_loop

ADA = Acknowledgement(by="Ada", at_ms=5_000)


def problem(key: str = "dead letters orders", mark: int = 1) -> Problem:
    return Problem(level="warning", text=key, key=key, mark=mark)


def shown(attention: Attention, now_ms: int, *problems: Problem, unseen: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return for each problem its key and who has acknowledged it."""
    found = attention.recall(problems, now_ms, unseen=unseen)
    return [(each.key, "" if each.acknowledged is None else each.acknowledged.by) for each in found]


def test_a_problem_stays_until_it_is_resolved_and_says_since_when_it_is_there() -> None:
    attention = Attention("")
    for now_ms in (1_000, 10**6, 10**9):
        (found,) = attention.recall([problem()], now_ms)
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
        shown(attention, now_ms, unseen={BROKER})
    assert shown(attention, 10**8, problem("a")) == [("a", "Ada")]


@pytest.mark.parametrize(
    ("unseen", "kept"),
    [("slips", {"slips stuck", "step charge"}), ("jobs", {"downloads"}), (PARTS, {"part jobs stopped"})],
)
def test_a_source_that_is_away_keeps_only_its_own_problems(unseen: str, kept: set[str]) -> None:
    keys = ["slips stuck", "step charge", "downloads", "part jobs stopped", "dead letters orders", "unseen tables"]
    attention, found = Attention(""), [problem(key) for key in keys]
    shown(attention, 0, *found)
    for key in keys:
        attention.acknowledge(key, ADA)
    for now_ms in (1, RESOLVED_AFTER_MS + 1):
        shown(attention, now_ms, unseen={unseen})
    assert {key for key, by in shown(attention, 10**6, *found) if by} == kept


def test_a_mark_that_is_not_known_yet_changes_nothing() -> None:
    attention = Attention("")
    shown(attention, 0, problem("a", mark=1))
    attention.acknowledge("a", ADA)
    assert shown(attention, 1, problem("a", mark=MARK_UNKNOWN)) == [("a", "Ada")]
    assert shown(attention, 2, problem("a", mark=1)) == [("a", "Ada")]
    (new,) = attention.recall([problem("b", mark=MARK_UNKNOWN)], 3)
    assert new.mark == 0


@in_loop
async def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "console.json")
    before = Attention(path)
    await before.open()
    shown(before, 7, problem("a", mark=4), problem("b"))
    before.acknowledge("a", ADA)
    await before.save({("orders", "billing"): Still(3_000, 7)})
    after = Attention(path)
    await after.open()
    assert after.still == {("orders", "billing"): Still(3_000, 7)}
    assert shown(after, 10**9, problem("a", mark=4), problem("b")) == [("b", ""), ("a", "Ada")]
    (found, _) = after.recall([problem("b"), problem("a", mark=4)], 10**9)
    assert found.since_ms == 7
    assert shown(after, 10**9, problem("a", mark=5)) == [("a", "")]


@in_loop
async def test_the_last_of_several_saves_at_once_is_what_stays(tmp_path: Path) -> None:
    attention = Attention(str(tmp_path / "console.json"))
    saves = []
    for number in range(10):
        shown(attention, number, problem(str(number)))
        saves.append(asyncio.ensure_future(attention.save({})))
        await asyncio.sleep(0)
    await asyncio.gather(*saves)
    assert [path.name for path in tmp_path.iterdir()] == ["console.json"]
    after = Attention(str(tmp_path / "console.json"))
    await after.open()
    assert after.acknowledge("9", ADA)


@in_loop
async def test_a_file_of_an_earlier_version_keeps_what_is_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "console.json"
    path.write_text(
        '{"problems":{"a":{"since_ms":7,"mark":1,"acknowledged":{"by":"Ada","at_ms":5000}}},'
        '"groups":{"orders":{"billing":3000}}}'
    )
    attention = Attention(str(path))
    await attention.open()
    assert shown(attention, 8, problem("a")) == [("a", "Ada")]
    assert attention.still == {}, "it is not known whether the group has moved"


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
