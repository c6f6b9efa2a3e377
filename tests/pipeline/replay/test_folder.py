"""Where replays are kept, and what is found there by who comes after."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slipstream.pipeline.replay import Asked, PassedOver, ReplayBusy, Replays, ReplayUnreadable
from slipstream.pipeline.replay.folder import REPLAYS, Replay
from slipstream.pipeline.replay.plan import Part, Reached

QUESTION = Asked(table="messages", where="offset < 3", to="orders")


def composed(replays: Replays, question: Asked = QUESTION) -> Replay:
    with replays.composing(question) as place:
        (place.path / "part-00000-a.parquet").write_bytes(b"rows")
        return place.plan((Part("part-00000-a.parquet", 3),), {"messages": 7}, 1)


def test_the_same_question_finds_its_replay_and_another_does_not(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    assert replays.newest(QUESTION) is None
    made = composed(replays)
    found = replays.newest(QUESTION)
    assert found is not None
    assert found.plan == made.plan
    assert (found.plan.count, found.plan.left_out, found.plan.versions) == (3, 1, {"messages": 7})
    assert replays.newest(Asked(table="messages", where="offset < 4", to="orders")) is None


def test_of_several_the_newest_is_found_and_each_has_a_name_of_its_own_at_the_broker(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    first, second = composed(replays), composed(replays)
    found = replays.newest(QUESTION)
    assert found is not None
    assert found.plan.id == second.plan.id
    assert first.plan.writer != second.plan.writer


def test_how_far_it_is_and_that_it_is_finished_is_known_to_who_comes_after(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    made = composed(replays)
    assert made.reached == Reached()
    made.reach(Reached(2, {"rerun": 2}))
    before = replays.newest(QUESTION)
    assert before is not None
    assert (before.reached, before.finished) == (Reached(2, {"rerun": 2}), None)
    made.finish({"rerun": 3})
    after = replays.newest(QUESTION)
    assert after is not None
    assert after.finished is not None
    assert (after.finished.rows, after.finished.counts) == (3, {"rerun": 3})
    assert not list(after.path.glob("*.parquet")), "what was sent need not be kept"


def test_what_was_never_composed_is_gone(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    with replays.composing(QUESTION) as place:
        pass
    assert not place.path.exists()
    left = tmp_path / REPLAYS / QUESTION.name / "killed"
    left.mkdir(parents=True)
    (left / "part-00000-b.parquet").write_bytes(b"half")
    composed(replays)
    assert not left.exists(), "what somebody has left who was killed goes with the next attempt"


def test_two_at_the_same_question_are_refused(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    with replays.turn(QUESTION):
        with pytest.raises(ReplayBusy, match=r"process \d+ is at this replay"), replays.turn(QUESTION):
            pass
        with replays.turn(Asked(table="messages")):
            pass


def test_a_file_is_on_disk_before_it_has_its_name_and_its_name_is_before_anybody_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power failure leaves an empty file under the name of a whole one."""
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        sync(descriptor)
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            assert os.fstat(descriptor).st_size, "what is synced before it is written is not synced"

    def replaced(path: Path, target: Path) -> Path:
        done.append(f"{path.name} is {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    made = composed(Replays(tmp_path))
    token = made.path.name
    plan = ["sync plan.new", "plan.new is plan.json", f"sync {token}"]
    assert done == ["sync part-00000-a.parquet", *plan, f"sync {QUESTION.name}", f"sync {REPLAYS}"]
    done.clear()
    made.reach(Reached(2))
    assert done == ["sync reached.new", "reached.new is reached.json", f"sync {token}"]
    done.clear()
    made.pass_over(PassedOver(1, "orders/0/7", "too large"))
    assert done == ["sync passed_over.jsonl", f"sync {token}"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("plan.json", "Put it back from a copy; or remove .*: the same command then selects anew"),
        ("reached.json", "Remove this file, and the same command goes on"),
        ("finished.json", "Remove this file, and the same command goes on"),
        ("passed_over.jsonl", "Mend it, or move it away"),
    ],
)
@pytest.mark.parametrize("damage", [b"", b'{"rows": 1', b'{"rows": "\xff"}', b'{"rows": "many"}', b"\x00\x00\x00"])
def test_a_file_that_is_damaged_is_named_with_what_to_do(tmp_path: Path, name: str, remedy: str, damage: bytes) -> None:
    made = composed(Replays(tmp_path))
    (made.path / name).write_bytes(damage + b"\n" * name.endswith("l"))
    with pytest.raises(ReplayUnreadable, match=f"{name} cannot be read: .*{remedy}"):
        _look(Replays(tmp_path))


def _look(replays: Replays) -> None:
    found = replays.newest(QUESTION)
    assert found is not None
    assert found.reached == Reached()
    assert found.finished is None
    found.passed_over(3)


def test_what_is_damaged_and_may_be_removed_is_not_missed(tmp_path: Path) -> None:
    made = composed(Replays(tmp_path))
    made.reach(Reached(2))
    made.finish()
    for path in (made.path / "reached.json", made.path / "finished.json"):
        path.unlink()
    _look(Replays(tmp_path))
