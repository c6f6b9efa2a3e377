"""Tables held against each other, row for row, with the first difference told so that one sees what went wrong."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tests.pipeline.rows import Row

PLACE = ("topic", "partition", "offset")

KEYS: dict[str, tuple[str, ...]] = {
    "messages": PLACE,
    "download_tasks": PLACE,
    "job_status": PLACE,
    "job_logs": PLACE,
    "dead_letters": PLACE,
    "quarantine": PLACE,
    "slip_events": (*PLACE, "index"),
    "slip_steps": ("correlation_id", "run", "step", "attempt"),
    "slip_runs": ("correlation_id", "run"),
    "job_snapshots": ("job_id",),
    "job_throughput": ("tenant", "minute"),
    "tenant_usage": ("tenant", "day"),
    "step_metrics": ("step", "minute"),
    "dead_letter_causes": ("failure_code", "host", "tenant"),
    "run_lineage": ("origin", "run_id", "step_id"),
    "stuck_slips": ("correlation_id", "run"),
}
"""By which the rows of each table are told apart."""

Key: TypeAlias = tuple[Any, ...]


# With what is expected


def assert_table(name: str, path: Path, expected: Iterable[Row]) -> None:
    assert_rows(name, read_rows(name, path), expected)


def assert_rows(name: str, found: Iterable[Row], expected: Iterable[Row]) -> None:
    """Why something is in quarantine is said in anybody's own words, as long as it is said."""
    by_key, wanted = _by_key(name, found), _by_key(name, expected)
    missing, extra = wanted.keys() - by_key.keys(), by_key.keys() - wanted.keys()
    counts = f"{name} has {len(by_key)} rows, and should have {len(wanted)}"
    if missing:
        first = min(missing, key=_order)
        raise AssertionError(f"{counts}: {len(missing)} are missing, the first is\n  {_shown(wanted[first])}")
    if extra:
        first = min(extra, key=_order)
        raise AssertionError(f"{counts}: {len(extra)} should not be there, the first is\n  {_shown(by_key[first])}")
    different = [key for key in wanted if _differences(name, by_key[key], wanted[key])]
    if different:
        first = min(different, key=_order)
        lines = _differences(name, by_key[first], wanted[first])
        raise AssertionError(
            f"{name}: {len(different)} of {len(wanted)} rows are not as they should be; the first is "
            f"{dict(zip(KEYS[name], first, strict=True))}:\n" + "\n".join(f"  {line}" for line in lines)
        )


def read_rows(name: str, path: Path) -> list[Row]:
    """Without what is only there to find files and versions by: columns that begin with `_`, and `date`."""
    table = DeltaTable(path).to_pyarrow_table()
    _check_dates(name, table)
    _check_times(name, table)
    kept = [column for column in table.column_names if not column.startswith("_") and column != "date"]
    columns = {column: _plain(table.column(column)) for column in kept}
    return [dict(zip(kept, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _check_dates(name: str, table: pa.Table) -> None:
    if "date" in table.column_names and "timestamp" in table.column_names:
        days = pc.cast(table.column("timestamp"), pa.date32())
        assert pc.all(pc.equal(days, table.column("date"))).as_py() in {True, None}, (
            f"{name} has rows whose date is not that of their timestamp"
        )


def _check_times(name: str, table: pa.Table) -> None:
    for field in table.schema:
        if pa.types.is_timestamp(field.type):
            assert field.type == pa.timestamp("us", "UTC"), f"{name}.{field.name} is {field.type}"


def _plain(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [_value(value, column.type) for value in values] if pa.types.is_nested(column.type) else values


def _value(value: Any, kind: pa.DataType) -> Any:
    """Maps as dictionaries: Arrow has them as lists of pairs."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        found = {key: _value(item, kind.item_type) for key, item in value}
        assert len(found) == len(value), f"a map has a name twice: {value}"
        return found
    if pa.types.is_struct(kind):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    return [_value(item, kind.value_type) for item in value]


def _by_key(name: str, rows: Iterable[Row]) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    for row in rows:
        absent = [column for column in KEYS[name] if column not in row]
        assert not absent, f"{name} has no column {absent}; it has {sorted(row)}"
        key = tuple(row[column] for column in KEYS[name])
        assert key not in found, f"{name} has two rows of {key}:\n  {_shown(found[key])}\n  {_shown(row)}"
        found[key] = row
    return found


def _differences(name: str, found: Row, wanted: Row) -> list[str]:
    lines = [
        f"{column}: {_shown(found[column])}, and should be {_shown(wanted[column])}"
        for column in wanted
        if column in found and column != "reason" and not same(found[column], wanted[column])
    ]
    lines += [f"{column}: is not there" for column in wanted if column not in found]
    lines += [f"{column}: {_shown(found[column])}, and should not be there" for column in found if column not in wanted]
    if name == "quarantine" and not found.get("reason"):
        lines.append("reason: nothing")
    return lines


def same(found: Any, wanted: Any) -> bool:
    """Numbers with a fraction as far as the order of additions lets them be; True is not 1, nor 1.0 one."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(same, found, wanted))
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(wanted, dt.datetime) and isinstance(found, dt.datetime):
        return found == wanted
    return type(found) is type(wanted) and bool(found == wanted)


def _order(key: Key) -> tuple[str, ...]:
    return tuple(f"{part:020d}" if isinstance(part, int) else str(part) for part in key)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 1_000 else f"{text[:1_000]}… ({len(text)} characters)"


# With each other


def assert_same_tables(name: str, found: Path, wanted: Path) -> None:
    """Large ones, without a Python object per cell as long as they are the same."""
    left, right = (_sorted(name, path) for path in (found, wanted))
    assert left.schema.names == right.schema.names, f"{name} has {left.schema.names}, and should {right.schema.names}"
    if left.num_rows == right.num_rows and left.equals(right):
        return
    assert_rows(name, read_rows(name, found), read_rows(name, wanted))


def _sorted(name: str, path: Path) -> pa.Table:
    """In columns of one piece each, and only what is a row's own."""
    table = DeltaTable(path).to_pyarrow_table()
    kept = sorted(column for column in table.column_names if not column.startswith("_"))
    return table.select(kept).sort_by([(column, "ascending") for column in KEYS[name]]).combine_chunks()
