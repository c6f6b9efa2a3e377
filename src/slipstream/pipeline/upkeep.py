"""Upkeep of the tables: what is too old is removed, small files become fewer, and what only old versions have is freed.

Safe beside a pipeline that runs: each commit is made on a fresh look at the table, and again where somebody was faster;
what a query has committed last (its transactions) stays in the table's log. By force it is not, and then has the tables
for itself.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from slipstream.pipeline.delta.commit import repeated
from slipstream.pipeline.delta.files import COMPRESSION_LEVEL
from slipstream.pipeline.delta.folder import FILE_BYTES, REMOVED_BEFORE
from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.folder_lock import locked
from slipstream.pipeline.looking import Tables
from slipstream.pipeline.tables import TABLES, Table

if TYPE_CHECKING:
    from deltalake import DeltaTable

OLD_VERSIONS_MIN = dt.timedelta(hours=1)
"""Whoever reads an old version, or writes files that are not committed yet, is done by then."""

DAYS_MAX = 36_500
"""What is kept for longer is kept for ever."""

COMMITS_BEFORE_CHECKPOINT = 10

T = TypeVar("T")


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done."""

    tables: tuple[str, ...] = ()
    """None for all."""
    keep_days: Mapping[str, int] = {}
    """Table → days, where it is not what the table says itself; 0 for ever."""
    keep_versions: dt.timedelta | None = None
    """How long what only old versions of a table have can still be read, where it is not what the table says itself: 7
    days where it is appended to, an hour where its rows change."""
    is_forced: bool = False
    """Old versions go at once, if that is wanted; while a pipeline writes the tables, it is refused."""
    is_dry_run: bool = False


