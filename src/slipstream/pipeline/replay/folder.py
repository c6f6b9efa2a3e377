"""Where replays are kept: beside the tables, one folder a question, and in it one for each time it was asked."""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from slipstream.pipeline.errors import TablesBusy
from slipstream.pipeline.folder_lock import locked
from slipstream.pipeline.replay.asked import Question
from slipstream.pipeline.replay.errors import ReplayBusy
from slipstream.pipeline.replay.plan import Finished, Part, Plan, Reached

REPLAYS = "_replays"
PLAN, REACHED, FINISHED = "plan.json", "reached.json", "finished.json"

T = TypeVar("T")


class Replay:
    """One replay, from its composition to its end."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan

    @property
    def finished(self) -> Finished | None:
        return _read(self.path / FINISHED, Finished)

    @property
    def reached(self) -> Reached:
        return _read(self.path / REACHED, Reached) or Reached()

    def reach(self, reached: Reached) -> None:
        _write(self.path / REACHED, reached)

    def finish(self, counts: dict[str, int] | None = None) -> Finished:
        """What was composed is not needed any more, and may be large."""
        done = Finished(dt.datetime.now(dt.UTC), self.plan.count, counts or {})
        _write(self.path / FINISHED, done)
        for path in self.path.glob("*.parquet"):
            path.unlink(missing_ok=True)
        return done

    def parts(self) -> Iterator[tuple[Path, int]]:
        return ((self.path / part.path, part.rows) for part in self.plan.parts)


class Replays:
    """Of one folder of tables."""

    def __init__(self, root: Path) -> None:
        self._root = root / REPLAYS

    def newest(self, question: Question) -> Replay | None:
        """The last that was composed for this question, finished or not."""
        found = [replay for path in (self._root / question.name).glob("*/") if (replay := _replay(path)) is not None]
        return max(found, key=lambda replay: replay.plan.made_at, default=None)

    @contextlib.contextmanager
    def turn(self, question: Question) -> Iterator[None]:
        """One process at a time answers a question. Raises ReplayBusy."""
        path = self._root / question.name
        try:
            with locked(path):
                yield
        except TablesBusy as error:
            who = str(error).partition(" is written by ")[2].partition(":")[0]
            raise ReplayBusy(f"{who} is at this replay ({path}): wait for it, or stop it and start this one") from None

    @contextlib.contextmanager
    def composing(self, question: Question) -> Iterator[Composition]:
        """A place for parts, which is a replay once it has a plan; if it gets none it is gone. What somebody has left
        who was killed meanwhile goes first."""
        folder = self._root / question.name
        for path in folder.glob("*/"):
            if not (path / PLAN).exists():
                shutil.rmtree(path, ignore_errors=True)
        token = secrets.token_hex(4)
        path = folder / token
        path.mkdir(parents=True)
        try:
            yield Composition(path, f"{question.name}-{token}", question)
        finally:
            if not (path / PLAN).exists():
                shutil.rmtree(path, ignore_errors=True)


class Composition:
    def __init__(self, path: Path, replay_id: str, question: Question) -> None:
        self.path = path
        self.id = replay_id
        self._question = question

    def plan(
        self, parts: tuple[Part, ...], versions: dict[str, int], left_out: int, newest: dict[str, int] | None = None
    ) -> Replay:
        """From now on it is one that goes on where it was."""
        plan = Plan(
            id=self.id,
            asked=self._question,
            versions=versions,
            count=sum(part.rows for part in parts),
            left_out=left_out,
            newest=newest or {},
            parts=parts,
            made_at=dt.datetime.now(dt.UTC),
        )
        _write(self.path / PLAN, plan)
        return Replay(self.path, plan)


def _replay(path: Path) -> Replay | None:
    plan = _read(path / PLAN, Plan)
    return None if plan is None else Replay(path, plan)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None


def _write(path: Path, what: object) -> None:
    """All of it or nothing: who is killed leaves what was there before."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(what))
    new.replace(path)
