"""What is kept of a query beside the tables: who it is and how far it has read, which Spark writes, and what it was
about to do, which we do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec

CHECKPOINTS = "_checkpoints"


class TopicReached(msgspec.Struct, frozen=True):
    """Up to which offset each partition of a topic was read."""

    incarnation: str
    partitions: dict[str, int]


class Note(msgspec.Struct, frozen=True):
    """What a batch of a query is made of, or what else is under way."""

    query: str
    """As commits are stamped with it."""
    what: Any


class Checkpoint:
    """Of one query, in the folder of the tables."""

    def __init__(self, root: Path, query: str) -> None:
        self.path = root / CHECKPOINTS / query
        self._query = query

    @property
    def exists(self) -> bool:
        return (self.path / "metadata").exists()

    @property
    def name(self) -> str:
        """Of the query, as commits are stamped with it: begun anew it has another. Empty before its first start."""
        try:
            found = json.loads((self.path / "metadata").read_text())
        except FileNotFoundError:
            return ""
        return f"{self._query}:{found['id']}"

    # How far it has read

    @property
    def last_finished(self) -> int | None:
        """The number of a batch."""
        return max((int(path.name) for path in (self.path / "commits").glob("[0-9]*")), default=None)

    def reached(self) -> dict[str, dict[str, int]]:
        """Topic → partition → up to which offset the last batch that was finished has read."""
        last = self.last_finished
        return {} if last is None else {name: topic.partitions for name, topic in self.topics(last).items()}

    def topics(self, batch: int) -> dict[str, TopicReached]:
        """Where this batch ends."""
        found = json.loads((self.path / "offsets" / str(batch)).read_text().splitlines()[-1])
        return msgspec.convert(found["topics"], dict[str, TopicReached])

    # What is under way

    def note(self, name: str, what: object) -> None:
        """For whoever comes after us if we are killed."""
        path = self._note_path(name)
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(Note(self.name, what)))
        new.replace(path)

    def noted(self, name: str) -> Any:
        """None where nothing is, or what is there is of a query that was since begun anew."""
        try:
            found = msgspec.json.decode(self._note_path(name).read_bytes(), type=Note)
        except FileNotFoundError:
            return None
        return found.what if found.query == self.name else None

    def done(self, name: str) -> None:
        self._note_path(name).unlink(missing_ok=True)

    def _note_path(self, name: str) -> Path:
        """Beside Spark's own folder, in which nobody else writes."""
        return self.path.with_name(f"{self._query}.{name}.json")

    def forget(self) -> None:
        for path in self.path.parent.glob(f"{self._query}.*.json"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
