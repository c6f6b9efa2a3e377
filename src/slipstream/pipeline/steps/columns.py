"""What a function is given, and what its answers mean."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from slipstream.pipeline.steps.attempt import DONE, Attempt, Outcome
from slipstream.pipeline.steps.errors import AnswerRefused
from slipstream.pipeline.steps.names import ATTEMPT, CORRELATION_ID, ERROR, GIVEN, NOTES, PAYLOAD, ROW, STATUS, TYPE
from slipstream.slip.event import Status, StepError

_checked_json = msgspec.json.Decoder(msgspec.Raw).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def given(attempts: Sequence[Attempt], schema: pa.Schema | None) -> pa.RecordBatch:
    """A row for each. Raises AnswerRefused where a payload is no text, or does not fit the schema."""
    columns: dict[str, pa.Array] = {
        ROW: pa.array(range(len(attempts)), pa.int32()),
        CORRELATION_ID: pa.array([each.event.envelope.correlation_id for each in attempts], pa.string()),
        TYPE: pa.array([each.event.type for each in attempts], pa.string()),
        ATTEMPT: pa.array([each.step.attempt or 0 for each in attempts], pa.int32()),
    }
    if schema is None:
        columns[PAYLOAD] = _texts(attempts)
    else:
        columns |= fields_of([bytes(each.event.payload) for each in attempts], schema)
    return pa.record_batch(columns)


def _texts(attempts: Sequence[Attempt]) -> pa.Array:
    payloads = pa.array([bytes(each.event.payload) for each in attempts], pa.binary())
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise AnswerRefused(f"a payload is no text: {error}") from error


def fields_of(payloads: Sequence[bytes], schema: pa.Schema) -> dict[str, pa.Array]:
    """The fields of payloads as columns; of one that is null, null. Raises AnswerRefused."""
    objects = [number for number, payload in enumerate(payloads) if payload.lstrip()[:1] == b"{"]
    if len(objects) == len(payloads):
        return _parsed(payloads, schema)
    # Arrow takes whatever is not null for an object, and does not survive a file in which nothing is one.
    if any(payload.strip() != b"null" for number, payload in enumerate(payloads) if number not in set(objects)):
        raise AnswerRefused("a payload is no object, and so does not fit the schema of the step")
    places: list[int | None] = [None] * len(payloads)
    for place, number in enumerate(objects):
        places[number] = place
    found = _parsed([payloads[number] for number in objects], schema) if objects else _nothing(schema)
    return {name: column.take(pa.array(places, pa.int64())) for name, column in found.items()}


def _nothing(schema: pa.Schema) -> dict[str, pa.Array]:
    return {field.name: pa.array([], field.type) for field in schema}


def _parsed(payloads: Sequence[bytes], schema: pa.Schema) -> dict[str, pa.Array]:
    from pyarrow import json  # noqa: PLC0415 - for those who asked for it

    options = json.ParseOptions(explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore")
    size = sum(map(len, payloads)) + len(payloads)
    reading = json.ReadOptions(use_threads=False, block_size=max(1 << 20, size))
    try:
        table = json.read_json(io.BytesIO(b"\n".join(payloads)), reading, options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise AnswerRefused(f"a payload does not fit the schema of the step: {error}") from error
    if table.num_rows != len(payloads):
        raise AnswerRefused(f"{len(payloads)} payloads are {table.num_rows} objects")
    found = table.combine_chunks()
    return {name: _one(found.column(name)) for name in schema.names}


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


# Answers


def outcomes(attempts: Sequence[Attempt], batch: pa.RecordBatch, answered: object) -> list[Outcome | None]:
    """One for each attempt; None where the function has said nothing of it. Raises AnswerRefused."""
    table = _table(answered)
    rows = _rows(table, len(attempts))
    columns = {name: table.column(name) for name in table.column_names if name not in GIVEN}
    before = batch if rows is None else batch.take(pa.array(rows, pa.int64()))
    same: dict[str, list[Any]] = {}
    for name in [name for name in columns if name in batch.schema.names]:
        # What comes back as it was given says nothing: what Arrow has made of it is not what stood there.
        if columns[name].equals(pa.chunked_array([before.column(name)])):
            del columns[name]
        elif name != PAYLOAD:
            same[name] = before.column(name).to_pylist()
    said = _said(columns, same, attempts, rows) if columns else [DONE] * table.num_rows
    if rows is None:
        return list(said)
    found: list[Outcome | None] = [None] * len(attempts)
    for row, outcome in zip(rows, said, strict=True):
        found[row] = outcome
    return found


def _table(answered: object) -> pa.Table:
    if not isinstance(answered, pa.RecordBatch | pa.Table):
        raise AnswerRefused(f"the function returned {type(answered).__name__}, and not a RecordBatch or a Table")
    if len(set(answered.schema.names)) < len(answered.schema.names):
        raise AnswerRefused("the answer has two columns of one name")
    return pa.Table.from_batches([answered]) if isinstance(answered, pa.RecordBatch) else answered


def _rows(table: pa.Table, count: int) -> list[int] | None:
    """Which attempt each row of the answer is of; None for one after the other."""
    if ROW not in table.column_names:
        if table.num_rows != count:
            raise AnswerRefused(
                f"the function was given {count} rows and returned {table.num_rows}, without the column {ROW} that "
                "says which they answer"
            )
        return None
    rows: list[int] = table.column(ROW).to_pylist()
    if rows == list(range(count)):
        return None
    if len(set(rows)) != len(rows) or any(row is None or not 0 <= row < count for row in rows):
        raise AnswerRefused(f"the column {ROW} of the answer names a row twice, or one that was not given")
    return rows


def _said(
    columns: dict[str, pa.ChunkedArray],
    same: dict[str, list[Any]],
    attempts: Sequence[Attempt],
    rows: list[int] | None,
) -> list[Outcome]:
    """`same` has what was given, of columns that have changed in some rows."""
    values = {name: column.to_pylist() for name, column in columns.items()}
    found = []
    for place, row in enumerate(range(len(attempts)) if rows is None else rows):
        said = {
            name: column[place]
            for name, column in values.items()
            if name not in same or column[place] != same[name][place]
        }
        found.append(outcome_of(attempts[row], said))
    return found


def outcome_of(attempt: Attempt, said: dict[str, Any]) -> Outcome:
    """What one row of an answer means. Raises AnswerRefused."""
    error = None if (given_error := said.pop(ERROR, None)) is None else _error(given_error)
    status = _status(said.pop(STATUS, None), error)
    notes, payload = said.pop(NOTES, None), said.pop(PAYLOAD, None)
    if status is Status.ERROR and error is None:
        error = StepError("failed", None, retryable=True)
    kept = _with_fields(attempt, _payload(attempt, payload), said) if status is Status.OK else None
    return Outcome(status, kept, None if notes is None else str(notes), error)


def _status(said: object, error: StepError | None) -> Status:
    if said is None:
        return Status.OK if error is None else Status.ERROR
    if isinstance(said, str) and said in {Status.OK, Status.SKIP, Status.ERROR}:
        return Status(said)
    raise AnswerRefused(f"status is OK, SKIP or ERROR, and not {said!r:.80}")


def _error(said: object) -> StepError:
    if isinstance(said, str):
        return StepError("failed", said, retryable=True)
    if isinstance(said, dict) and isinstance(code := said.get("code"), str) and code:
        message, retryable = said.get("message"), said.get("retryable")
        return StepError(code, None if message is None else str(message), retryable is not False)
    raise AnswerRefused(f"error is text, or a struct of code, message and retryable, and not {said!r:.80}")


def _payload(attempt: Attempt, said: object) -> msgspec.Raw | None:
    if said is None:
        return None
    data = said.encode() if isinstance(said, str) else said
    if not isinstance(data, bytes):
        raise AnswerRefused(f"payload is JSON, as text, and not {type(said).__name__}")
    if data == bytes(attempt.event.payload):
        return None
    try:
        data.decode()
        return msgspec.Raw(bytes(_checked_json(data)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AnswerRefused(f"payload is no JSON: {error}") from error


def _with_fields(attempt: Attempt, payload: msgspec.Raw | None, fields: dict[str, Any]) -> msgspec.Raw | None:
    """A field that is null says nothing: columns have a value in every row, and messages have not."""
    put = {name: value for name, value in fields.items() if value is not None}
    if not put:
        return payload
    found = _decode(attempt.event.payload if payload is None else payload)
    if not isinstance(found, dict):
        raise AnswerRefused(f"there is no place for {', '.join(put)}: the payload is no object")
    try:
        return msgspec.Raw(_encode(found | put))
    except (TypeError, ValueError) as error:
        raise AnswerRefused(f"what was returned cannot be sent as JSON: {error}") from error
