"""What a fetched message knows."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.api import FetchedMessage
from slipstream.client import Message, Undecodable


class Order(msgspec.Struct):
    total: int


def message(value: bytes) -> Message:
    fetched = FetchedMessage(partition=1, offset=2, timestamp_ms=1_000, attempts=3, key=b"k", value=value)
    return Message("t", "g", "o", fetched)


def test_json_is_read_into_the_type_that_is_asked_for() -> None:
    assert message(b'{"total": 3}').json(Order) == Order(3)
    assert message(b'{"total": 3}').json()["total"] == 3
    with pytest.raises(msgspec.ValidationError):
        message(b'{"total": "three"}').json(Order)


def test_its_text_does_not_show_its_value() -> None:
    assert repr(message(b"secret")) == "<Message t/1/2 attempt 3>"


def test_text_must_be_text() -> None:
    assert message("grüße".encode()).text == "grüße"
    with pytest.raises(Undecodable, match="UTF-8"):
        _ = message(b"\xff").text


def test_the_time_has_its_zone() -> None:
    assert message(b"").timestamp.isoformat() == "1970-01-01T00:00:01+00:00"
