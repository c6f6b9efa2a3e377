"""Columns that many tables have."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import pyarrow as pa

from slipstream.pipeline.delta.fold import Fold, Rule

TEXT = pa.string()
COUNT = pa.int64()
NUMBER = pa.int32()
TIME = pa.timestamp("us", "UTC")
DAY = pa.date32()
FLAG = pa.bool_()
REAL = pa.float64()
TEXTS = pa.list_(pa.field("element", pa.string()))
ATTRIBUTES = pa.map_(pa.string(), pa.string())

Columns: TypeAlias = dict[str, pa.DataType]

PLACE: Columns = {"topic": TEXT, "partition": NUMBER, "offset": COUNT, "timestamp": TIME, "date": DAY}
"""Where a message is in the log, and when it was stored there."""


def schema(*parts: Columns) -> pa.Schema:
    """All nullable: what a newer table has more is null in the files of an older one."""
    return pa.schema([pa.field(name, kind) for part in parts for name, kind in part.items()])


class Folded(NamedTuple):
    columns: pa.Schema
    fold: Fold


def folded(key: Columns, values: dict[str, tuple[pa.DataType, Rule]], *, seen: str = "", begun: str = "") -> Folded:
    """The columns of a table whose rows take in what comes later, each said once with its type and its rule."""
    kinds = {name: kind for name, (kind, _) in values.items()}
    rules = {name: rule for name, (_, rule) in values.items()}
    return Folded(schema(key, kinds), Fold(tuple(key), rules, seen, begun))


def columns_of(schema: pa.Schema) -> Columns:
    return {field.name: field.type for field in schema}
