"""Rows of tables as dictionaries, and what all of them have in common."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeAlias

from tests.pipeline.stored import Stored

Row: TypeAlias = dict[str, Any]


class Malformed(Exception):
    """A message is not what its topic is for; for the quarantine."""


def place_of(one: Stored) -> Row:
    return {"topic": one.topic, "partition": one.partition, "offset": one.offset, "timestamp": one.timestamp}


def quarantined(one: Stored, kind: str, reason: object) -> Row:
    return place_of(one) | {
        "key": one.key,
        "value": one.value,
        "headers": one.attributes,
        "kind": kind,
        "reason": str(reason),
    }


def minute_of(time: dt.datetime) -> dt.datetime:
    return time.replace(second=0, microsecond=0)
