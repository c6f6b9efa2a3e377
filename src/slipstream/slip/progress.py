"""What is told of slips: every transition is an event on `slip.events`."""

from __future__ import annotations

import datetime as dt
from typing import Literal

import msgspec

from slipstream.slip.event import StepError, Time

Kind = Literal[
    "planned",
    "started",
    "finished",
    "retried",
    "skipped",
    "failed",
    "waiting",
    "forked",
    "compensated",
    "compensation-failed",
    "completed",
    "dead-lettered",
    "dropped",
    "rerun",
]

ENDS = frozenset({"completed", "dead-lettered", "dropped"})
"""A branch is dropped when its message is over without it."""


class Progress(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """One transition of a slip, at one step of it."""

    kind: Kind
    correlation_id: str
    at: Time
    type: str = ""
    """Of the slip's event."""
    step: str = ""
    attempt: int = 0
    duration_ms: float | None = None
    """Of the attempt, or of the whole message where it has ended."""
    error: StepError | None = None
    detail: str = ""
    """Why, or for what; for people."""
    steps: tuple[str, ...] = ()
    """Of a plan."""
    run: int = 0
    parent: str = ""
    """The slip that this one is a branch of."""
    trace_id: str = ""
    by: str = ""
    """Who tells it: host and process."""


encode_progress = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Progress)
_splitter = msgspec.json.Decoder(list[msgspec.Raw])

decode_progress = _decoder.decode


def split_progress(data: bytes) -> list[bytes]:
    """A message of `slip.events` into its events."""
    return [bytes(part) for part in _splitter.decode(data)]


_MILLISECOND = dt.timedelta(milliseconds=1)


def duration_ms(began: dt.datetime | None, ended: dt.datetime) -> float | None:
    return None if began is None else round((ended - began) / _MILLISECOND, 3)