class Upkept(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a table; in a dry run, what would be."""

    table: str
    rows_removed: int
    files_before: int
    files_after: int
    old_files_removed: int
    bytes_freed: int
    log_files_removed: int


def maintain(root: Path, upkeep: Upkeep, now: dt.datetime | None = None) -> Iterator[Upkept]:
    """One table after the other. Raises InvalidPipeline, NoSuchTable, TableTooBusy; by force also TablesBusy.

    Example:
        for done in maintain(Path("tables"), Upkeep(keep_days={"messages": 30})): ...
    """
    _check(upkeep)
    tables = Tables(root)
    for name in upkeep.tables:
        tables.info(name)
    wanted = upkeep.tables or tuple(name for name in tables.names if name in TABLES)
    now = dt.datetime.now(dt.UTC) if now is None else now
    return _maintain_each(tables.root, [TABLES[name] for name in wanted], upkeep, now)


def _maintain_each(root: Path, tables: Sequence[Table], upkeep: Upkeep, now: dt.datetime) -> Iterator[Upkept]:
    # What a pipeline has just written and not committed yet looks like what somebody who was killed has left.
    alone = upkeep.is_forced and not upkeep.is_dry_run and tables
    with locked(root) if alone else contextlib.nullcontext():
        for table in tables:
            yield _maintain_one(root, table, upkeep, now)


def _check(upkeep: Upkeep) -> None:
    if unknown := [name for name in (*upkeep.tables, *upkeep.keep_days) if name not in TABLES]:
        raise InvalidPipeline(f"there is no table {unknown[0]}; there are {', '.join(TABLES)}")
    if negative := [name for name, days in upkeep.keep_days.items() if days < 0]:
        raise InvalidPipeline(f"{negative[0]} cannot be kept for less than 0 days; 0 is for ever")
    if long := [name for name, days in upkeep.keep_days.items() if days > DAYS_MAX]:
        raise InvalidPipeline(f"{long[0]} can be kept for {DAYS_MAX} days at most; 0 is for ever")
    if upkeep.keep_versions is not None and upkeep.keep_versions > dt.timedelta(days=DAYS_MAX):
        raise InvalidPipeline(f"old versions can be kept for {DAYS_MAX} days at most")
    too_short = upkeep.keep_versions is not None and upkeep.keep_versions < OLD_VERSIONS_MIN
    if too_short and not upkeep.is_forced:
        raise InvalidPipeline(
            "old versions are kept for an hour at least: who reads a table now, or is about to commit to it, would "
            "miss files. Where nobody does, use --force"
        )


def _maintain_one(root: Path, table: Table, upkeep: Upkeep, now: dt.datetime) -> Upkept:
    path = root / table.name
    days = upkeep.keep_days.get(table.name, table.keep_days)
    before = len(_open(path).file_uris())
    rows = _remove_old(path, table, now - dt.timedelta(days=days), upkeep.is_dry_run) if days else 0
    if not upkeep.is_dry_run:
        _compact(path, table)
    after = len(_open(path).file_uris())
    old, freed = _vacuum(path, upkeep)
    logs = 0 if upkeep.is_dry_run else _clean_log(path)
    return Upkept(
        table=table.name,
        rows_removed=rows,
        files_before=before,
        files_after=after,
        old_files_removed=old,
        bytes_freed=freed,
        log_files_removed=logs,
    )


# What is too old


def _remove_old(path: Path, table: Table, before: dt.datetime, is_dry_run: bool) -> int:
    """Of a table with a date, whole days, which are files that need not be read."""
    column = "date" if "date" in table.partition_by else table.time
    day = before.date().isoformat()
    if column == "date":
        bound = f"'{day}'"
    elif _is_day(table, column):
        bound = f"CAST('{day}' AS DATE)"
    else:
        bound = f"arrow_cast({round(before.timestamp() * 1_000_000)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    count = _count_old(path, table, column, day if _is_day(table, column) else before.isoformat())
    if is_dry_run or not count:
        return count  # where there is nothing to remove, there is nothing to commit
    predicate = _older(table, column, bound)
    _say_removed(path, before.date() if column == "date" else before.date() + dt.timedelta(days=1))
    return int(_repeated(path, lambda found: found.delete(predicate))["num_deleted_rows"])


def _say_removed(path: Path, day: dt.date) -> None:
    """First, so that whoever makes other tables anew of this one never takes what is gone for what never was."""

    def say(found: DeltaTable) -> None:
        told = found.metadata().configuration.get(REMOVED_BEFORE)
        if told is None or told < day.isoformat():
            found.alter.set_table_properties({REMOVED_BEFORE: day.isoformat()}, raise_if_not_exists=False)

    _repeated(path, say)


def _count_old(path: Path, table: Table, column: str, bound: str) -> int:
    condition = _older(table, column, f"'{bound}'")
    ((count,),) = Tables(path.parent).query(f'SELECT count(*) FROM "{table.name}" WHERE {condition}')
    return int(count)


def _older(table: Table, column: str, bound: str) -> str:
    """A row whose time is null is judged by its other times, and stays where it has none."""
    kind = table.columns.field(column).type
    others = [each.name for each in table.columns if each.type == kind and each.name != column and each.name[0] != "_"]
    condition = f'"{column}" < {bound}'
    if column == "date" or not others:
        return condition
    told = ", ".join(f'"{name}"' for name in others)
    return f'{condition} OR ("{column}" IS NULL AND coalesce({told}) < {bound})'


def _is_day(table: Table, column: str) -> bool:
    return str(table.columns.field(column).type) == "date32[day]"


# Small files


def _compact(path: Path, table: Table) -> None:
    from deltalake import WriterProperties  # noqa: PLC0415

    # Not by z-order: messages come in the order of their offsets and times, which is what they are looked for by.
    properties = WriterProperties(compression="ZSTD", compression_level=COMPRESSION_LEVEL)
    size = FILE_BYTES[table.is_appended]
    _repeated(path, lambda found: found.optimize.compact(target_size=size, writer_properties=properties))


# What only old versions have


def _vacuum(path: Path, upkeep: Upkeep) -> tuple[int, int]:
    """Files removed, and their bytes: those that old versions have, and those that no commit ever named, as somebody
    who was killed leaves them."""
    hours = None if upkeep.keep_versions is None else -(-upkeep.keep_versions // dt.timedelta(hours=1))

    def vacuum(found: DeltaTable, *, is_dry_run: bool) -> list[str]:
        return found.vacuum(hours, dry_run=is_dry_run, enforce_retention_duration=False, full=True)

    old = vacuum(_open(path), is_dry_run=True)
    freed = sum(size for size in map(_size, (path / each for each in old)) if size is not None)
    if old and not upkeep.is_dry_run:
        _repeated(path, lambda found: vacuum(found, is_dry_run=False))
    return len(old), freed


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


# The log


def _clean_log(path: Path) -> int:
    """Files of the log that were removed. A checkpoint has all that they say, transactions of queries included."""
    folder = path / "_delta_log"
    found = _open(path)
    version = found.version()
    newest = max((int(each.name[:20]) for each in folder.glob("*.checkpoint*.parquet")), default=0)
    if version - newest >= COMMITS_BEFORE_CHECKPOINT:
        found.create_checkpoint()
        newest = version
    if not newest:
        return 0
    before = set(folder.iterdir())
    _open(path).cleanup_metadata()
    return len(before - set(folder.iterdir()))


# Beside others


def _open(path: Path) -> DeltaTable:
    from deltalake import DeltaTable  # noqa: PLC0415

    return DeltaTable(path)


def _repeated(path: Path, commit: Callable[[DeltaTable], T]) -> T:
    return repeated(path.name, lambda: _open(path), commit)
