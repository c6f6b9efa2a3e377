"""Where replays are kept: beside the tables, one folder a question, and in it one for each time it was asked."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from slipstream.pipeline.errors import TablesBusy
from slipstream.pipeline.folder_lock import locked
from slipstream.pipeline.replay.asked import Question
from slipstream.pipeline.replay.errors import ReplayBusy, ReplayUnreadable
from slipstream.pipeline.replay.plan import Finished, Part, PassedOver, Plan, Reached

REPLAYS = "_replays"
PLAN, REACHED, FINISHED = "plan.json", "reached.json", "finished.json"
PASSED_OVER = "passed_over.jsonl"
"""A line for each. It stays when all is done: somebody will look what became of them."""

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

    @property
    def passed_over_path(self) -> Path:
        return self.path / PASSED_OVER

    def passed_over(self, reached: int) -> list[PassedOver]:
        """Those among the first so many. What is noted beyond was going to be passed over, and was not yet."""
        return [each for each in _lines(self.passed_over_path, PassedOver) if each.number <= reached]

    def pass_over(self, message: PassedOver) -> None:
        """To be said before the server is told: who is killed in between must not have lost it without a word."""
        with self.passed_over_path.open("ab") as file:
            file.write(msgspec.json.encode(message) + b"\n")
            _sync_file(file)
        _sync_folder(self.path)

    def take_up(self, reached: int) -> None:
        """Forgets what is noted as passed over beyond this, and half a line at the end: it is tried once more."""
        path = self.passed_over_path
        if path.exists():
            lines = [msgspec.json.encode(each) + b"\n" for each in self.passed_over(reached)]
            _replace(path, b"".join(lines))

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
        for part in parts:
            # A plan that outlives a power failure must find all of its parts.
            with (self.path / part.path).open("rb") as file:
                _sync_file(file)
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
        for folder in (self.path.parent, self.path.parent.parent):
            _sync_folder(folder)  # they may be new
        return Replay(self.path, plan)


def _replay(path: Path) -> Replay | None:
    plan = _read(path / PLAN, Plan)
    return None if plan is None else Replay(path, plan)


def _read(path: Path, kind: type[T]) -> T | None:
    """Raises ReplayUnreadable."""
    try:
        return _decoded(path, path.read_bytes(), kind)
    except FileNotFoundError:
        return None


def _lines(path: Path, kind: type[T]) -> list[T]:
    """Without one that was cut short: what it was about to say was never done. Raises ReplayUnreadable."""
    try:
        *whole, _ = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [_decoded(path, line, kind) for line in whole]


def _decoded(path: Path, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplayUnreadable(
            f"{path} cannot be read: {error}. It was damaged, or changed by somebody. {_remedy(path)}"
        ) from error


def _remedy(path: Path) -> str:
    if path.name == PLAN:
        return (
            f"Put it back from a copy; or remove {path.parent}: the same command then selects anew, and messages "
            "that this replay had written before are written a second time"
        )
    if path.name == PASSED_OVER:
        return "Mend it, or move it away: it only says which messages were passed over, and the same command goes on"
    return "Remove this file, and the same command goes on: what is done is known elsewhere, and is not done twice"


def _write(path: Path, what: object) -> None:
    _replace(path, msgspec.json.encode(what))


def _replace(path: Path, data: bytes) -> None:
    """All of it or nothing: who is killed, or loses its power, leaves what was there before. Without the first sync
    the new name may be there before what it names is, which is an empty file."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(data)
        _sync_file(file)
    new.replace(path)
    _sync_folder(path.parent)


def _sync_file(file: IO[bytes]) -> None:
    if file.writable():
        file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """The names in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
