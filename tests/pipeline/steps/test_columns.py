"""What a function is given, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from slipstream.pipeline.steps.attempt import Outcome
from slipstream.pipeline.steps.columns import fields_of, given, outcomes
from slipstream.pipeline.steps.errors import AnswerRefused
from slipstream.slip.event import Status, StepError
from tests.pipeline.steps.events import attempt

ATTEMPTS = [attempt(number, {"n": number, "text": f"t{number}"}) for number in range(3)]
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("absent", pa.float64())])


def said(answered: object, schema: pa.Schema | None = None) -> list[Outcome | None]:
    return outcomes(ATTEMPTS, given(ATTEMPTS, schema), answered)


def payloads(found: list[Outcome | None]) -> list[bytes | None]:
    return [None if each is None or each.payload is None else bytes(each.payload) for each in found]


def test_a_row_is_a_message() -> None:
    batch = given(ATTEMPTS, None)
    assert batch.to_pylist()[1] == {
        "row": 1,
        "correlation_id": "c-1",
        "type": "order.v1",
        "attempt": 0,
        "payload": '{"n":1,"text":"t1"}',
    }


def test_with_a_schema_the_fields_of_the_payload_are_columns() -> None:
    batch = given(ATTEMPTS, SCHEMA)
    assert batch.schema.names == ["row", "correlation_id", "type", "attempt", "n", "text", "absent"]
    assert batch.column("text").to_pylist() == ["t0", "t1", "t2"]
    assert batch.column("absent").null_count == 3


@pytest.mark.parametrize("texts", [[b"null"], [b"null", b'{"n": 2}', b" null"]])
def test_the_fields_of_a_payload_that_is_null_are_null(texts: list[bytes]) -> None:
    columns = fields_of(texts, SCHEMA)
    assert columns["n"].to_pylist() == [2 if b"2" in text else None for text in texts]
    assert [column.type for column in columns.values()] == SCHEMA.types


def test_a_field_that_was_not_touched_stays_as_it_was_also_where_rows_are_missing() -> None:
    schema = pa.schema([("addr", pa.struct([("city", pa.string())])), ("n", pa.int64()), ("big", pa.float64())])
    attempts = [attempt(n, {"n": n, "addr": {"city": "X", "street": "Y"}, "big": 12345678901234567}) for n in range(3)]
    batch = given(attempts, schema)
    changed = batch.set_column(batch.schema.names.index("n"), "n", pa.array([7, 1, 2])).take(pa.array([2, 0]))
    found = outcomes(attempts, batch, changed)
    assert payloads(found) == [b'{"n":7,"addr":{"city":"X","street":"Y"},"big":12345678901234567}', None, None]
    assert found[1:] == [None, Outcome()]


@pytest.mark.parametrize("payload", ["text", [1], {"n": "no number"}])
def test_a_payload_that_does_not_fit_the_schema_is_said(payload: Any) -> None:
    with pytest.raises(AnswerRefused, match=r"schema|objects"):
        given([attempt(0, payload)], SCHEMA)


def test_what_comes_back_as_it_was_changes_nothing() -> None:
    assert said(given(ATTEMPTS, None)) == [Outcome()] * 3
    assert said(given(ATTEMPTS, SCHEMA), SCHEMA) == [Outcome()] * 3


def test_other_columns_are_fields_of_the_payload_where_they_are_not_null() -> None:
    found = said(pa.table({"vector": [[0.5, 1.0], None, []], "lang": ["de", "en", None]}))
    assert payloads(found) == [
        b'{"n":0,"text":"t0","vector":[0.5,1.0],"lang":"de"}',
        b'{"n":1,"text":"t1","lang":"en"}',
        b'{"n":2,"text":"t2","vector":[]}',
    ]


def test_a_payload_replaces_the_payload() -> None:
    found = said(pa.record_batch({"payload": ['{"new": 1}', None, "[1, 2]"]}))
    assert payloads(found) == [b'{"new": 1}', None, b"[1, 2]"]


def test_status_notes_and_error_are_those_of_the_step() -> None:
    error = pa.array([None, None, {"code": "gone", "message": "m", "retryable": False}])
    found = said(pa.table({"status": ["OK", "SKIP", None], "notes": ["a", None, "c"], "error": error}))
    assert found == [
        Outcome(notes="a"),
        Outcome(Status.SKIP),
        Outcome(Status.ERROR, notes="c", error=StepError("gone", "m", retryable=False)),
    ]


def test_an_error_that_is_text_may_be_tried_again() -> None:
    found = said(pa.table({"error": ["no connection", None, None]}))
    assert found[0] == Outcome(Status.ERROR, error=StepError("failed", "no connection", retryable=True))
    assert found[1:] == [Outcome(), Outcome()]


def test_rows_are_told_by_their_number_in_any_order_and_may_be_missing() -> None:
    found = said(pa.table({"row": pa.array([2, 0], pa.int32()), "x": [20, 0]}))
    assert payloads(found) == [b'{"n":0,"text":"t0","x":0}', None, b'{"n":2,"text":"t2","x":20}']
    assert found[1] is None


@pytest.mark.parametrize(
    ("answered", "why"),
    [
        (None, "NoneType"),
        ([1, 2, 3], "list"),
        (pa.table({"x": [1, 2]}), "returned 2"),
        (pa.table({"row": [0, 0, 1]}), "twice"),
        (pa.table({"row": [0, 1, 3]}), "not given"),
        (pa.table({"status": ["OK", "FINE", "OK"]}), "FINE"),
        (pa.table({"error": [1, 2, 3]}), "code, message"),
        (pa.table({"payload": ["{", "{}", "{}"]}), "no JSON"),
        (pa.table({"payload": [1, 2, 3]}), "as text"),
        (pa.table({"payload": [b'"\xff"', b"{}", b"{}"]}), "no JSON"),
        (pa.table({"status": [["OK"], ["OK"], ["OK"]]}), "status is OK"),
        (pa.Table.from_arrays([pa.array([1, 2, 3])] * 2, ["x", "x"]), "two columns"),
        (pa.table({"payload": ["[]", "1", "2"], "x": [1, 2, 3]}), "no object"),
    ],
)
def test_what_is_no_answer_is_refused_with_words(answered: object, why: str) -> None:
    with pytest.raises(AnswerRefused, match=why):
        said(answered)
