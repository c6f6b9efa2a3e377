"""How a part is: what it says about itself, and what follows from that for who asks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from slipstream.health.settings import HealthSettings

log = logging.getLogger(__name__)

Status = Literal["live", "stalled", "ready", "starting", "waiting", "stopping"]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is answered, as JSON. Only who is live, or ready, is well."""

    status: Status
    reason: str = ""

    @property
    def is_well(self) -> bool:
        return self.status in {"live", "ready"}


class Health:
    """Told by the part, in whatever thread it works; asked by others.

    Example:
        health = Health(settings)
        async with beating(health), serving(worker) as bus:
            health.ready(lambda: bus.trouble)
            await bus.until_stopped()
            health.stopping()
    """

    def __init__(self, settings: HealthSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._status: Literal["starting", "ready", "stopping"] = "starting"
        self._reason = "it is being started"
        self._beat_at: float | None = None
        self._trouble: Callable[[], str] = lambda: ""
        self._troubled_since: float | None = None
        self._told = ""

    # What the part says

    def starting(self, reason: str) -> None:
        """What it is at, before it can take work."""
        with self._lock:
            if self._status == "starting":
                self._reason = reason

    def ready(self, trouble: Callable[[], str] = lambda: "") -> None:
        """It takes work from now on. `trouble` is asked with each beat, where the part works: why it cannot, or ""."""
        with self._lock:
            if self._status == "starting":
                self._status, self._trouble = "ready", trouble

    def stopping(self) -> None:
        """It was asked to stop, and finishes what it has. To be called by anybody, and by signal handlers: nothing is
        waited for."""
        self._status = "stopping"

    def beat(self) -> None:
        """The loop has turned once more."""
        trouble = self._asked() if self._status == "ready" else ""
        with self._lock:
            now = self._clock()
            self._beat_at, self._told = now, trouble
            if not trouble:
                self._troubled_since = None
            elif self._troubled_since is None:
                self._troubled_since = now

    def _asked(self) -> str:
        """A question that fails is a trouble like others: it must not end the beat, for the loop does turn."""
        try:
            return self._trouble()
        except Exception as error:
            trouble = f"how it is cannot be told: {type(error).__name__}: {error}"
            if trouble != self._told:
                log.exception("how this part is cannot be told")
            return trouble

    def rest(self) -> None:
        """There is no loop any more that could turn, and what follows may take long."""
        with self._lock:
            self._beat_at = None

    # What follows from it

    def liveness(self) -> Answer:
        """Alive is whose loop turns, or has not begun to."""
        with self._lock:
            if (stalled := self._stalled()) is not None:
                return Answer("stalled", stalled)
            return Answer("live")

    def readiness(self) -> Answer:
        with self._lock:
            if self._status == "starting":
                return Answer("starting", self._reason)
            if self._status == "stopping":
                return Answer("stopping", "it was asked to stop, and takes nothing more")
            if (stalled := self._stalled()) is not None:
                return Answer("waiting", stalled)
            since = self._troubled_since
            if since is not None and (for_s := self._clock() - since) * 1000 >= self._settings.trouble_ms:
                return Answer("waiting", f"for {for_s:.0f} s: {self._told}")
            return Answer("ready")

    def _stalled(self) -> str | None:
        if self._beat_at is None:
            return None
        silent_s = self._clock() - self._beat_at
        limit_s = self._settings.stall_ms / 1000
        if silent_s < limit_s:
            return None
        return (
            f"its loop has not turned for {silent_s:.1f} s, and {limit_s:g} s are allowed (HEALTH_STALL_MS): something "
            "blocks it, such as a handler that calls what waits without await"
        )
