"""The router hook: asks the configured router before a message is stored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from slipstream.broker import Envelope, RoutingDecision
from slipstream.router.breaker import TIMEOUTS_MAX, Admission, Breaker

log = logging.getLogger(__name__)


class RouterRefused(ValueError):
    """The configured router cannot be used: which one, and why."""


class RoutedMessage(msgspec.Struct, frozen=True):
    """What a router gets to see."""

    key: bytes
    value: bytes
    envelope: Envelope | None = None


class Router(Protocol):
    """Decides what a message is and where it goes; None leaves it as the producer sent it."""

    async def route(self, topic: str, message: RoutedMessage) -> RoutingDecision | None: ...

    async def close(self) -> None: ...


class RouterHook:
    """Asks a router within a time limit, and never lets it stand in the way of a message (ruling 13).

    A message goes its normal way where the router fails, takes too long or is not asked. That is counted for each
    message, and logged when the router begins to fail, is paused, and works again.
    """

    def __init__(self, router: Router, timeout_ms: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.router = router
        self.timeout_s = timeout_ms / 1000
        self.decided_total = 0
        self.failed_total = 0
        """Errors and time-outs."""
        self.skipped_total = 0
        """Messages about which the router was not asked, because it is paused."""
        self._now_s = now_s
        self._breaker = Breaker()

    async def decide(self, topic: str, message: RoutedMessage) -> RoutingDecision | None:
        breaker = self._breaker
        admission = breaker.admit(self._now_s())
        if admission is Admission.REFUSED:
            self.skipped_total += 1
            return None
        try:
            async with asyncio.timeout(self.timeout_s):
                decision = await self.router.route(topic, message)
        except TimeoutError:
            self.failed_total += 1
            self._timed_out(admission, f"it took longer than {self.timeout_s * 1000:.0f} ms for a message to {topic}")
            return None
        except asyncio.CancelledError:
            breaker.given_up(admission)
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything, and must not stop the message
            self.failed_total += 1
            reason = f"{type(error).__name__} for a message to {topic}: {error}"
            if breaker.failed(self._now_s(), admission, reason):
                self._log_failing(reason)
            return None
        self.decided_total += 1
        breaker.answered(admission)
        if decision is None:
            self.note_outcome("")
        return decision

    def note_outcome(self, miss: str) -> None:
        """Note that a decision was followed, or with a reason that it could not be. The intake counts these."""
        breaker, now_s = self._breaker, self._now_s()
        if not miss:
            if breaker.succeeded(now_s):
                for_s = now_s - breaker.failing_since_s
                log.info("the router works again; in %d s %d messages went without it", for_s, breaker.failures)
            return
        reason = f"its decision cannot be followed: {miss}"
        if breaker.missed(now_s, reason):
            self._log_failing(reason)

    @property
    def trouble(self) -> str:
        """Why messages go their normal way now, and what to do; empty while the router works."""
        breaker = self._breaker
        if breaker.is_well(self._now_s()):
            return ""
        state = "it is paused, and asked about one message now and then" if breaker.is_paused else "it fails"
        return f"{state}: {breaker.reason}; messages go their normal way meanwhile, so mend or restart it"

    @property
    def is_paused(self) -> bool:
        return self._breaker.is_paused

    def _timed_out(self, admission: Admission, reason: str) -> None:
        is_new, is_paused = self._breaker.timed_out(self._now_s(), admission, reason)
        if is_new:
            self._log_failing(reason)
        if is_paused:
            log.warning("the router is paused after %d time-outs in a row: %s", TIMEOUTS_MAX, reason)

    def _log_failing(self, reason: str) -> None:
        log.warning("the router fails, and messages go their normal way: %s", reason)

    async def close(self) -> None:
        await self.router.close()
