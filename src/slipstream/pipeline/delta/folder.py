"""The folder of all tables, from the driver's side: each commit carries which batch of which query it is, and is made
once, whoever was killed before or after it."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.delta.commit import repeated
from slipstream.pipeline.delta.files import Written

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    from slipstream.pipeline.tables import Table

log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = "100"
KEEP_LOG = "interval 1 days"
KEEP_REPLACED = {True: "interval 7 days", False: "interval 1 hours"}
"""How long the files of older versions stay, of tables that are appended to and of those whose rows change. The latter
replace a file with every batch: in continuous mode, tens of thousands a day."""
FILE_BYTES = {True: 256 << 20, False: 8 << 20}
"""Of a compacted file, likewise: a row that changes has its whole file written again."""
REMOVED_BEFORE = "slipstream.removedBefore"
"""A property of tables: the day before which retention has removed their rows."""
_GONE = "_gone"


class Stamp(msgspec.Struct, frozen=True):
    """Which batch of which query a commit is. Of a query's batches, each table takes each once."""

    query: str
    batch: int


class DeltaFolder:
    """Tables by name. One process writes them at a time; its threads take turns at each table."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tables: dict[str, DeltaTable] = {}
        self._turns: dict[str, threading.RLock] = {}
        self._opening = threading.Lock()
        self.commits: dict[str, int] = {}
        """Since the last compaction."""

    def path(self, name: str) -> Path:
        return self.root / name

    def exists(self, name: str) -> bool:
        return (self.path(name) / "_delta_log").is_dir()

    def turn(self, name: str) -> threading.RLock:
        with self._opening:
            return self._turns.setdefault(name, threading.RLock())

    def open(self, table: Table) -> DeltaTable:
        """Made if it is not there, and given the columns that it lacks."""
        from deltalake import DeltaTable, write_deltalake  # noqa: PLC0415

        with self.turn(table.name):
            found = self._tables.get(table.name)
            if found is not None:
                found.update_incremental()
                return found
            path = str(self.path(table.name))
            if not self.exists(table.name):
                self._create(table, path)
            found = DeltaTable(path)
            there = {field.name for field in found.schema().fields}
            if not set(table.columns.names) <= there or _is_wider(table.columns, found):
                log.info("%s has new columns; what was written before has null in them", table.name)
                write_deltalake(found, table.columns.empty_table(), mode="append", schema_mode="merge")
                found = DeltaTable(path)
            self._tables[table.name] = found
            return found

    def _create(self, table: Table, path: str) -> None:
        from deltalake import DeltaTable  # noqa: PLC0415

        DeltaTable.create(
            path,
            schema=table.columns,
            partition_by=list(table.partition_by),
            name=table.name,
            description=table.what,
            configuration={
                "delta.checkpointInterval": CHECKPOINT_INTERVAL,
                "delta.logRetentionDuration": KEEP_LOG,
                "delta.deletedFileRetentionDuration": KEEP_REPLACED[table.is_appended],
            },
            mode="ignore",
        )

    # What is there

    def has(self, table: Table, stamp: Stamp) -> bool:
        """Whether the table has taken this batch."""
        with self.turn(table.name):
            return _has(self.open(table), stamp)

    def last_batch(self, table: Table, query: str) -> int | None:
        with self.turn(table.name):
            found: int | None = self.open(table).transaction_version(query)
            return found

    def files(
        self, table: Table, keep: Callable[[dict[str, object]], bool] = lambda _: True, version: int | None = None
    ) -> list[str]:
        """Paths of the files whose statistics `keep` likes: names with `min.`, `max.` and `partition.` in front. Of
        now, or of a version before."""
        return [str(self.path(table.name) / str(each["path"])) for each in self._actions(table, version) if keep(each)]

    def small_files(self, table: Table) -> int:
        """How many more there are than compaction would leave."""
        small = [each for each in self._actions(table) if int(str(each["size_bytes"])) < FILE_BYTES[table.is_appended]]
        return len(small) - len({each.get("partition.date") for each in small})

    def _actions(self, table: Table, version: int | None = None) -> list[dict[str, object]]:
        import pyarrow as pa  # noqa: PLC0415
        from deltalake import DeltaTable  # noqa: PLC0415

        with self.turn(table.name):
            found = self.open(table) if version is None else DeltaTable(str(self.path(table.name)), version=version)
            actions: list[dict[str, object]] = pa.table(found.get_add_actions(flatten=True)).to_pylist()
            return actions

    def removed_before(self, name: str) -> dt.date | None:
        """Up to which day retention has removed rows of a table, if it has."""
        from deltalake import DeltaTable  # noqa: PLC0415

        if not self.exists(name):
            return None
        found = DeltaTable(str(self.path(name))).metadata().configuration.get(REMOVED_BEFORE)
        return None if found is None else dt.date.fromisoformat(found)

    def select(self, table: Table, where: str) -> pa.Table:
        """Rows for which this holds, in SQL."""
        import pyarrow as pa  # noqa: PLC0415
        from deltalake import QueryBuilder  # noqa: PLC0415

        with self.turn(table.name):
            query = QueryBuilder().register("t", self.open(table))
        return pa.table(query.execute(f"SELECT * FROM t WHERE {where}")).select(table.columns.names)

    def count(self, table: Table, where: str) -> int:
        import pyarrow as pa  # noqa: PLC0415
        from deltalake import QueryBuilder  # noqa: PLC0415

        with self.turn(table.name):
            query = QueryBuilder().register("t", self.open(table))
        found: int = pa.table(query.execute(f"SELECT count(*) AS n FROM t WHERE {where}")).column("n")[0].as_py()
        return found

    # Commits

    def append(self, table: Table, written: Sequence[Written], stamp: Stamp) -> bool:
        """False where the table has had this batch; then the files are nobody's."""

        def commit(found: DeltaTable) -> None:
            found.create_write_transaction(
                _actions(written),
                "append",
                found.schema(),
                partition_by=list(table.partition_by),
                commit_properties=_properties(stamp),
            )

        return self._commit(table, stamp, commit)

    def fold(self, table: Table, rows: pa.Table, stamp: Stamp, *, since_us: int | None = None) -> bool:
        """Puts rows, one a key, together with those that are there. With `since_us` rows that nothing was written of
        since then are passed over, so that a table that grows old does not grow slow."""
        fold = table.fold
        assert fold is not None, f"{table.name} has no fold"
        match = fold.match()
        if since_us is not None and fold.seen:
            match += f' AND t."{fold.seen}" >= arrow_cast({since_us}, \'Timestamp(Microsecond, Some("UTC"))\')'

        def commit(found: DeltaTable) -> None:
            merge = found.merge(
                rows.cast(table.columns),
                match,
                source_alias="s",
                target_alias="t",
                commit_properties=_properties(stamp),
            )
            merge.when_matched_update(fold.updates()).when_not_matched_insert_all().execute()

        return self._commit(table, stamp, commit)

    def replace(self, table: Table, rows: pa.Table, stamp: Stamp | None, where: str | None = None) -> bool:
        """Puts rows in place of all, or of those for which `where` holds."""
        from deltalake import write_deltalake  # noqa: PLC0415

        def commit(found: DeltaTable) -> None:
            write_deltalake(
                found,
                rows.cast(table.columns),
                mode="overwrite",
                predicate=where,
                commit_properties=_properties(stamp) if stamp is not None else None,
            )
            found.update_incremental()

        return self._commit(table, stamp, commit)

    def renew(self, table: Table, rows: pa.Table, keys: pa.Table | None = None, stale: str | None = None) -> None:
        """Puts rows in place of those with their keys. Rows of `keys` that are not made again go, and of the others
        those for which `stale` holds. Rows that began before what retention has left of their sources stay."""
        fold = table.fold
        assert fold is not None, f"{table.name} has no key"
        known = self._is_known(table)
        source = _with_gone(rows.cast(table.columns), keys, fold.key)
        values = {f'"{name}"': f's."{name}"' for name in table.columns.names}

        def commit(found: DeltaTable) -> None:
            merge = (
                found.merge(source, fold.match(), source_alias="s", target_alias="t")
                .when_matched_delete(f"s.{_GONE} AND {known}")
                .when_matched_update(values, predicate=f"NOT s.{_GONE} AND {known}")
                .when_not_matched_insert(values, predicate=f"NOT s.{_GONE}")
            )
            if stale is not None:
                merge = merge.when_not_matched_by_source_delete(f"{stale} AND {known}")
            merge.execute()

        self._commit(table, None, commit)

    def _is_known(self, table: Table) -> str:
        """Whether all that a row was made of is still there, as SQL."""
        assert table.fold is not None
        removed = [day for day in map(self.removed_before, table.sources) if day is not None]
        if not removed or not table.fold.begun:
            return "true"
        begun = f't."{table.fold.begun}"'
        return f"({begun} IS NOT NULL AND CAST({begun} AS DATE) >= DATE '{max(removed).isoformat()}')"

    def stamp(self, table: Table, stamp: Stamp) -> bool:
        """Says that a batch had nothing for the table."""
        return self.append(table, [], stamp)

    def replace_day(self, table: Table, day: str, written: Sequence[Written]) -> None:
        """Puts files in place of all that the table has of a day."""

        def commit(found: DeltaTable) -> None:
            found.create_write_transaction(
                _actions(written),
                "overwrite",
                found.schema(),
                partition_by=list(table.partition_by),
                partition_filters=[("date", "=", day)],
            )

        self._commit(table, None, commit)

    def delete(self, table: Table, where: str) -> None:
        self._commit(table, None, lambda found: found.delete(where))

    def compact(self, table: Table) -> None:
        """Makes the small files of a table fewer, and removes those that no version needs any more."""

        def compact(found: DeltaTable) -> None:
            found.optimize.compact(target_size=FILE_BYTES[table.is_appended])
            found.vacuum(dry_run=False)

        with self.turn(table.name):
            self._commit(table, None, compact)
            self.commits[table.name] = 0

    def discard(self, written: Iterable[Written]) -> None:
        """Files that no commit will ever name."""
        for one in written:
            (self.path(one.table) / one.path).unlink(missing_ok=True)

    def _commit(self, table: Table, stamp: Stamp | None, commit: Callable[[DeltaTable], object]) -> bool:
        """False where the table has had this batch. Whether it has is asked of the handle that commits."""

        def commit_once(found: DeltaTable) -> bool:
            if stamp is not None and _has(found, stamp):
                return False
            try:
                commit(found)
            except Exception:
                del self._tables[table.name]  # what a handle knows after a commit that failed is not worth knowing
                raise
            return True

        with self.turn(table.name):
            if not repeated(table.name, lambda: self.open(table), commit_once):
                return False
            self.commits[table.name] = self.commits.get(table.name, 0) + 1
            return True


