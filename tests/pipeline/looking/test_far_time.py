"""Times that Python has no numbers for."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from slipstream.pipeline.looking.answer import json_value, value_text
from slipstream.pipeline.looking.far_time import FarTime, python_values

TIME = pa.timestamp("us", "UTC")
LATE_US, EARLY_US = 316_516_204_800_000_007, -98_217_187_199_000_000


def far(value: int, kind: pa.DataType) -> pa.Array:
    return pa.array([value], pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (LATE_US, TIME, "+12000-01-01T00:00:00.000007Z"),
        (EARLY_US, TIME, "-1143-08-15T00:00:01Z"),
        (2**63 - 1, TIME, "+294247-01-10T04:00:54.775807Z"),
        (LATE_US // 1_000_000, pa.timestamp("s"), "+12000-01-01T00:00:00"),
        (3_663_382, pa.date32(), "+12000-01-01"),
        (-719_163, pa.date32(), "+0000-12-31"),
        (-(2**31) + 1, pa.date32(), "-5877641-06-24"),
    ],
)
def test_they_are_shown_as_what_they_are(value: int, kind: pa.DataType, text: str) -> None:
    (found,) = python_values(far(value, kind))
    assert value_text(found) == json_value(found) == f"{found:%Y}" == str(found) == text


def test_they_are_found_inside_of_other_values() -> None:
    kind = pa.struct([("times", pa.list_(TIME)), ("named", pa.map_(pa.string(), TIME)), ("count", pa.int64())])
    (late,) = far(LATE_US, TIME)
    rows: list[dict[str, Any]] = [{"times": [late, None], "named": [("x", late)], "count": 7}]
    (found,) = python_values(pa.array(rows, kind))
    told = json.dumps(json_value(found), default=json_value)
    assert told.count("+12000-01-01T00:00:00.000007Z") == 2
    assert '"count": 7' in told


def test_those_beside_them_are_as_ever() -> None:
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    late, usual, none = python_values(pa.chunked_array([far(LATE_US, TIME), pa.array([at, None], TIME)]))
    assert (usual, none) == (at, None)
    assert not isinstance(usual, FarTime)
    assert late > usual


def test_one_can_reckon_with_them() -> None:
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    (late,), (early,) = python_values(far(LATE_US, TIME)), python_values(far(EARLY_US, TIME))
    assert late - at > dt.timedelta(days=2_900_000)
    assert at - early > dt.timedelta(days=740_000)
    assert str(late - dt.timedelta(days=1)) == "9999-12-30 23:59:59.999999+00:00"
    assert late.astimezone(dt.UTC) is late


def test_what_is_wrong_otherwise_is_not_hidden() -> None:
    with pytest.raises(OverflowError):
        python_values(far(2**62, pa.duration("s")))
