"""The columns of a log, against what each row says by itself."""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys

import msgspec
import pyarrow as pa
import pytest

from slipstream.broker import DeadLetter, Envelope, Meta, Routing
from slipstream.broker.envelope import decode_meta, encode_meta
from slipstream.log_columns import log_columns, log_schema
from slipstream.record import Record
from slipstream.store.segment import to_batch

AT_MS = 1_700_000_000_123

METAS = [
    Meta(),
    Meta(attributes={"a": "1", "ä": ""}),
    Meta(attributes={}),
    Meta(Envelope(run_id="r", deadline=dt.datetime(2030, 1, 2, 3, 4, 5, 678_000, dt.UTC), labels={"k": "v"})),
    Meta(routing=Routing("fast", {"by": "rules"}), deliver_at_ms=AT_MS + 5),
    Meta(attributes={"traceparent": "00-1"}, redriven_from="dlq.t/0/7"),
    Meta(
        Envelope(
            tenant_id="acme",
            dlq=DeadLetter(
                original_topic="t",
                original_partition=0,
                original_offset=7,
                group="g",
                attempts=3,
                last_error="broke",
                reason="max_attempts",
                routed_at_ms=AT_MS,
            ),
        )
    ),
]


def records(metas: list[Meta]) -> list[Record]:
    return [Record(10 + n, AT_MS + n, b"k%d" % n, b"v%d" % n, encode_meta(meta)) for n, meta in enumerate(metas)]


def row_by_row(partition: int, stored: list[Record]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for record in stored:
        meta = decode_meta(record.meta)
        rows.append(
            {
                "partition": partition,
                "offset": record.offset,
                "timestamp": time_of(record.timestamp_ms),
                "key": record.key,
                "value": record.value,
                "attributes": None if meta.attributes is None else list(meta.attributes.items()),
                "envelope": None if meta.envelope is None else msgspec.json.encode(meta.envelope).decode(),
                "routing": None if meta.routing is None else msgspec.json.encode(meta.routing).decode(),
                "deliver_at": time_of(meta.deliver_at_ms),
                "redriven_from": meta.redriven_from or None,
            }
        )
    return rows


def time_of(time_ms: int | None) -> dt.datetime | None:
    return None if time_ms is None else dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=time_ms)


def check(partition: int, stored: list[Record], batch: pa.RecordBatch) -> None:
    columns = log_columns(partition, batch)
    columns.validate(full=True)
    assert columns.schema == log_schema()
    assert columns.to_pylist() == row_by_row(partition, stored)


@pytest.mark.parametrize(
    "metas",
    [
        [],
        [Meta()] * 9,
        METAS,
        [METAS[1]] * 9,
        [METAS[1], Meta()] * 9,
        [Meta(Envelope(run_id=str(n))) for n in range(100)],
        random.Random(7).choices(METAS, k=1_000),
    ],
    ids=["no rows", "no meta", "one of each", "all the same", "every other", "all different", "mixed"],
)
def test_every_row_has_what_stands_beside_its_payload(metas: list[Meta]) -> None:
    stored = records(metas)
    check(3, stored, to_batch(stored))


@pytest.mark.parametrize(("first", "end"), [(0, 1), (1, 6), (5, 7), (3, 3), (2, 1_000)])
def test_a_part_of_a_page_is_like_any_other(first: int, end: int) -> None:
    stored = records(random.Random(8).choices(METAS, k=1_000))
    check(0, stored[first:end], to_batch(stored).slice(first, end - first))


def test_pandas_is_not_imported_even_where_it_is_installed() -> None:
    program = """
import sys
from slipstream.broker.envelope import Meta, encode_meta
from slipstream.log_columns import log_columns
from slipstream.record import Record
from slipstream.store.segment import to_batch
for meta in (Meta(), Meta(attributes={"a": "b"}, deliver_at_ms=7)):
    log_columns(0, to_batch([Record(n, 0, b"k", b"v", encode_meta(meta)) for n in range(3)]))
print(sorted(name for name in sys.modules if name == "pandas"))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
