"""Keeps what was told of slips, so that anyone can see where a message is and why."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from slipstream.bus import Bus, Message, Subscription
from slipstream.slip.progress import ENDS, Progress, decode_progress, split_progress
from slipstream.slip.settings import SlipSettings, subscribe_options
from slipstream.slip.store import Store
from slipstream.slip.topics import PROGRESS

log = logging.getLogger(__name__)

GROUP = "slip-tracker"


class Tracker:
    """Listens to `slip.events` and writes the history of slips into the store."""

    def __init__(self, store: Store, settings: SlipSettings) -> None:
        self._store = store
        self._settings = settings

    async def start(self, bus: Bus) -> Subscription:
        return await bus.subscribe(PROGRESS, GROUP, self._note, subscribe_options(self._settings, max_in_flight=256))

    async def _note(self, message: Message) -> None:
        try:
            told = [(decode_progress(data), data) for data in split_progress(message.data)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning("%r tells nothing of slips: %s", message, error)
            return
        await asyncio.gather(*(self._track(progress, data) for progress, data in told))

    async def _track(self, progress: Progress, data: bytes) -> None:
        await self._store.track(
            progress.correlation_id,
            data,
            at_ms=round(progress.at.timestamp() * 1000),
            kind=progress.type,
            step=progress.step,
            state=progress.kind,
            ended=progress.kind in ENDS,
            ttl_ms=self._settings.ttl_ms,
        )
