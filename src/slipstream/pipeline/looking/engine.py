"""DuckDB over the files of tables: each a view by its name, and nothing else to be seen or touched.

It reads the Parquet files that a version of a table names. Handing it the tables through Arrow was tried: it took ten
times as long, and it refuses batches in which a struct begins in the middle.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.looking.question import check_question

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection


class View(msgspec.Struct, frozen=True):
    """What a query sees by a name."""

    columns: pa.Schema
    """Those that are seen."""
    stored: pa.Schema
    files: tuple[str, ...]
    partition_by: tuple[str, ...]


class Engine:
    """Makes connections that see views, and reads with them.

    Example:
        connection = Engine(root).connect({"messages": view})
    """

    def __init__(self, root: Path, memory_bytes: int | None = None) -> None:
        """`memory_bytes` is what a question may use, of memory, and once more of the disk where that is not enough.
        Without it DuckDB takes most of what the machine has."""
        self._root = root
        self._memory_bytes = memory_bytes
        self._shapes = Path(tempfile.mkdtemp(prefix="slipstream-tables-"))
        weakref.finalize(self, shutil.rmtree, self._shapes, ignore_errors=True)
        self._database: DuckDBPyConnection | None = None
        self._views: dict[str, View] = {}

    def connect(self, views: Mapping[str, View]) -> DuckDBPyConnection:
        """One for each question, so that answers can be read side by side."""
        if self._database is None:
            self._database = self._open()
        for name, view in views.items():
            if self._views.get(name) != view:
                self._database.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS {self._select(name, view)}")
                self._views[name] = view
        return self._database.cursor()

    def _open(self) -> DuckDBPyConnection:
        import duckdb  # noqa: PLC0415 - --help needs none of it

        database = duckdb.connect(config=_CLOSED)
        for setting, value in self._settings().items():
            database.execute(f"SET GLOBAL {setting} = {value}")
        return database

    def _settings(self) -> dict[str, str]:
        limited = () if self._memory_bytes is None else ("memory_limit", "max_temp_directory_size")
        return {
            **dict.fromkeys(limited, _text(f"{self._memory_bytes} bytes")),
            "TimeZone": "'UTC'",
            "temp_directory": _text(f"{self._shapes}/spilled"),
            "allowed_directories": _list([f"{self._root}/", f"{self._shapes}/"]),
            "enable_external_access": "false",
            "lock_configuration": "true",
        }

    def _select(self, name: str, view: View) -> str:
        files = [self._shape(name, view), *view.files]
        options = "union_by_name = true, hive_partitioning = false"
        if view.partition_by:
            types = ", ".join(f"{quoted(each)}: {_partition_type(view, each)}" for each in view.partition_by)
            options = f"union_by_name = true, hive_partitioning = true, hive_types = {{{types}}}"
        columns = ", ".join(quoted(column) for column in view.columns.names)
        return f"SELECT {columns} FROM read_parquet({_list(files)}, {options})"

    def _shape(self, name: str, view: View) -> str:
        """A file without rows that has every column of the table: some are in none of its files yet."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        folder = self._shapes.joinpath(name, *(f"{each}=__HIVE_DEFAULT_PARTITION__" for each in view.partition_by))
        path = folder / "shape.parquet"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            columns = pa.schema([field for field in view.stored if field.name not in view.partition_by])
            pq.write_table(columns.empty_table(), path)
        return str(path)


def read(connection: DuckDBPyConnection, sql: str, limit: int | None) -> pa.RecordBatchReader:
    """Raises QueryRefused for what is no question, and duckdb.Error for what is wrong with one."""
    check_question(connection, sql)
    relation = connection.sql(sql)
    # One more than is wanted, to know whether there is more.
    return (relation if limit is None else relation.limit(limit + 1)).to_arrow_reader(BATCH_ROWS)


BATCH_ROWS = 2_048
"""As many as DuckDB computes at a time: more would only be kept, twice."""

_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "allow_persistent_secrets": "false",
}
"""A query sees the tables, and neither variables of Python nor the network; files only in the folder of the tables."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _partition_type(view: View, name: str) -> str:
    kinds = {"date32[day]": "DATE", "int32": "INTEGER", "int64": "BIGINT"}
    return kinds.get(str(view.stored.field(name).type), "VARCHAR")
