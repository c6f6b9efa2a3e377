"""Times that Python has no numbers for: before the year 1, or after 9999. Clocks and units that are wrong make them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class FarTime(dt.datetime):
    """Is compared and reckoned with as the first or last moment that Python has, and shown as what it is."""

    text = ""

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return self.text or super().isoformat(sep, timespec)

    def __format__(self, form: str) -> str:
        return self.text or super().__format__(form)

    def __str__(self) -> str:
        return self.text or super().__str__()


class FarDate(dt.date):
    text = ""

    def isoformat(self) -> str:
        return self.text or super().isoformat()

    def __format__(self, form: str) -> str:
        return self.text or super().__format__(form)

    def __str__(self) -> str:
        return self.isoformat()


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values of Arrow as Python has them, with such times anywhere inside of them."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_python_value(each) for each in column]
    return values


def _python_value(scalar: pa.Scalar) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_map(kind):
        return [(_python_value(pair["key"]), _python_value(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_python_value(each) for each in scalar.values]
    if pa.types.is_struct(kind):
        return {name: _python_value(each) for name, each in scalar.items()}
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_timestamp(kind):
            return _far_time(scalar.value, kind)
        if pa.types.is_date32(kind):
            return _far_date(scalar.value)
        raise


def _far_time(value: int, kind: pa.DataType) -> FarTime:
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[kind.unit]
    seconds, part = divmod(value, per_second)
    days, second = divmod(seconds, 86_400)
    fraction = f".{part:0{len(str(per_second)) - 1}}" if part else ""
    zone = dt.UTC if kind.tz else None
    edge = dt.datetime.max if value > 0 else dt.datetime.min
    found = FarTime(*edge.timetuple()[:6], edge.microsecond, zone)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    found.text = f"{_day_text(days)}T{clock}{fraction}{'Z' if zone else ''}"
    return found


def _far_date(days: int) -> FarDate:
    edge = dt.date.max if days > 0 else dt.date.min
    found = FarDate(edge.year, edge.month, edge.day)
    found.text = _day_text(days)
    return found


_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""After which the calendar is the same again."""


def _day_text(days: int) -> str:
    """As ISO 8601 writes years of other than four digits: with their sign."""
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = dt.date(1970, 1, 1) + dt.timedelta(days=rest)
    return f"{day.year + cycles * _CYCLE_YEARS:+05}-{day:%m-%d}"