def _actions(written: Sequence[Written]) -> list[AddAction | RemoveAction]:
    from deltalake.transaction import AddAction  # noqa: PLC0415

    return [
        AddAction(
            path=one.path,
            size=one.size,
            partition_values={"date": one.date},
            modification_time=one.at_ms,
            data_change=True,
            stats=one.stats,
        )
        for one in written
    ]


def _has(found: DeltaTable, stamp: Stamp) -> bool:
    version = found.transaction_version(stamp.query)
    return version is not None and version >= stamp.batch


def _properties(stamp: Stamp) -> CommitProperties:
    from deltalake import CommitProperties, Transaction  # noqa: PLC0415

    return CommitProperties(app_transactions=[Transaction(stamp.query, stamp.batch)])


def _with_gone(rows: pa.Table, keys: pa.Table | None, key: tuple[str, ...]) -> pa.Table:
    """Rows, and keys that none of them has, told apart by one more column."""
    import pyarrow as pa  # noqa: PLC0415

    there = rows.append_column(_GONE, pa.repeat(pa.scalar(False), rows.num_rows))
    if keys is None:
        return there
    gone = keys.select(key).join(rows.select(key), list(key), join_type="left anti")
    columns = [
        gone.column(field.name).cast(field.type) if field.name in key else pa.nulls(gone.num_rows, field.type)
        for field in rows.schema
    ]
    marked = pa.table([*columns, pa.repeat(pa.scalar(True), gone.num_rows)], schema=there.schema)
    return pa.concat_tables([there, marked])


def _is_wider(columns: pa.Schema, found: DeltaTable) -> bool:
    """Whether a struct has fields that those of the table lack."""
    import pyarrow as pa  # noqa: PLC0415

    there = pa.schema(found.schema().to_arrow())
    return any(_width(field.type) > _width(there.field(field.name).type) for field in columns)


def _width(kind: pa.DataType) -> int:
    return 1 + sum(_width(kind.field(index).type) for index in range(kind.num_fields))
