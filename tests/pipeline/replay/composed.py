"""Replays as Spark leaves them, made without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slipstream.pipeline.replay import Asked, Replays
from slipstream.pipeline.replay.composing import message_schema
from slipstream.pipeline.replay.folder import Replay
from slipstream.pipeline.replay.plan import Part

QUESTION = Asked(table="messages")


def message(number: int, topic: str = "orders", **more: Any) -> dict[str, Any]:
    return {"topic": topic, "key": b"k%d" % (number % 3), "value": b"%d" % number, "headers": [("n", "1")], **more}


def from_place(offset: int, **more: Any) -> dict[str, Any]:
    """An envelope that says where the message was."""
    return {"labels": [("replayed_from", f"orders/0/{offset}")], **more}


def composed(root: Path, *parts: Sequence[dict[str, Any]], group: int = 7, question: Asked = QUESTION) -> Replay:
    with Replays(root).composing(question) as place:
        written = []
        for number, rows in enumerate(parts):
            table = pa.Table.from_pylist(list(rows), schema=message_schema())
            pq.write_table(table, place.path / f"{number}.parquet", row_group_size=group)
            written.append(Part(f"{number}.parquet", len(rows)))
        return place.plan(tuple(written), {}, 0)
