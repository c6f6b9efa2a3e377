"""The pipeline's tables over HTTP: what is there, its rows, and answers to SQL."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class TableSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    about: str
    rows: int
    bytes: int
    newest_ms: int | None
    """The newest of its rows is from then."""
    written_ms: int | None
    """Null where it cannot be read."""
    batch: int | None
    """The last of the batches that the table has; of several queries that write it, the highest."""
    lag: int | None
    """Messages that the query behind it has not read yet; null where nobody knows."""
    trouble: str = ""
    """Why it cannot be read; empty where it can."""
    is_daily: bool = False
    """Each row is about a whole day: `newest_ms` is the beginning of the latest."""


class TableList(msgspec.Struct, frozen=True):
    tables: list[TableSummary]
    root: str
    """The folder they are in."""


class TableQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The parameters of `GET /v2/tables/{table}`."""

    limit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 50


class TableColumn(msgspec.Struct, frozen=True):
    name: str
    type: str
    about: str


class TableRows(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    columns: list[TableColumn]
    rows: list[list[Any]]
    """The newest first; a value for every column that is not inside of another."""
    more: bool


class SqlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sql: Annotated[str, msgspec.Meta(min_length=1)]
    """One statement that reads, as DuckDB understands it; every table by its name."""
    limit: Annotated[int, msgspec.Meta(ge=1)] = 100


class SqlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    columns: list[str]
    numbers: list[bool]
    """Which columns hold numbers."""
    rows: list[list[Any]]
    more: bool
    took_ms: float


class DecodeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    topic: str
    value: str
    """In base64."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    """Such as `DownloadTask`."""
    message: dict[str, Any]
