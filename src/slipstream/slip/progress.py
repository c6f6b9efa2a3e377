"""What is told of a slip: every transition is a message on `slip.events`."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import os
import socket
from typing import Literal

import msgspec

from slipstream.bus import Bus
from slipstream.slip.event import Event, RoutingStep, StepError, Time
from slipstream.slip.slip import run_of
from slipstream.slip.topics import PROGRESS

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
    "rerun",
]

ENDS = frozenset({"completed", "dead-lettered"})


class Progress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
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


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Progress)

decode_progress = _decoder.decode


class Reporter:
    """Tells what happens to slips. It is on its way when `tell` returns, and safe when the future is done."""

    def __init__(self, bus: Bus, name: str = "") -> None:
        self._bus = bus
        self._by = name or f"{socket.gethostname()}:{os.getpid()}"

    async def tell(
        self,
        kind: Kind,
        event: Event,
        step: RoutingStep | None,
        at: dt.datetime,
        *,
        duration_ms: float | None = None,
        error: StepError | None = None,
        detail: str = "",
        steps: tuple[str, ...] = (),
        parent: str = "",
    ) -> asyncio.Future[str]:
        envelope = event.envelope
        attempt = (step.attempt or 0) if step is not None else 0
        step_id = step.id if step is not None else ""
        run = run_of(event)
        progress = Progress(
            kind=kind,
            correlation_id=envelope.correlation_id,
            at=at,
            type=event.type,
            step=step_id,
            attempt=attempt,
            duration_ms=duration_ms,
            error=error,
            detail=detail,
            steps=steps,
            run=run,
            parent=parent,
            trace_id=envelope.trace_id or "",
            by=self._by,
        )
        return await self._bus.send(
            PROGRESS,
            _encoder.encode(progress),
            {"correlationId": envelope.correlation_id, "kind": kind, "stepId": step_id},
            key=envelope.correlation_id,
            # An end is told once. All else may be told again by whoever takes over from somebody who died.
            message_id=identity(envelope.correlation_id, run, kind) if kind in ENDS else None,
        )


def identity(*parts: str | int) -> str:
    """One name for the same thing, whoever says it and how often: the id of a message that must be stored once."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def dedupe_key(correlation_id: str, step_id: str, attempt: int) -> str:
    """Names one attempt at one step of one message. The parts are kept apart: else attempt 10 at step `s` would be
    attempt 0 at step `s1`."""
    return identity(correlation_id, step_id, attempt)


def duration_ms(began: dt.datetime | None, ended: dt.datetime) -> float | None:
    return None if began is None else round((ended - began).total_seconds() * 1000, 3)
