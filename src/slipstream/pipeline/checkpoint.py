"""What Spark keeps of a query beside the tables: who it is, and how far it has read."""

from __future__ import annotations

import json
from pathlib import Path

CHECKPOINTS = "_checkpoints"


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

    def reached(self) -> dict[str, dict[str, int]]:
        """Topic → partition → up to which offset the last batch that was finished has read."""
        finished = [int(path.name) for path in (self.path / "commits").glob("[0-9]*")]
        if not finished:
            return {}
        return self.offsets(max(finished))

    def offsets(self, batch: int) -> dict[str, dict[str, int]]:
        """Topic → partition → where this batch ends."""
        found = json.loads((self.path / "offsets" / str(batch)).read_text().splitlines()[-1])
        return {name: topic["partitions"] for name, topic in found["topics"].items()}
