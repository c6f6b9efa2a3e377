"""Header fields of answers, as honest and as careless servers write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from slipstream.jobs.download.answer import ContentRange, content_range, mime, plain, retry_after_s, validator

NOW = datetime(2024, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30.0),
        (" 0 ", 0.0),
        ("Mon, 01 Jan 2024 12:00:10 GMT", 10.0),
        ("Monday, 01-Jan-24 12:00:10 GMT", 10.0),
        ("Mon, 01 Jan 2024 11:59:00 GMT", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("99999999999999", None),
        ("٣", None),
        ("Mon, 99 Jan 2024 12:00:10 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_nonsense_is_ignored(text: str, expected: float | None) -> None:
    assert retry_after_s({"Retry-After": text}, NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes 5-9/10", ContentRange(5, 9, 10)),
        ("bytes 0-0/*", ContentRange(0, 0, None)),
        ("bytes 9-5/10", None),
        ("bytes 5-10/10", None),
        ("bytes */10", None),
        ("items 0-1/2", None),
        ("", None),
    ],
)
def test_a_content_range_is_read_or_is_none(text: str, expected: ContentRange | None) -> None:
    assert content_range({"Content-Range": text}) == expected


OLD, NEW = "Mon, 01 Jan 2024 12:00:00 GMT", "Mon, 01 Jan 2024 13:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"ETag": '"a"'}, '"a"'),
        ({"ETag": '"a"', "Last-Modified": OLD, "Date": NEW}, '"a"'),
        ({"ETag": 'W/"a"'}, ""),
        ({"ETag": "a"}, ""),
        ({"ETag": 'W/"a"', "Last-Modified": OLD, "Date": NEW}, OLD),
        ({"Last-Modified": OLD, "Date": OLD}, ""),
        ({"Last-Modified": OLD}, ""),
        ({"ETag": '"a"', "Accept-Ranges": "none"}, ""),
        ({"Accept-Ranges": "bytes"}, ""),
        ({}, ""),
    ],
)
def test_only_what_proves_the_same_bytes_is_a_validator(headers: dict[str, str], expected: str) -> None:
    assert validator(CIMultiDict(headers)) == expected


def test_a_field_that_is_handed_on_is_plain_or_nothing() -> None:
    assert plain('W/"a"') == 'W/"a"'
    assert [plain(text) for text in ("\udcff", "a\x07", "ä", "x" * 2000)] == [""] * 4


def test_the_type_is_without_parameters_or_is_nothing() -> None:
    assert mime({"Content-Type": "Text/HTML; charset=utf-8"}) == "text/html"
    assert mime({"Content-Type": "nonsense"}) == ""
    assert mime({"Content-Type": "a/b<script>"}) == ""
    assert mime({}) == ""


@given(st.text(max_size=60))
def test_no_text_upsets_them(text: str) -> None:
    fields = dict.fromkeys(("Retry-After", "Content-Range", "ETag", "Last-Modified", "Date", "Content-Type"), text)
    wait_s = retry_after_s(fields)
    assert wait_s is None or wait_s >= 0
    content_range(fields), validator(fields), mime(fields)
