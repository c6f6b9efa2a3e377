"""The folder of the tables, for those who only read."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from slipstream.pipeline.checkpoint import Checkpoint
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.looking.answer import Answer, QueryRefused
from slipstream.pipeline.looking.engine import Engine, View, quoted, read
from slipstream.pipeline.looking.far_time import FarDate, FarTime, python_values
from slipstream.pipeline.looking.meaning import meaning
from slipstream.pipeline.tables import TABLES
from slipstream.pipeline.tables.columns import DAY

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

MAKE_THEM = "slipstream pipeline run --once"


class NoSuchTable(PipelineError):
    """There is no table of this name, or none at all."""


class UnreadableTable(PipelineError):
    """Its folder is there, and what is in it is no table: one that is being made, or was damaged."""


class TableInfo(msgspec.Struct, frozen=True):
    """What can be said of a table without reading it."""

    name: str
    layer: str
    """Empty where the table is none of ours."""
    what: str
    rows: int
    bytes: int
    files: int
    newest: dt.datetime | None
    """The latest value of its time column; of a day, its beginning."""
    is_daily: bool
    """The time column holds days: the newest row may be of today, whatever the hour."""
    version: int
    batches: dict[str, int]
    """Query → the last of its batches that the table has."""
    changed_at: dt.datetime
    keep_days: int
    partition_by: tuple[str, ...]
    partitions: tuple[str, ...]
    """Values of the first partition column, in order."""


class ColumnInfo(msgspec.Struct, frozen=True):
    name: str
    """With a dot for what is inside of a column: `envelope.run_id`."""
    type: str
    what: str


class Tables:
    """Tables by name; each is looked at in the version that it had when it was first asked for.

    Example:
        tables = Tables(Path("slipstream-data/tables"))
        for row in tables.query("select * from stuck_slips order by since"): ...
    """

    def __init__(self, root: Path, *, memory_bytes: int | None = None) -> None:
        """`memory_bytes` is what a query may use; as much as there is without it."""
        self.root = root.absolute()
        self._engine = Engine(self.root, memory_bytes)
        self._handles: dict[str, DeltaTable] = {}
        self._actions: dict[str, list[dict[str, Any]]] = {}
        self._seen: set[str] = set()
        """Tables that the engine knows of."""

    @property
    def names(self) -> list[str]:
        """In the order of the registry, then what others have put beside them."""
        there = (
            {each.name for each in self.root.iterdir() if (each / "_delta_log").is_dir()}
            if self.root.is_dir()
            else set()
        )
        return [*(name for name in TABLES if name in there), *sorted(there - set(TABLES))]

    def info(self, name: str) -> TableInfo:
        """Raises NoSuchTable, UnreadableTable."""
        handle, actions, known = self._handle(name), self._files(name), TABLES.get(name)
        counted = [action["num_records"] for action in actions]
        rows = sum(counted) if None not in counted else self._count(name)
        partition_by = tuple(handle.metadata().partition_columns)
        first = f"partition.{partition_by[0]}" if partition_by else ""
        return TableInfo(
            name=name,
            layer=known.layer if known is not None else "",
            what=known.what if known is not None else handle.metadata().description or "",
            rows=rows,
            bytes=sum(action["size_bytes"] for action in actions),
            files=len(actions),
            newest=self._newest(name) if rows else None,
            is_daily=known is not None and known.columns.field(known.time).type == DAY,
            version=handle.version(),
            batches=self._batches(name),
            changed_at=dt.datetime.fromtimestamp(handle.history(1)[0]["timestamp"] / 1000, dt.UTC),
            keep_days=known.keep_days if known is not None else 0,
            partition_by=partition_by,
            partitions=tuple(sorted({str(action[first]) for action in actions})) if first else (),
        )

    def columns(self, name: str, *, everything: bool = False) -> list[ColumnInfo]:
        """Those that begin with `_` are the pipeline's own, and left out unless everything is wanted."""
        return list(_columns(name, _visible(self._schema(name), everything), ""))

    def query(self, sql: str, *, limit: int | None = None, everything: bool = False) -> Answer:
        """One statement that reads; every table by its name. Raises QueryRefused, NoSuchTable.

        Tables of ours that are not there yet are empty.
        """
        import duckdb  # noqa: PLC0415 - --help needs none of it

        mentioned = self._mentioned(sql)
        try:
            reader = read(self._engine.connect(self._views(mentioned, everything)), sql, limit)
        except duckdb.Error as error:
            raise QueryRefused(self._advice(error, mentioned, everything)) from error
        return Answer(reader, limit)

    def sample(self, name: str, limit: int, where: str = "", *, everything: bool = False) -> Answer:
        """The newest rows, of those for which `where` holds. Raises QueryRefused, NoSuchTable."""
        self._handle(name)
        time = self._time(name)
        conditions = [f"({where})"] if where else []
        if time and not where and (since := self._reached(name, time, limit)) is not None:
            # So that not all of the table is read and sorted for a handful of rows.
            conditions.append(f"{quoted(time)} >= '{since.isoformat()}'")
        condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        order = f" ORDER BY {quoted(time)} DESC NULLS LAST" if time else ""
        return self.query(f"SELECT * FROM {quoted(name)}{condition}{order} LIMIT {limit}", everything=everything)

    def reached(self, query: str) -> dict[str, dict[str, int]]:
        """Topic → partition → up to which offset a query of the pipeline has read."""
        return Checkpoint(self.root, query).reached()

    # One table

    def _handle(self, name: str) -> DeltaTable:
        if name not in self._handles:
            from deltalake import DeltaTable  # noqa: PLC0415
            from deltalake.exceptions import DeltaError  # noqa: PLC0415

            if name not in self.names:
                raise NoSuchTable(self.missing(name))
            try:
                self._handles[name] = DeltaTable(self.root / name)
            except (DeltaError, OSError) as error:
                reason = str(error).strip()
                raise UnreadableTable(f"the table {name} in {self.root / name} cannot be read: {reason}") from error
        return self._handles[name]

    def missing(self, name: str) -> str:
        """Why there is no such table, and what to do."""
        there = self.names
        if not there:
            return f"no tables in {self.root} yet: make them with  {MAKE_THEM}, or name another folder with --tables"
        if name in TABLES:
            return f"the table {name} is not there yet: it is made with  {MAKE_THEM} --table {name}"
        return f"there is no table {name}; there are {', '.join(there)}"

    def _files(self, name: str) -> list[dict[str, Any]]:
        import pyarrow as pa  # noqa: PLC0415

        if name not in self._actions:
            found = pa.table(self._handle(name).get_add_actions(flatten=True))
            columns = [python_values(column) for column in found.columns]
            self._actions[name] = [
                dict(zip(found.column_names, row, strict=True)) for row in zip(*columns, strict=True)
            ]
        return self._actions[name]

    def _schema(self, name: str) -> pa.Schema:
        import pyarrow as pa  # noqa: PLC0415

        if name in TABLES and name not in self.names:
            return TABLES[name].columns
        return pa.schema(self._handle(name).schema().to_arrow())

    def _time(self, name: str) -> str:
        wanted = TABLES[name].time if name in TABLES else ""
        return wanted if wanted in self._schema(name).names else ""

    def _batches(self, name: str) -> dict[str, int]:
        queries = TABLES[name].queries if name in TABLES else ()
        names = {query: Checkpoint(self.root, query).name for query in queries}
        found = {query: self._handle(name).transaction_version(stamp) for query, stamp in names.items() if stamp}
        return {query: batch for query, batch in found.items() if batch is not None}

    def _newest(self, name: str) -> dt.datetime | None:
        time = self._time(name)
        if not time:
            return None
        told: list[Any] = [action.get(f"max.{time}") for action in self._files(name) if action["num_records"] != 0]
        if None not in told:
            return _as_time(max(told))
        ((newest,),) = self.query(f"SELECT max({quoted(time)}) FROM {quoted(name)}")
        return None if newest is None else _as_time(newest)

    def _count(self, name: str) -> int:
        ((count,),) = self.query(f"SELECT count(*) FROM {quoted(name)}")
        return int(count)

    def _reached(self, name: str, time: str, limit: int) -> dt.datetime | dt.date | None:
        """A time since which there are at least so many rows; None where the files do not say."""
        told: list[tuple[Any, Any, int | None]] = [
            (action.get(f"max.{time}"), action.get(f"min.{time}"), action["num_records"])
            for action in self._files(name)
        ]
        if any(isinstance(value, FarTime | FarDate | None) for each in told for value in each):
            return None
        rows = 0
        least: Any = None
        for _, begin, count in sorted(told, key=lambda each: each[0], reverse=True):
            least = begin if least is None else min(least, begin)
            rows += count or 0
            if rows >= limit:
                reached: dt.datetime | dt.date = least
                return reached
        return None

    # All of them, for SQL

    def _mentioned(self, sql: str) -> list[str]:
        """Tables whose names are somewhere in it: only those are opened."""
        words = {word.lower() for word in re.findall(r"\w+", sql)}
        known = [*TABLES, *(name for name in self.names if name not in TABLES)]
        return [name for name in known if name.lower() in words or not re.fullmatch(r"\w+", name)]

    def _views(self, mentioned: Sequence[str], everything: bool) -> dict[str, View]:
        there = self.names
        if not there:
            raise NoSuchTable(self.missing(""))
        others = [name for name in TABLES if name not in mentioned and name not in self._seen]
        self._seen |= {*mentioned, *others}
        return {name: self._view(name, name in there, everything) for name in mentioned} | {
            name: _empty(TABLES[name].columns, everything) for name in others
        }

    def _view(self, name: str, is_there: bool, everything: bool) -> View:
        schema = self._schema(name)
        if not is_there:
            return _empty(schema, everything)
        handle = self._handle(name)
        strange = set(handle.protocol().reader_features or ()) - _KNOWN_FEATURES
        if strange:
            raise QueryRefused(f"{name} has {', '.join(sorted(strange))}, which only other programs can read")
        return View(
            columns=_visible(schema, everything),
            stored=schema,
            # In the log of a table they are written as in an address.
            files=tuple(f"{self.root}/{name}/{unquote(action['path'])}" for action in self._files(name)),
            partition_by=tuple(handle.metadata().partition_columns),
        )

    def _advice(self, error: Exception, mentioned: Sequence[str], everything: bool) -> str:
        import duckdb  # noqa: PLC0415

        text = str(error).strip()
        if isinstance(error, duckdb.CatalogException) and (missing := _NO_TABLE.match(text)):
            return f"there is no table {missing[1]}; there are {', '.join(self.names)}"
        if isinstance(error, duckdb.ParserException):
            named = {field.name for name in mentioned for field in self._schema(name)}
            near = _NEAR.search(text)
            word = near[1] if near is not None and near[1] in named else "offset"
            if word in named:
                text += f'\n{word} is also a word of SQL: as a column it is "{word}", in quotes'
        if isinstance(error, duckdb.BinderException):
            for name in mentioned:
                names = _visible(self._schema(name), everything).names
                text += f"\n{name} has {', '.join(names)}"
        return text


