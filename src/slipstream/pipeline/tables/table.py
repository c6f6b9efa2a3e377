"""A table: its columns, how its rows come to be found again, and how long it keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from slipstream.pipeline.delta.fold import Fold

Layer: TypeAlias = Literal["bronze", "silver", "gold"]
QueryName: TypeAlias = Literal["messages", "jobs", "slips"]


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One of the tables that the pipeline keeps."""

    name: str
    layer: Layer
    what: str
    """In a sentence, for people."""
    queries: tuple[QueryName, ...]
    """Which of them write it."""
    columns: pa.Schema
    partition_by: tuple[str, ...] = ()
    fold: Fold | None = None
    """How a row takes in what comes later; None for a table that is only appended to, or made anew."""
    sources: tuple[str, ...] = ()
    """The tables that it can be made of again; none for what only the log has."""
    time: str
    """The column that retention goes by, and that says how fresh the table is."""
    keep_days: int = 0
    """0: for ever, unless somebody says otherwise."""

    @property
    def is_appended(self) -> bool:
        """Its rows are messages of the log, one for one, and stay as they are."""
        return not self.sources
