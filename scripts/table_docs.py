"""The reference of the tables, from their registry: what each is, and every column."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.pipeline.looking import meaning
from slipstream.pipeline.looking.folder import type_text
from slipstream.pipeline.tables import TABLES, Table

_INTRODUCTION = """\
# Every table and column

<!-- Written by scripts/generate_docs.py from slipstream/pipeline: change it there. -->

What the tables are for, and how to ask them: [tables](tables.md). Times are in UTC; columns that begin with `_` are the
pipeline's own, and left out here.
"""


def render_tables() -> str:
    lines = [_INTRODUCTION]
    for layer in ("bronze", "silver", "gold"):
        lines += [f"## {layer.capitalize()}", ""]
        for table in TABLES.values():
            if table.layer == layer:
                lines += _table(table)
    return "\n".join(lines)


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {table.name}", "", table.what)
    kept = f"Kept for {table.keep_days} days after `{table.time}`." if table.keep_days else "Kept for ever."
    key = f" One row for each {_listed(table.fold.key)}." if table.fold is not None else ""
    parts = f" Partitioned by {_listed(table.partition_by)}." if table.partition_by else ""
    made = f" Made of {_listed(table.sources)}." if table.sources else ""
    yield from (f"{kept}{key}{made}{parts}", "", "| column | type | meaning |", "|---|---|---|")
    for field in table.columns:
        if not field.name.startswith("_"):
            yield f"| `{field.name}` | `{type_text(field.type)}` | {meaning(table.name, field.name)} |"
    yield ""


def _listed(names: tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