_KNOWN_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Of Delta: those that leave what is in a file as it is."""

_NO_TABLE = re.compile(r"Catalog Error: Table with name (.*?) does not exist")

_NEAR = re.compile(r'syntax error at or near "(\w+)"')


def _empty(schema: pa.Schema, everything: bool) -> View:
    return View(columns=_visible(schema, everything), stored=schema, files=(), partition_by=())


def _visible(schema: pa.Schema, everything: bool) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    return schema if everything else pa.schema([field for field in schema if not field.name.startswith("_")])


def _columns(table: str, fields: Any, before: str) -> Iterator[ColumnInfo]:
    import pyarrow as pa  # noqa: PLC0415

    for field in fields:
        name = before + field.name
        yield ColumnInfo(name, type_text(field.type), meaning(table, name))
        if pa.types.is_struct(field.type):
            yield from _columns(table, field.type, f"{name}.")


def type_text(kind: pa.DataType) -> str:
    """As Spark would call it."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_list(kind):
        inner = kind.value_type
        if pa.types.is_struct(inner):
            return "array<struct<" + ", ".join(f"{each.name}: {type_text(each.type)}" for each in inner) + ">>"
        return f"array<{type_text(inner)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    names = {"int32": "int", "int64": "bigint", "bool": "boolean", "date32[day]": "date"}
    return names.get(str(kind), str(kind))


def _as_time(value: dt.date) -> dt.datetime:
    if isinstance(value, dt.datetime):
        at = value.astimezone(dt.UTC)
        return dt.datetime.combine(at.date(), at.timetz())  # of a time that is too far, the last that there is
    return dt.datetime.combine(value, dt.time(), dt.UTC)
