"""What can be typed on the command line besides text and numbers: durations, sizes, times, pairs, JSON and places."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import msgspec
import rich_click as click

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION_MS_MAX = 1_000_000 * _UNITS_MS["d"]
"""So that whoever reckons with it does not run out of numbers."""
_UNITS_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10}
_UNITS_BYTES |= {"m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\Z")


class Duration(click.ParamType[Any]):
    """Milliseconds, typed as `500ms`, `10s`, `5m`, `2h`, `7d`; 0 needs no unit."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _NUMBER.match(str(value).strip())
        if match is None or (match[2].lower() not in _UNITS_MS and float(match[1]) != 0):
            self.fail(f"{value!r} is no duration: type 500ms, 10s, 5m, 2h or 7d", param, ctx)
        ms = float(match[1]) * _UNITS_MS.get(match[2].lower(), 1)
        if ms > _DURATION_MS_MAX:
            self.fail(f"{value!r:.40} is longer than a million days: type 500ms, 10s, 5m, 2h or 7d", param, ctx)
        return round(ms)


class Size(click.ParamType[Any]):
    """Bytes, typed as `1000`, `64k`, `10m` or `2g`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _NUMBER.match(str(value).strip())
        if match is None or match[2].lower() not in _UNITS_BYTES:
            self.fail(f"{value!r} is no size: type 1000, 64k, 10m or 2g", param, ctx)
        return round(float(match[1]) * _UNITS_BYTES[match[2].lower()])


class When(click.ParamType[Any]):
    """A time: `2030-01-31T12:00:00Z`, a date, or how long ago: `10m`."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dt.datetime:
        if isinstance(value, dt.datetime):
            return value
        text = str(value).strip()
        match = _NUMBER.match(text)
        if match is not None and match[2].lower() in _UNITS_MS:
            return dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=float(match[1]) * _UNITS_MS[match[2].lower()])
        try:
            time = dt.datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{value!r} is no time: type 2030-01-31T12:00:00Z, 2030-01-31, or how long ago: 10m", param, ctx)
        return time if time.tzinfo is not None else time.astimezone()


class Later(When):
    """A time that is still to come, and not in relation to now: `2030-01-31T12:00:00Z`."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dt.datetime:
        if _NUMBER.match(str(value).strip()):
            self.fail(
                f"{value!r} is no time: type 2030-01-31T12:00:00Z; for a time from now there is --delay", param, ctx
            )
        return super().convert(value, param, ctx)


class Pair(click.ParamType[Any]):
    """`name=value`"""

    name = "name=value"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is no pair: type name=value", param, ctx)
        return name, text


class Json(click.ParamType[Any]):
    """JSON, or `@file` that holds it; `@-` is stdin."""

    name = "json|@file"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text: str | bytes = value
        try:
            if value.startswith("@"):
                with click.open_file(value[1:], "rb") as file:
                    text = file.read()
            return msgspec.json.decode(text)
        except OSError as error:
            reason = f"{value[1:]} cannot be read: {error.strerror or error}"
            self.fail(f'{reason}; type {{"books": 2}}, or @file that holds such', param, ctx)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.fail(f'{value!r:.100} is no JSON: type {{"books": 2}}, or @file that holds such ({error})', param, ctx)


class PlaceName(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int


class PlaceOf(click.ParamType[Any]):
    """`topic/partition/offset`"""

    name = "topic/partition/offset"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> PlaceName:
        if isinstance(value, PlaceName):
            return value
        parts = str(value).split("/")
        if len(parts) != 3 or not parts[1].isdigit() or not parts[2].isdigit():
            self.fail(f"{value!r} is no place: type topic/partition/offset, such as orders/0/17", param, ctx)
        return PlaceName(parts[0], int(parts[1]), int(parts[2]))


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(timestamp_ms: int) -> str:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(" ", "milliseconds")
