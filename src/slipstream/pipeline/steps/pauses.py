"""Steps that people have paused, or that asked for it themselves: it is written in the store of router and workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from slipstream.client.portal import LoopThread
from slipstream.slip import clock
from slipstream.slip.ledger import Held, Ledger
from slipstream.slip.settings import SlipSettings
from slipstream.slip.store import Store, open_store


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
            self._held = self._portal.run(self._ledger.pauses())
            self._looked = time.monotonic()
        held = self._held.get(step_id)
        return None if held is None else held.reason

    def hold(self, step_id: str, reason: str, seconds: float) -> None:
        """For workers of the step elsewhere, too."""
        held = Held(reason, clock.now_ms() + round(seconds * 1000))
        self._portal.run(self._ledger.pause(step_id, held))
        self._looked = float("-inf")


@contextlib.contextmanager
def stored_pauses(settings: SlipSettings) -> Iterator[StoredPauses]:
    """Of the store that these settings name. Raises StoreUnavailable."""
    portal = LoopThread()
    try:
        with portal.entered(open_store(settings.store)) as store:
            yield StoredPauses(portal, store, settings)
    finally:
        portal.close()
