"""Steps that people have paused, or that asked for it themselves: it is written in the store of router and workers."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from slipstream.client.portal import LoopThread
from slipstream.slip import clock
from slipstream.slip.ledger import Held, Ledger
from slipstream.slip.settings import SlipSettings
from slipstream.slip.store import Store, StoreUnavailable, open_store

log = logging.getLogger(__name__)


class StoredPauses:
    """Looked at now and then, from any thread."""

    def __init__(self, portal: LoopThread, store: Store, settings: SlipSettings) -> None:
        self._portal = portal
        self._ledger = Ledger(store, settings.ttl_ms)
        self._poll_s = settings.poll_ms / 1000
        self._looked = float("-inf")
        self._held: dict[str, Held] = {}

    def reason(self, step_id: str) -> str | None:
        """None where nobody wants the step to wait."""
        if time.monotonic() - self._looked >= self._poll_s:
            self._look()
        held = self._held.get(step_id)
        return None if held is None else held.reason

    def hold(self, step_id: str, reason: str, seconds: float) -> None:
        """For workers of the step elsewhere, too."""
        held = Held(reason, clock.now_ms() + round(seconds * 1000))
        self._held = self._held | {step_id: held}
        try:
            self._portal.run(self._ledger.pause(step_id, held))
        except StoreUnavailable as error:
            log.warning("the pause of step %s is known to nobody else: %s", step_id, error)

    def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            self._held = self._portal.run(self._ledger.pauses())
        except StoreUnavailable as error:
            log.warning("the pauses of steps are not known; going on with those that were: %s", error)
            now_ms = clock.now_ms()
            self._held = {name: held for name, held in self._held.items() if (held.until_ms or now_ms + 1) > now_ms}


@contextlib.contextmanager
def stored_pauses(settings: SlipSettings) -> Iterator[StoredPauses]:
    """Of the store that these settings name. Raises StoreUnavailable."""
    portal = LoopThread()
    try:
        with portal.entered(open_store(settings.store)) as store:
            yield StoredPauses(portal, store, settings)
    finally:
        portal.close()
