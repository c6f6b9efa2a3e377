"""A redrive under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote

from slipstream.api import RedriveState, RedriveStatus
from slipstream.client.errors import RedriveFailed
from slipstream.client.portal import Portal
from slipstream.client.retry import Repeat
from slipstream.client.transport import Transport

POLL_MS = 50
POLL_MS_MAX = 1_000


class Redrive:
    """`status` is how it was when the server was last asked."""

    def __init__(self, transport: Transport, status: RedriveStatus) -> None:
        self._transport = transport
        self._path = f"/v2/redrives/{quote(status.id, safe='')}"
        self.status = status

    @property
    def id(self) -> str:
        return self.status.id

    async def refresh(self) -> RedriveStatus:
        """Asks the server how far it is."""
        self.status = await self._transport.call("GET", self._path, RedriveStatus, Repeat.SAFE)
        return self.status

    async def wait(self, progress: Callable[[RedriveStatus], object] | None = None) -> RedriveStatus:
        """Returns when it has ended, done or cancelled; raises RedriveFailed if it could not go on. Tells `progress`
        how far it is, now and then.
        """
        pause_ms = POLL_MS
        while self.status.state is RedriveState.RUNNING:
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, POLL_MS_MAX)
            await self.refresh()
            if progress is not None:
                progress(self.status)
        if self.status.state is RedriveState.FAILED:
            text = f"redrive {self.id} of {self.status.topic} failed after {self.status.redriven} messages"
            raise RedriveFailed(f"{text}: {self.status.error}; start it again", redrive=self.status)
        return self.status

    async def cancel(self) -> RedriveStatus:
        """Stops it; what was sent back by then stays so."""
        # SAFE: what has stopped stays stopped.
        self.status = await self._transport.call("DELETE", self._path, RedriveStatus, Repeat.SAFE)
        return self.status


class SyncRedrive:
    """The same where nothing is awaited."""

    def __init__(self, portal: Portal, redrive: Redrive) -> None:
        self._portal = portal
        self._redrive = redrive

    @property
    def id(self) -> str:
        return self._redrive.id

    @property
    def status(self) -> RedriveStatus:
        return self._redrive.status

    def refresh(self) -> RedriveStatus:
        """Asks the server how far it is."""
        return self._portal.run(self._redrive.refresh())

    def wait(self, progress: Callable[[RedriveStatus], object] | None = None) -> RedriveStatus:
        """Returns when it has ended, done or cancelled; raises RedriveFailed if it could not go on."""
        return self._portal.run(self._redrive.wait(progress))

    def cancel(self) -> RedriveStatus:
        """Stops it; what was sent back by then stays so."""
        return self._portal.run(self._redrive.cancel())
