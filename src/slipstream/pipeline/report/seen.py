"""What the report is about: the tables, and the span of time that it shows."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import msgspec

from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.looking import Tables
from slipstream.pipeline.report.html import Html

MINUTE = dt.timedelta(minutes=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SPAN_MAX = dt.timedelta(days=3660)
"""More than any table keeps."""
AT_WORK = "step NOT IN (SELECT step FROM slip_events WHERE kind IN ('waiting', 'forked'))"
"""The condition that the column `step` is a step that a worker does: the time of others is that of a person's decision,
or of branches."""
POINTS_MAX = 144
"""Across a plot: of a day, one for ten minutes."""


class Section(msgspec.Struct, frozen=True):
    name: str
    """In the address of the page."""
    title: str
    body: Html


class Seen:
    """The tables, and from when to when they are looked at: the last hours that anything was counted in.

    Example:
        seen = Seen(Tables(root), dt.timedelta(days=1), dt.datetime.now(dt.UTC))
    """

    def __init__(self, tables: Tables, span: dt.timedelta, now: dt.datetime) -> None:
        """Raises InvalidPipeline for a span that shows nothing, or that nobody has kept."""
        if not dt.timedelta(0) < span <= SPAN_MAX:
            raise InvalidPipeline(f"plots show up to {SPAN_MAX.days} days, and not {span}: say 24h, or 7d")
        self.tables = tables
        self.now = now
        first, last = self._counted(span)
        self.since, self.until = first, last + MINUTE
        minutes = math.ceil((self.until - self.since) / MINUTE)
        self.bucket_minutes = max(1, math.ceil(minutes / POINTS_MAX))
        bucket = self.bucket_minutes * MINUTE
        self.times = [self.since + index * bucket for index in range(math.ceil((self.until - self.since) / bucket))]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return list(self.tables.query(sql).dicts())

    @property
    def within(self) -> str:
        """The condition that the column `minute` is in the span."""
        return f"minute >= {moment(self.since)} AND minute < {moment(self.until)}"

    @property
    def index(self) -> str:
        """In SQL, which point of a plot the column `minute` belongs to."""
        micros = round(self.since.timestamp() * 1_000_000)
        return f"cast(floor((epoch_us(minute) - {micros}) / {self.bucket_minutes * 60_000_000}) as int)"

    def _counted(self, span: dt.timedelta) -> tuple[dt.datetime, dt.datetime]:
        minutes = "SELECT minute FROM job_throughput UNION ALL SELECT minute FROM step_metrics"
        # A clock that is ahead must not move everything else out of sight; before 1970 there were no messages.
        until = moment(self.now + 10 * MINUTE)
        newest = f"SELECT max(minute) FROM ({minutes}) WHERE minute BETWEEN {moment(EPOCH)} AND {until}"
        ((last,),) = self.tables.query(newest)
        if last is None:
            last = self.now.replace(second=0, microsecond=0)
        within = f"minute > {moment(last - span)} AND minute <= {moment(last)}"
        oldest = f"SELECT min(minute) FROM ({minutes}) WHERE {within}"
        ((first,),) = self.tables.query(oldest)
        return (first or last - span), last


def moment(at: dt.datetime) -> str:
    """A time in SQL."""
    return f"make_timestamptz({round(at.timestamp() * 1_000_000)})"


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
