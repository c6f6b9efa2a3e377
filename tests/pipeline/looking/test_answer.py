"""Values, for people and for JSON."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from slipstream.pipeline.looking import Tables
from slipstream.pipeline.looking.answer import json_value, value_text
from tests.pipeline.sample_tables import make_table

AT = dt.datetime(2030, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("as it is", "as it is"),
        (b"bytes that are text", "bytes that are text"),
        (b"\xff\x00", "0xff00"),
        (AT, "2030-01-02 03:04:05Z"),
        (AT.replace(microsecond=7), "2030-01-02 03:04:05.000007Z"),
        (dt.date(2030, 1, 2), "2030-01-02"),
        (True, "true"),
        (1 / 3, "0.3333333333"),
        (7, "7"),
        ({"a": [1, AT], "b": b"\xff"}, '{"a": [1, "2030-01-02T03:04:05Z"], "b": {"hex": "ff"}}'),
    ],
)
def test_a_value_as_people_read_it(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"text", "text"),
        (b"\xff", {"hex": "ff"}),
        ({"a": [b"\xff", AT]}, {"a": [{"hex": "ff"}, "2030-01-02T03:04:05Z"]}),
    ],
)
def test_a_value_as_json_has_it(value: object, plain: Any) -> None:
    assert json_value(value) == plain


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("interval '25 hours'", "1 day, 1:00:00"),
        ("interval '3 months 2 days'", "3 months, 2 days, 0:00:00"),
        ("interval '2000000000 days 1 hour'", "2000000000 days, 1:00:00"),
        ("make_timestamptz(316516204800000000)", "+12000-01-01T00:00:00Z"),
        ("timestamp '1144-08-15 (BC) 00:00:01'", "-1143-08-15T00:00:01"),
    ],
)
def test_spans_and_times_that_are_beyond_what_python_has(tmp_path: Path, sql: str, text: str) -> None:
    make_table(tmp_path, "stuck_slips")
    ((value,),) = Tables(tmp_path).query(f"select {sql}")
    assert value_text(value) == json_value(value) == text
