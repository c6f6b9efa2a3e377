"""Every message as it was, and what could not be decoded."""

from __future__ import annotations

import pyarrow as pa

from slipstream.pipeline.source.columns import LOG_SCHEMA
from slipstream.pipeline.tables.columns import ATTRIBUTES, DAY, PLACE, TEXT, columns_of, schema
from slipstream.pipeline.tables.table import Table

MESSAGES = Table(
    name="messages",
    layer="bronze",
    what="Every message of the chosen topics, as it was.",
    queries=("messages",),
    columns=schema(columns_of(LOG_SCHEMA), {"incarnation": TEXT, "date": DAY}),
    partition_by=("date",),
    time="timestamp",
    keep_days=90,
)

QUARANTINE = Table(
    name="quarantine",
    layer="silver",
    what="What could not be decoded, with the reason and the bytes.",
    queries=("jobs", "slips"),
    columns=schema(
        PLACE, {"key": pa.binary(), "value": pa.binary(), "headers": ATTRIBUTES, "kind": TEXT, "reason": TEXT}
    ),
    partition_by=("date",),
    time="timestamp",
)
