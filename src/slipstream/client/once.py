"""An effect that must happen once, though its message may come twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from slipstream.api import OnceBeginRequest, OnceBeginResponse, OnceSettleRequest
from slipstream.client.errors import Conflict, InProgress, SlipstreamError
from slipstream.client.message import Message
from slipstream.client.part import Part
from slipstream.client.retry import ONCE, Repeat, Retries
from slipstream.client.transport import Transport

log = logging.getLogger(__name__)


class Once(Part):
    def once(
        self, message: Message, key: str | None = None, *, lease_ms: int = 10_000
    ) -> AbstractAsyncContextManager[bool]:
        """Guards an effect of a message: True for the first who comes, False if it was done before.

        Leaving the block says that it is done, and it is remembered as such; an exception says that it failed, and
        somebody may begin again. While another is at it, entering raises InProgress; a worker then lets the message
        come again. The key is the message's idempotency key, or else its place; give one where a message has several
        effects. It counts for the message's tenant, topic and group.

        A process that dies inside the block is followed by another after `lease_ms`, which is renewed while the block
        runs. So is one that dies between the effect and the end of the block: where even that must not happen twice,
        give the key to whoever performs the effect.

        Example:
            async with client.once(message) as first:
                if first:
                    await charge(message.json(Order))
        """
        return Effect(self._transport, message, key, lease_ms)


class Effect(AbstractAsyncContextManager[bool]):
    """One effect, from its begin to its commit or its failure."""

    def __init__(self, transport: Transport, message: Message, key: str | None, lease_ms: int) -> None:
        self._transport = transport
        self._message = message
        self._lease_ms = lease_ms
        self._key = key or message.envelope.idempotency_key or f"{message.partition}/{message.offset}"
        # The broker lets the same owner begin again, which is how the lease is renewed. So each block is an owner of
        # its own: of two handlers in one worker that meet at the same key, the second must be told to wait.
        self._owner = f"{message.owner[:180]}:{secrets.token_hex(8)}"
        self._left = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> bool:
        first = await self._begin()
        if first:
            self._renewal = asyncio.create_task(self._renew())
        return first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renewal is None:
            return
        # Waited for, not cancelled: a begin that arrives after the failure would hold up the next attempt.
        self._left.set()
        await self._renewal
        if error is None:
            await self._commit()
        else:
            await self._fail(f"{type(error).__name__}: {error}")

    async def _begin(self, retries: Retries | None = None) -> bool:
        request = OnceBeginRequest(
            topic=self._message.topic,
            group=self._message.group,
            key=self._key,
            owner=self._owner,
            lease_ms=self._lease_ms,
            tenant_id=self._message.envelope.tenant_id,
        )
        try:
            # SAFE: nobody else has this owner, and the same owner may begin again.
            answer = await self._transport.call(
                "POST", "/v2/once/begin", OnceBeginResponse, Repeat.SAFE, body=request, retries=retries
            )
        except Conflict as error:
            raise InProgress(f"{error} (key {self._key})", status=error.status, code=error.code) from error
        return answer.proceed

    async def _renew(self) -> None:
        """Every third of the lease, so that one lost answer does not lose it; nor does one wait for it for longer."""
        third_s = self._lease_ms / 3000
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + third_s, loop.time())  # the time a failure took is not to be waited once more
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._left.wait()
                return
            try:
                async with asyncio.timeout(third_s):
                    await self._begin(ONCE)
            except (SlipstreamError, TimeoutError) as error:
                reason = str(error) or "no answer in time"
                log.warning("the lease on the effect %s was not renewed: %s", self._key, reason)

    async def _commit(self) -> None:
        try:
            await self._settle("commit")
        except Conflict:
            # Either an earlier commit counted and its answer was lost, or the lease ran out. Who begins again learns
            # which: done (nothing is left to do), free (it is ours again), or another's (InProgress, for the caller).
            if await self._begin():
                await self._settle("commit")

    async def _fail(self, reason: str) -> None:
        """An exception is on its way, and must arrive: if this one is not heard, the lease runs out."""
        try:
            await self._settle("fail", reason)
        except Conflict:
            pass  # an earlier one counted, or it is another's
        except SlipstreamError as error:
            log.warning("the failure of the effect %s could not be told: %s", self._key, error)

    async def _settle(self, outcome: str, reason: str = "") -> None:
        request = OnceSettleRequest(
            topic=self._message.topic,
            group=self._message.group,
            key=self._key,
            owner=self._owner,
            tenant_id=self._message.envelope.tenant_id,
            error=reason,
        )
        # SAFE: what is settled is not settled again, and 409 says so.
        await self._transport.ask("POST", f"/v2/once/{outcome}", Repeat.SAFE, body=request)
