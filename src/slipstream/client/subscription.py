"""One handler of a worker: fetches messages for it, keeps their leases, and says what became of them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any, cast

from slipstream.api import ExtendRequest, FetchRequest, Place
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import NotFound, SlipstreamError
from slipstream.client.message import AsyncMessage, SyncMessage
from slipstream.client.portal import Portal
from slipstream.client.retry import ONCE, Retries
from slipstream.client.route import Route
from slipstream.client.run import Run
from slipstream.client.settlements import Settlements
from slipstream.threads import DaemonThreads

log = logging.getLogger(__name__)

NOTHING_PAUSE_MS = 100


class Subscription:
    """Fetches only as many messages as it has free slots, so that none is on lease without a handler at it.

    A slot is free again when the ack is confirmed, not when the handler returns: a worker that is killed can repeat
    only what was in its slots.
    """

    def __init__(self, client: AsyncClient, route: Route, stopping: asyncio.Event, poll_ms: int) -> None:
        self.route = route
        self._client = client
        self._stopping = stopping
        self._poll_ms = poll_ms
        self._settlements = Settlements(client, route.topic, route.group)
        self._runs: set[Run] = set()
        self._held: dict[Place, Run] = {}
        """The run that has the lease of a place."""
        self._fetching: asyncio.Task[list[AsyncMessage]] | None = None
        self._freed = asyncio.Event()
        self._given_up = ""
        self._is_async = route.is_async
        self._threads = DaemonThreads(0 if self._is_async else route.concurrency, f"slipstream-{route.topic}")
        self._portal = Portal(asyncio.get_running_loop())

    async def run(self) -> None:
        """Until it is told to stop and the handlers have finished."""
        where, owner = self._client._transport.shown, self._client.owner
        log.info("working on %s at %s as %s, %d at a time", self.route, where, owner, self.route.concurrency)
        renewal = asyncio.create_task(self._renew())
        try:
            await self._pull()
            while self._runs:
                await self._slot_freed()
        finally:
            renewal.cancel()
            await self._close()

    def give_up(self, reason: str) -> None:
        """Ends the handlers; their messages are nacked, for somebody else to do at once."""
        self._given_up = reason
        if self._fetching is not None:
            self._fetching.cancel()
        for run in self._runs:
            run.give_up(reason)

    async def _close(self) -> None:
        """Nothing is left but, after giving up, handlers that do not let themselves be cancelled."""
        tasks = [run.task for run in self._runs if run.task is not None]
        for run in self._runs:
            run.give_up(self._given_up)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._settlements.close()
        self._threads.close()

    # Fetching

    async def _pull(self) -> None:
        failures = 0
        is_connected = False
        while not self._stopping.is_set():
            free = self.route.concurrency - len(self._runs)
            if free <= 0:
                await self._slot_freed()
                continue
            began = time.monotonic()
            try:
                # The first answer comes at once: whoever starts a worker wants to know whether it is connected.
                messages = await self._fetch(free, self._poll_ms if is_connected else 0)
            except SlipstreamError as error:
                failures += 1
                self._complain(error, failures)
                await self._pause(self._client.retries.endless_pause_ms(failures, error))
                continue
            is_first, is_connected = not is_connected, True
            if is_first:
                log.info("%s: connected%s", self.route, "" if messages else ", waiting for messages")
            elif failures:
                log.info("%s: going on", self.route)
            failures = 0
            for message in messages:
                self._begin(message)
            if not messages and not is_first:
                # A server of ours waits with such an answer; who does not is not to be asked without a pause.
                left_ms = self._poll_ms - (time.monotonic() - began) * 1000
                await self._pause(min(NOTHING_PAUSE_MS, max(0, left_ms)))

    async def _fetch(self, free: int, wait_ms: int) -> list[AsyncMessage]:
        """Not cancelled by a stop, because what is in the answer would then be on lease to nobody: it ends soon by
        itself. Only who gives up does not wait for it."""
        self._fetching = asyncio.create_task(self._client._fetch(self._request(free, wait_ms), ONCE))
        try:
            await asyncio.wait({self._fetching})
        except asyncio.CancelledError:
            self._fetching.cancel()
            raise
        return [] if self._fetching.cancelled() else self._fetching.result()

    def _request(self, free: int, wait_ms: int) -> FetchRequest:
        route = self.route
        return FetchRequest(
            topic=route.topic,
            group=route.group,
            owner=self._client.owner,
            max_messages=free,
            wait_ms=wait_ms,
            lease_ms=route.lease_ms,
            retry=route.retry,
        )

    def _complain(self, error: SlipstreamError, failures: int) -> None:
        """Once for each time of trouble: it may last for hours."""
        if failures > 1:
            return
        if isinstance(error, NotFound):
            log.warning("%s: %s; waiting for it", self.route, error)
        else:
            log.warning("%s: no messages can be fetched: %s; trying on", self.route, error)

    async def _pause(self, pause_ms: float) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _slot_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    # Handling

    def _begin(self, message: AsyncMessage) -> None:
        run = Run(message)
        before = self._held.get(run.place)
        if before is not None and (before.message.timestamp_ms, before.message.value) != (
            message.timestamp_ms,
            message.value,
        ):
            # The topic was made again: what the old handler says would now be said about this one.
            self._lose(before, "another message has its place now")
        if before is not None and not before.has_failed and not before.message._lease.lost:
            # Its lease ran out while the server could not be reached, and it was handed out again: to us. The handler
            # is still at it, or the ack is on its way and will count: the lease is ours once more.
            log.info("%r came again while its handler is at it", message)
            return
        if self._given_up:
            run.give_up(self._given_up)
        self._runs.add(run)
        self._held[run.place] = run
        run.task = asyncio.create_task(self._work(run, before))

    async def _work(self, run: Run, before: Run | None) -> None:
        try:
            if before is not None and before.task is not None:
                await asyncio.wait({before.task})  # never two at the same message
            nack = await run.handle(self._call(run.message))
            if run.message._lease.lost:
                return
            if nack is None:
                await self._settlements.ack(run.place)
                return
            run.has_failed = True
            try:
                run.tell(nack)
            finally:
                await self._settlements.nack(nack)
        finally:
            self._runs.discard(run)
            if self._held.get(run.place) is run:
                del self._held[run.place]
            self._freed.set()

    async def _call(self, message: AsyncMessage) -> object:
        handler = cast("Callable[[Any], object]", self.route.handler)
        if self._is_async:
            answer = handler(message)
        else:
            answer = await self._threads.call(handler, SyncMessage(self._portal, message))
        return await answer if inspect.isawaitable(answer) else answer

    # Leases

    async def _renew(self) -> None:
        """All leases in one request, every third of their time, so that one lost answer loses none of them."""
        third_ms = self.route.lease_ms // 3
        retries = Retries(for_ms=third_ms, backoff_ms=min(50, third_ms), backoff_ms_max=third_ms)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + third_ms / 1000, loop.time())  # the time a failure took is not to be waited once more
            await asyncio.sleep(due - loop.time())
            runs = {run.place: run for run in self._held.values() if not run.message._lease.lost}
            if runs:
                await self._extend(runs, retries)

    async def _extend(self, runs: dict[Place, Run], retries: Retries) -> None:
        route = self.route
        request = ExtendRequest(
            topic=route.topic,
            group=route.group,
            owner=self._client.owner,
            messages=list(runs),
            lease_ms=route.lease_ms,
        )
        try:
            # No longer than until the next is due: a request may wait for its answer for as long as the lease lasts.
            async with asyncio.timeout(retries.for_ms / 1000):
                response = await self._client._extend(request, retries)
        except (SlipstreamError, TimeoutError) as error:
            log.warning("%s: %d leases are not renewed: %s", self.route, len(runs), str(error) or "no answer in time")
            return
        for failure in response.failed:
            run = runs.get(Place(failure.partition, failure.offset))
            # What is handled may have been acked while this was on its way; if not, the ack will tell. And a message
            # that the server cannot read just now is still ours.
            if run is not None and not run.is_handled and failure.error != "UNAVAILABLE":
                self._lose(run, failure.message)

    def _lose(self, run: Run, reason: str) -> None:
        """Another worker has the message, so whatever this handler still does is done twice. One that awaits is
        cancelled; a function in a thread cannot be, and may ask `message.lease_lost`. Either way it is not acked."""
        log.warning("%r is no longer ours: %s", run.message, reason)
        run.message._lease.lost = True
        if self._is_async:
            run.give_up("the lease was lost")
