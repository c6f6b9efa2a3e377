"""What is told of slips: every transition is an event on `slip.events`."""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import hashlib
import logging
import os
import socket
from typing import Literal

import msgspec

from slipstream.bus import Bus, InvalidArgument
from slipstream.slip import clock, hints
from slipstream.slip.event import Event, RoutingStep, Status, StepError, Time
from slipstream.slip.slip import run_of
from slipstream.slip.topics import PROGRESS

log = logging.getLogger(__name__)

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


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Progress)
_splitter = msgspec.json.Decoder(list[msgspec.Raw])

decode_progress = _decoder.decode


def split_progress(data: bytes) -> list[bytes]:
    """A message of `slip.events` into its events."""
    return [bytes(part) for part in _splitter.decode(data)]


TOGETHER_MAX = 200
"""In one message: some fifty kilobytes."""


class Reporter:
    """Tells what happens to slips. What is told at about the same time, of whatever slips, is one message, a list: a
    message for each would cost as much as routing does. Only ends are alone, with an id, so that they are told once.

    `tell` returns at once; it is safe when the future is done.
    """

    def __init__(self, bus: Bus, name: str = "") -> None:
        self._bus = bus
        self._by = name or f"{socket.gethostname()}:{os.getpid()}"
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._safe: asyncio.Future[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def tell(
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
    ) -> asyncio.Future[None]:
        envelope = event.envelope
        progress = Progress(
            kind=kind,
            correlation_id=envelope.correlation_id,
            at=at,
            type=event.type,
            step=step.id if step is not None else "",
            attempt=(step.attempt or 0) if step is not None else 0,
            duration_ms=duration_ms,
            error=error,
            detail=detail,
            steps=steps,
            run=run_of(event),
            parent=parent,
            trace_id=envelope.trace_id or "",
            by=self._by,
        )
        data = _encode(progress)
        if kind in ENDS:
            # All else may be told again by whoever takes over from somebody who died.
            return self._send([data], envelope.correlation_id, identity(envelope.correlation_id, progress.run, kind))
        if self._safe is None or len(self._waiting) >= TOGETHER_MAX:
            self._flush()
            self._safe = self._loop.create_future()
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        return self._safe

    def tell_outcome(
        self, event: Event, step: RoutingStep, ended: RoutingStep, detail: str | None = None
    ) -> list[asyncio.Future[None]]:
        """Of an attempt at a step, which `ended` is what it has come to."""
        at = ended.ended_at or clock.now()
        took = duration_ms(ended.started_at or step.started_at, at)
        if detail is None:
            detail = ended.notes or "" if ended.status is Status.SKIP else ""
        return [
            self.tell(kind, event, step, at, duration_ms=took, error=ended.error, detail=detail)
            for kind in _kinds_of(ended)
        ]

    def _flush(self) -> None:
        if self._safe is not None and self._waiting:
            waiting, safe = self._waiting, self._safe
            self._waiting, self._safe = [], None
            self._send(waiting, None, None, safe)

    def _send(
        self,
        told: list[bytes],
        key: str | None,
        message_id: str | None,
        safe: asyncio.Future[None] | None = None,
    ) -> asyncio.Future[None]:
        safe = safe or self._loop.create_future()
        safe.add_done_callback(_retrieve)
        sending = self._publish(told, key, message_id, safe)
        # In a context of its own: a list belongs to no single message that is in hand somewhere.
        task = self._loop.create_task(sending, context=contextvars.Context())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return safe

    async def _publish(
        self, told: list[bytes], key: str | None, message_id: str | None, safe: asyncio.Future[None]
    ) -> None:
        data = b"[" + b",".join(told) + b"]"
        try:
            await self._bus.publish(PROGRESS, data, {"correlationId": key}, key, message_id=message_id)
        except InvalidArgument as refusal:
            await self._publish_apart(told, key, message_id, safe, refusal)
        except Exception as error:  # noqa: BLE001 - it is for those who told it
            if not safe.done():
                safe.set_exception(error)
        else:
            if not safe.done():
                safe.set_result(None)

    async def _publish_apart(
        self, told: list[bytes], key: str | None, message_id: str | None, safe: asyncio.Future[None], refusal: Exception
    ) -> None:
        """One of them is too large for the engine, or all are together. What cannot be told at all is no reason to
        keep a message from going on, and others' even less."""
        if len(told) > 1:
            halves = told[: len(told) // 2], told[len(told) // 2 :]
            parts = [self._send(half, key, message_id) for half in halves]
            done = await asyncio.gather(*parts, return_exceptions=True)
            failures = [error for error in done if isinstance(error, BaseException)]
            if failures and not safe.done():
                safe.set_exception(failures[0])
        else:
            log.warning("%d bytes about a slip cannot be told: %s", len(told[0]), refusal)
        if not safe.done():
            safe.set_result(None)


def _kinds_of(ended: RoutingStep) -> tuple[Kind, ...]:
    undoes = hints.UNDOES in ended.attributes
    match ended.status:
        case Status.OK:
            return ("compensated",) if undoes else ("finished",)
        case Status.PENDING:
            return ("retried",)
        case Status.ERROR:
            return ("compensation-failed",) if undoes else ("failed",)
        case Status.SKIP:  # an optional one has failed first
            return ("skipped",) if ended.error is None else ("failed", "skipped")


def _retrieve(safe: asyncio.Future[None]) -> None:
    """Whoever told it may have failed himself before he looked."""
    if not safe.cancelled():
        safe.exception()


_sha256 = hashlib.sha256


def identity(*parts: str | int) -> str:
    """One name for the same thing, whoever says it and how often: the id of a message that must be stored once."""
    return _sha256("\n".join([part if type(part) is str else str(part) for part in parts]).encode()).hexdigest()


def dedupe_key(correlation_id: str, step_id: str, attempt: int) -> str:
    """Names one attempt at one step of one message; of one that is run again, `correlation_id` is `c-123#1`. The parts
    are kept apart: else attempt 10 at step `s` would be attempt 0 at step `s1`."""
    return identity(correlation_id, step_id, attempt)


def duration_ms(began: dt.datetime | None, ended: dt.datetime) -> float | None:
    return None if began is None else round((ended - began).total_seconds() * 1000, 3)
