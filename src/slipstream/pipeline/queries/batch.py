"""A batch of a query, on the driver: what its tasks wrote, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from slipstream.pipeline.delta import DeltaFolder, Stamp, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from slipstream.pipeline.settings import PipelineSettings
    from slipstream.pipeline.tables import Table

DAY_US = 24 * 3600 * 1_000_000


class Batch:
    """What a query's functions work on."""

    def __init__(
        self,
        spark: SparkSession,
        folder: DeltaFolder,
        settings: PipelineSettings,
        stamp: Stamp,
        written: Sequence[Written],
        passed_over: Collection[str] = (),
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.settings = settings
        self.stamp = stamp
        self.written = written
        self._passed_over = passed_over
        """Tables that are not made of this batch, but of all there is."""
        self.rows: dict[str, int] = {}
        """Of each table: written or changed."""
        self._orphans: list[Written] = []

    # What is new

    def has(self, table: Table, *, with_any: str = "") -> bool:
        """Whether there are rows for it, if any of them has this struct."""
        return any(one.table == table.name and (not with_any or with_any in one.filled) for one in self.written)

    def frame(self, table: Table) -> DataFrame:
        """The rows of this batch. They are read from its own files, which are the same whether they were committed now
        or by somebody who was killed before the rest."""
        path = self.folder.path(table.name)
        return read_files(self.spark, table, [str(path / one.path) for one in self.written if one.table == table.name])

    # What is made of it

    def append(self, table: Table) -> None:
        written = [one for one in self.written if one.table == table.name]
        if written and not self.folder.append(table, written, self.stamp):
            self._orphans += written
        self.rows[table.name] = sum(one.rows for one in written)

    def fold(self, table: Table, rows: DataFrame) -> pa.Table | None:
        """Puts rows into a table, those of a key together first. None if the table has had this batch."""
        assert table.fold is not None
        if self.is_done(table):
            return None
        return self.put(table, table.fold.collapse(rows))

    def put(self, table: Table, rows: DataFrame) -> pa.Table | None:
        """Rows of which each has its own key."""
        assert table.fold is not None
        found = rows.toArrow()
        if found.num_rows:
            since = _since(found, table.fold.seen, self.settings.follow_days)
            self.folder.fold(table, found, self.stamp, since_us=since)
        self.rows[table.name] = found.num_rows
        return found

    def is_done(self, table: Table) -> bool:
        """Whether the table has had this batch, or is not to have it."""
        return table.name in self._passed_over or self.folder.has(table, self.stamp)

    def together(self, works: Sequence[Callable[[], object]]) -> None:
        """Side by side: most of a small batch is planning, which keeps one core busy and leaves the others idle."""
        with ThreadPoolExecutor(max(1, len(works)), thread_name_prefix="slipstream-fold") as pool:
            for done in [pool.submit(work) for work in works]:
                done.result()

    def discard_orphans(self) -> None:
        """Files of a batch that was committed before, of other files, are nobody's."""
        self.folder.discard(self._orphans)


class Anew(Batch):
    """All there is, as if it were one batch: for tables that are made of others once more."""

    def __init__(
        self,
        spark: SparkSession,
        folder: DeltaFolder,
        settings: PipelineSettings,
        stamp: Stamp,
        wanted: Mapping[str, str | None],
    ) -> None:
        """With the batch of `stamp` and all before it."""
        super().__init__(spark, folder, settings, stamp, ())
        self._wanted = wanted
        """Table → which of its rows are the query's, if not all are."""

    def has(self, table: Table, *, with_any: str = "") -> bool:
        return bool(self.folder.files(table))

    def frame(self, table: Table) -> DataFrame:
        return read_files(self.spark, table, self.folder.files(table))

    def put(self, table: Table, rows: DataFrame) -> pa.Table | None:
        if table.name not in self._wanted:
            return None
        found = rows.toArrow()
        self.folder.replace(table, found, self.stamp, self._wanted[table.name])
        self.rows[table.name] = found.num_rows
        return found

    def is_done(self, table: Table) -> bool:
        return table.name not in self._wanted


class Touched(Batch):
    """The keys of all rows that some files have a part in."""

    def __init__(
        self, spark: SparkSession, folder: DeltaFolder, settings: PipelineSettings, files: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(spark, folder, settings, Stamp("", 0), ())
        self._files = files
        """Table → paths."""
        self.keys: dict[str, pa.Table] = {}
        """Table → keys, each once."""

    def has(self, table: Table, *, with_any: str = "") -> bool:
        return bool(self._files.get(table.name))

    def frame(self, table: Table) -> DataFrame:
        return read_files(self.spark, table, self._files[table.name])

    def fold(self, table: Table, rows: DataFrame) -> pa.Table | None:
        assert table.fold is not None
        self.keys[table.name] = rows.select(*table.fold.key).distinct().toArrow()
        return None

    def is_done(self, table: Table) -> bool:
        return True


class Renewed(Batch):
    """Rows of some keys, made once more of all there is."""

    def __init__(
        self,
        spark: SparkSession,
        folder: DeltaFolder,
        settings: PipelineSettings,
        keys: Mapping[str, pa.Table],
        stale: Mapping[str, str],
    ) -> None:
        super().__init__(spark, folder, settings, Stamp("", 0), ())
        self._keys = keys
        self._stale = stale
        """Table → which other rows go if they are not made again."""

    def has(self, table: Table, *, with_any: str = "") -> bool:
        return bool(self.folder.files(table))

    def frame(self, table: Table) -> DataFrame:
        return read_files(self.spark, table, self.folder.files(table))

    def fold(self, table: Table, rows: DataFrame) -> pa.Table | None:
        """Gives the rows as they were and as they are: what is made of them follows both."""
        import pyarrow as pa  # noqa: PLC0415

        assert table.fold is not None
        if table.name not in self._keys:
            return None
        keys = self.spark.createDataFrame(self._keys[table.name])
        before = self._of_keys(read_files(self.spark, table, self.folder.files(table)), table, keys)
        was = before.toArrow().cast(table.columns)
        found = table.fold.collapse(self._of_keys(rows, table, keys)).toArrow().cast(table.columns)
        self.folder.renew(table, found, self._keys[table.name], self._stale.get(table.name))
        self.rows[table.name] = found.num_rows
        return pa.concat_tables([was, found])

    def put(self, table: Table, rows: DataFrame) -> pa.Table | None:
        found = rows.toArrow()
        self.folder.renew(table, found)
        self.rows[table.name] = found.num_rows
        return found

    def is_done(self, table: Table) -> bool:
        return False

    def _of_keys(self, rows: DataFrame, table: Table, keys: DataFrame) -> DataFrame:
        assert table.fold is not None
        return rows.join(keys, list(table.fold.key), "left_semi").select(*rows.columns)


def read_files(spark: SparkSession, table: Table, paths: Sequence[str]) -> DataFrame:
    """Rows of a table from some of its files, without the date, which is in their paths."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    schema = from_arrow_schema(table.columns)
    stored = type(schema)([field for field in schema if field.name not in table.partition_by])
    if not paths:
        return spark.createDataFrame([], stored)
    return spark.read.schema(stored).parquet(*paths)


def _since(rows: pa.Table, column: str, days: int) -> int | None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if not column:
        return None
    earliest = pc.min(rows.column(column)).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    return None if earliest is None else int(earliest) - days * DAY_US
