"""What the header fields of an answer say: when to come again, which part this is, and how to know it again."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import msgspec

FIELD_LENGTH_MAX = 1024

_MIME = re.compile(r"[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}", re.ASCII)
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e]*"', re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,10}", re.ASCII)
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.ASCII | re.IGNORECASE)


class ContentRange(msgspec.Struct, frozen=True):
    start: int
    end: int
    """The last byte, not the one after."""
    total: int | None


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """What Retry-After asks for, in seconds or as a date; None where it makes no sense."""
    text = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    date = _date(text)
    if date is None:
        return None
    wait_s = (date - (now or datetime.now(UTC))).total_seconds()
    return wait_s if wait_s > 0 else None


def content_range(headers: Mapping[str, str]) -> ContentRange | None:
    """None where there is none, or one that contradicts itself."""
    found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if found is None:
        return None
    start, end = int(found[1]), int(found[2])
    total = None if found[3] == "*" else int(found[3])
    if start > end or (total is not None and end >= total):
        return None
    return ContentRange(start, end, total)


def validator(headers: Mapping[str, str]) -> str:
    """By what a later answer can be known to be of the same bytes: a strong ETag, or a date of which it is certain that
    nothing changed within its second; "" if there is none, or if the server does not do ranges."""
    if headers.get("Accept-Ranges", "").strip().lower() == "none":
        return ""
    etag = headers.get("ETag", "")
    if _STRONG_ETAG.fullmatch(etag):
        return etag
    modified, now = _date(headers.get("Last-Modified", "")), _date(headers.get("Date", ""))
    if modified is not None and now is not None and now - modified >= timedelta(seconds=1):
        return headers["Last-Modified"]
    return ""


def plain(text: str) -> str:
    """A field that is handed on, to be stored and shown; "" if it is not plain text of a decent length."""
    return text if len(text) <= FIELD_LENGTH_MAX and text.isascii() and text.isprintable() else ""


def mime(headers: Mapping[str, str]) -> str:
    """The type alone, without parameters; "" where it is missing or nonsense."""
    return _mime(headers.get("Content-Type", ""))


@functools.lru_cache(256)
def _mime(text: str) -> str:
    text = text.partition(";")[0].strip().lower()
    return text if _MIME.fullmatch(text) else ""


def _date(text: str) -> datetime | None:
    if not text or len(text) > 100:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
