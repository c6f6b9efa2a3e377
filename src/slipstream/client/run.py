"""A message in the hands of its handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from slipstream import handlers
from slipstream.api import NackItem, Place
from slipstream.client.errors import InProgress
from slipstream.client.message import AsyncMessage
from slipstream.outcome import Postpone, Reject, Retry

log = logging.getLogger(__name__)

IN_PROGRESS_DELAY_MS = 1_000
"""When a message comes again whose effect another worker is at (`once`)."""


REASON_CHARS = 4_096


class Run:
    """From the delivery of a message until the server has heard what became of it; that long it takes a slot."""

    def __init__(self, message: AsyncMessage) -> None:
        self.message = message
        self.place = Place(message.partition, message.offset)
        self.task: asyncio.Task[None] | None = None
        """All of it."""
        self.is_handled = False
        """The handler has come to an end, one way or the other."""
        self.has_failed = False
        """A nack is on its way, or was heard."""
        self._handling: asyncio.Task[object] | None = None
        self._given_up = ""
        self._error: BaseException | None = None

    def give_up(self, reason: str) -> None:
        """Cancels the handler, or keeps it from beginning. A function in a thread runs on, and nobody waits for it."""
        self._given_up = reason
        if self._handling is not None:
            self._handling.cancel()

    async def handle(self, work: Coroutine[Any, Any, object]) -> NackItem | None:
        """Runs the handler and returns how the attempt failed; None if it did not. `tell` says it to the log."""
        try:
            if self._given_up:
                work.close()
                return self._nack(self._given_up, delay_ms=0)
            # A task of its own: the handler can be cancelled, and what is to be said about it still is.
            self._handling = asyncio.create_task(work)
            await asyncio.wait({self._handling})
            return self._verdict(self._handling)
        finally:
            self.is_handled = True

    def _verdict(self, ended: asyncio.Task[object]) -> NackItem | None:
        if ended.cancelled():
            if self._given_up:
                return self._nack(self._given_up, delay_ms=0)
            return self._nack("the handler was cancelled")
        self._error = ended.exception()
        match self._error:
            case None:
                return None
            case Reject() as error:
                return self._nack(handlers.said(error) or "rejected", retryable=False)
            case Retry() as error:
                return self._nack(handlers.said(error) or "retry", delay_ms=error.delay_ms)
            case Postpone() as error:
                return self._nack(handlers.said(error) or "postponed", delay_ms=error.delay_ms, counted=False)
            case InProgress() as error:
                return self._nack(f"InProgress: {error}", delay_ms=IN_PROGRESS_DELAY_MS)
            case error:
                return self._nack(handlers.reason(error))

    def tell(self, nack: NackItem) -> None:
        """How it failed, for the log. Apart from the verdict: what a handler of the log raises is not to cost it."""
        match self._error:
            case None:
                pass  # it was given up, or cancelled itself: who did that says so
            case Reject():
                log.info("%r is rejected: %s", self.message, nack.reason)
            case Retry() | Postpone() | InProgress():
                log.info("%r is to come again: %s", self.message, nack.reason)
            case error:
                where = f"{self.message.topic}/{self.message.partition}/{self.message.offset}"
                log.error(
                    "the handler of group %s failed on %s, attempt %d",
                    self.message.group,
                    where,
                    self.message.attempts,
                    exc_info=error,
                )

    def _nack(
        self, reason: str, *, delay_ms: int | None = None, retryable: bool = True, counted: bool = True
    ) -> NackItem:
        partition, offset = self.place.partition, self.place.offset
        # The server keeps no more of it, and refuses a request that is too large: with it, everybody else's results.
        reason = reason[:REASON_CHARS].encode(errors="replace").decode()
        return NackItem(
            partition=partition,
            offset=offset,
            reason=reason,
            delay_ms=delay_ms,
            retryable=retryable,
            traceback="" if self._error is None else handlers.traceback_of(self._error),
            counted=counted,
        )
