"""Tells what happens to slips, on `slip.events`."""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import logging
import os
import socket

from slipstream.bus import Bus, InvalidArgument
from slipstream.slip import clock, hints
from slipstream.slip.event import Event, RoutingStep, Status, StepError
from slipstream.slip.identity import end_id
from slipstream.slip.progress import Kind, Progress, duration_ms, encode_progress
from slipstream.slip.slip import life_of, run_of
from slipstream.slip.topics import PROGRESS

log = logging.getLogger(__name__)

TOGETHER_MAX = 200
"""In one message: some fifty kilobytes."""


class Reporter:
    """Tells what happens to slips. What is told at about the same time, of whatever slips, is one message, a list: a
    message for each would cost as much as routing does. Only ends are alone, with an id, so that they are told once."""

    def __init__(self, bus: Bus, name: str = "") -> None:
        self._bus = bus
        process = f"{socket.gethostname()}:{os.getpid()}"
        self.by = f"{name}@{process}" if name else process
        """Names this process in everything it reports: with its host and number, as several may have one name."""
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
        """Returns at once; it is safe when the future is done."""
        if len(self._waiting) >= TOGETHER_MAX:
            self._flush()
        if self._safe is None:
            self._safe = self._loop.create_future()
            self._loop.call_soon(self._flush)
        self._waiting.append(self._encoded(kind, event, step, at, duration_ms, error, detail, steps, parent))
        return self._safe

    def tell_outcome(
        self, event: Event, step: RoutingStep, ended: RoutingStep, detail: str | None = None
    ) -> list[asyncio.Future[None]]:
        """Of an attempt at a step: `ended` is what the step has come to with it."""
        at = ended.ended_at or step.ended_at or clock.now()
        took = duration_ms(ended.started_at or step.started_at, at)
        if detail is None:
            detail = ended.notes or "" if ended.status is Status.SKIP else ""
        kinds = _kinds_of(ended)
        return [self.tell(kind, event, step, at, duration_ms=took, error=ended.error, detail=detail) for kind in kinds]

    async def tell_end(
        self,
        kind: Kind,
        event: Event,
        step: RoutingStep | None,
        at: dt.datetime,
        *,
        duration_ms: float | None = None,
        error: StepError | None = None,
        detail: str = "",
        name: str = "",
    ) -> None:
        """Returns when it is safe. All but ends may be told again, by whoever takes over from somebody who died. `name`
        is that of the end, if it is not the one that a message has."""
        data = self._encoded(kind, event, step, at, duration_ms, error, detail)
        correlation_id = event.envelope.correlation_id
        message_id = f"{name or end_id(life_of(event))}:{kind}"
        attributes = {"correlationId": correlation_id}
        try:
            await self._bus.publish(PROGRESS, _list([data]), attributes, correlation_id, message_id=message_id)
        except InvalidArgument as refusal:
            _log_untold(data, refusal)

    def _encoded(
        self,
        kind: Kind,
        event: Event,
        step: RoutingStep | None,
        at: dt.datetime,
        duration_ms: float | None,
        error: StepError | None,
        detail: str,
        steps: tuple[str, ...] = (),
        parent: str = "",
    ) -> bytes:
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
            by=self.by,
        )
        return encode_progress(progress)

    def _flush(self) -> None:
        if self._safe is not None and self._waiting:
            waiting, safe = self._waiting, self._safe
            self._waiting, self._safe = [], None
            self._send(waiting, safe)

    def _send(self, told: list[bytes], safe: asyncio.Future[None]) -> None:
        safe.add_done_callback(_retrieve)
        # In a context of its own: a list belongs to no single message that is in hand somewhere.
        task = self._loop.create_task(self._publish(told, safe), context=contextvars.Context())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _publish(self, told: list[bytes], safe: asyncio.Future[None]) -> None:
        try:
            await self._bus.publish(PROGRESS, _list(told))
        except InvalidArgument as refusal:
            await self._publish_apart(told, safe, refusal)
        except Exception as error:  # noqa: BLE001 - it is for those who told it
            if not safe.done():
                safe.set_exception(error)
        else:
            if not safe.done():
                safe.set_result(None)

    async def _publish_apart(self, told: list[bytes], safe: asyncio.Future[None], refusal: InvalidArgument) -> None:
        """One of them is too large for the engine, or all are together. What cannot be told at all is no reason to
        keep a message from going on, and others' even less."""
        if len(told) > 1:
            halves = told[: len(told) // 2], told[len(told) // 2 :]
            parts = [self._loop.create_future() for _ in halves]
            for half, part in zip(halves, parts, strict=True):
                self._send(half, part)
            done = await asyncio.gather(*parts, return_exceptions=True)
            failures = [error for error in done if isinstance(error, BaseException)]
            if failures and not safe.done():
                safe.set_exception(failures[0])
        else:
            _log_untold(told[0], refusal)
        if not safe.done():
            safe.set_result(None)


def _list(told: list[bytes]) -> bytes:
    return b"[" + b",".join(told) + b"]"


def _log_untold(data: bytes, refusal: InvalidArgument) -> None:
    log.warning("%d bytes about a slip cannot be told: %s", len(data), refusal)


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
