"""Values, for people and for JSON."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from slipstream.pipeline.looking.answer import json_value, value_text

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
