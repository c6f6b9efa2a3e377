"""Attributes: strings, and what is always there."""

from __future__ import annotations

import re

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from slipstream.bus import InvalidArgument
from slipstream.bus.attributes import Attributes, normalize
from slipstream.handling import HANDLED


def test_values_are_strings_and_names_stay_as_they_are() -> None:
    given: Attributes = {
        "customerId": "C-17",
        "count": 3,
        "half": 0.5,
        "isTest": True,
        "isReal": False,
        "none": None,
    }
    attributes = normalize(given)
    del attributes["traceparent"], attributes["correlationId"]
    assert attributes == {"customerId": "C-17", "count": "3", "half": "0.5", "isTest": "true", "isReal": "false"}


def test_what_was_given_is_not_changed() -> None:
    given = {"a": "b"}
    normalize(given)
    assert given == {"a": "b"}


@pytest.mark.parametrize("given", [{"list": [1]}, {"bytes": b"x"}, {1: "x"}, {"": "x"}])
def test_what_is_no_text_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        normalize(given)


def test_a_trace_and_a_correlation_begin_where_there_is_none() -> None:
    one, other = normalize(None), normalize({})
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", one["traceparent"])
    assert one["traceparent"] != other["traceparent"]
    assert one["correlationId"] != other["correlationId"]


def test_those_of_the_message_in_hand_are_continued() -> None:
    trace_id = "ab" * 16
    token = HANDLED.set({"correlationId": "c-1", "traceparent": f"00-{trace_id}-{'cd' * 8}-00"})
    try:
        attributes = normalize(None)
        assert attributes["correlationId"] == "c-1"
        assert re.fullmatch(rf"00-{trace_id}-[0-9a-f]{{16}}-00", attributes["traceparent"])
        assert "cd" * 8 not in attributes["traceparent"]
        assert normalize({"correlationId": "mine"})["correlationId"] == "mine"
    finally:
        HANDLED.reset(token)


def test_a_trace_that_cannot_be_read_is_not_continued() -> None:
    token = HANDLED.set({"traceparent": "nonsense"})
    try:
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", normalize(None)["traceparent"])
    finally:
        HANDLED.reset(token)


def test_the_span_of_opentelemetry_is_the_parent() -> None:
    context = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(context)):
        assert normalize(None)["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


@pytest.mark.parametrize("given", [{"a": "\ud800"}, {"\ud800": "a"}])
def test_what_no_engine_can_send_is_refused(given: Attributes) -> None:
    with pytest.raises(InvalidArgument, match="UTF-8"):
        normalize(given)


def test_kinds_of_text_become_text() -> None:
    """An engine may not know them."""

    class Name(str):
        __slots__ = ()

    attributes = normalize({Name("a"): Name("b"), Name("ü"): Name("ä")})
    assert {type(text) for pair in attributes.items() for text in pair} == {str}
