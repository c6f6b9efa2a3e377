"""Rows that take in what comes later: what each column makes of two values, said once.

Spark folds the rows of a batch with it, and the table the result of the batch into what it has. All rules are
associative and commutative (within what `Latest` compares), so it does not matter where one batch ends and the next
begins: many small ones, one large one and a batch that was repeated come to the same table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rule: TypeAlias = "Literal['min', 'max', 'sum', 'new'] | Latest"
"""`new`: what comes takes the place of what was, because it was counted anew, with all that belongs to it."""


SUM_MAX = 2**62 - 1
"""Where sums end. Two of them can still be added, and what is added in parts comes to the same: a liar who says that a
download had a billion gigabytes, often enough, stops nobody's tables."""


class Latest(msgspec.Struct, frozen=True):
    """Of two, the one whose `by` is greater. Those are columns of the table themselves."""

    by: tuple[str, ...]


class Fold(msgspec.Struct, frozen=True):
    """The key of a row, and a rule for every other column.

    Example:
        Fold(("tenant", "minute"), {"bytes": "sum", "first_at": "min"})
    """

    key: tuple[str, ...]
    rules: dict[str, Rule]
    seen: str = ""
    """A column that says when the last message of a row was stored: what is too old to be found again is passed over.
    By the broker's clock, because producers may set theirs to any time."""
    begun: str = ""
    """A column that says when the first of it was: what began before what is left of its sources is not made again."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.rules)

    def collapse(self, rows: DataFrame) -> DataFrame:
        """One row a key."""
        assert "new" not in self.rules.values(), "what is counted anew is not put together of parts"
        from pyspark.sql import functions as f  # noqa: PLC0415 - who only looks at tables has no Spark

        compound = self._compound()
        folded = []
        for name, rule in self.rules.items():
            by = rule.by if isinstance(rule, Latest) else compound.get(name)
            if by is not None:
                # One for all that go by the same: each on its own would be compared anew for every column.
                value = f.max(f.struct(*by, *self._of(by)))[name]
            elif rule == "sum":
                there = f.count(name) > 0
                value = f.when(there, f.least(f.coalesce(f.try_sum(name), f.lit(SUM_MAX)), f.lit(SUM_MAX)))
                value = value.cast(rows.schema[name].dataType)
            else:
                value = (f.min if rule == "min" else f.max)(name)
            folded.append(value.alias(name))
        return rows.groupBy(*self.key).agg(*folded).select(*self.columns)

    def updates(self) -> dict[str, str]:
        """Column → what it becomes, where `t` is the row that is there and `s` the one that comes."""
        compound = self._compound()
        found = {}
        for name, rule in self.rules.items():
            if name in compound:
                found[name] = _chosen(name, compound[name])
            elif isinstance(rule, Latest):
                found[name] = _chosen(name, rule.by)
            elif rule == "new":
                found[name] = f"s.{_q(name)}"
            elif rule == "sum":
                t, s = f"t.{_q(name)}", f"s.{_q(name)}"
                more = f"CASE WHEN {t} > {SUM_MAX} - {s} THEN {SUM_MAX} ELSE {t} + {s} END"
                found[name] = f"CASE WHEN {s} IS NULL THEN {t} WHEN {t} IS NULL THEN {s} ELSE {more} END"
            else:
                sign = "<" if rule == "min" else ">"
                t, s = f"t.{_q(name)}", f"s.{_q(name)}"
                found[name] = f"CASE WHEN {s} IS NULL THEN {t} WHEN {t} IS NULL OR {s} {sign} {t} THEN {s} ELSE {t} END"
        return found

    def match(self) -> str:
        return " AND ".join(f"t.{_q(name)} = s.{_q(name)}" for name in self.key)

    def _of(self, by: tuple[str, ...]) -> list[str]:
        """Columns of whoever is the latest by these, without them."""
        return [
            name for name, rule in self.rules.items() if isinstance(rule, Latest) and rule.by == by and name not in by
        ]

    def _compound(self) -> dict[str, tuple[str, ...]]:
        """Columns that are compared, and those they are compared with."""
        orders = {rule.by for rule in self.rules.values() if isinstance(rule, Latest)}
        return {name: by for by in orders for name in by}


def _chosen(name: str, by: tuple[str, ...]) -> str:
    return f"CASE WHEN {_is_later(by)} THEN s.{_q(name)} ELSE t.{_q(name)} END"


def _is_later(by: tuple[str, ...]) -> str:
    """Whether `s` is later than `t`, which it is not where they are the same: then it is the same event."""
    first, *rest = by
    t, s = f"t.{_q(first)}", f"s.{_q(first)}"
    later = f"({s} IS NOT NULL AND ({t} IS NULL OR {s} > {t}))"
    return f"({later} OR ({s} = {t} AND {_is_later(tuple(rest))}))" if rest else later


def _q(name: str) -> str:
    return f'"{name}"'
