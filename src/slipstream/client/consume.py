"""Fetching messages and saying what became of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from slipstream.api import (
    AckRequest,
    AckResponse,
    ExtendRequest,
    ExtendResponse,
    Failure,
    FetchRequest,
    FetchResponse,
    NackItem,
    NackRequest,
    NackResponse,
    Place,
)
from slipstream.client.errors import LeaseLost
from slipstream.client.message import AsyncMessage, Message
from slipstream.client.part import Part
from slipstream.client.retry import Repeat, Retries

if TYPE_CHECKING:
    from slipstream.client.async_client import AsyncClient


PLACES = 1_000
"""Messages in one ack, nack or extend; a tenth of what a server takes unless it is told otherwise."""


class Consume(Part):
    async def fetch(
        self,
        topic: str,
        group: str,
        *,
        max_messages: int = 100,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        lease_ms: int = 10_000,
        owner: str | None = None,
    ) -> list[AsyncMessage]:
        """The next messages of a group, on lease; none if there are none after `wait_ms`. A group begins with the
        oldest message.

        Example:
            for message in await client.fetch("orders", "billing", wait_ms=5_000):
                await charge(message.json(Order))
                await message.ack()
        """
        request = FetchRequest(
            topic=topic,
            group=group,
            owner=owner or self.owner,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
        )
        return await self._fetch(request, None)

    async def _fetch(self, request: FetchRequest, retries: Retries | None) -> list[AsyncMessage]:
        # SAFE: what was in an answer that got lost stays on lease, comes again when that runs out, and has cost an
        # attempt. Not to ask again would change nothing about that.
        response = await self._transport.call(
            "POST",
            "/v2/fetch",
            FetchResponse[bytes],
            Repeat.SAFE,
            body=request,
            wait_ms=request.wait_ms,
            retries=retries,
        )
        client = cast("AsyncClient", self)
        topic, group, owner = request.topic, request.group, request.owner
        return [AsyncMessage(client, topic, group, owner, fetched) for fetched in response.messages]

    async def ack(self, *messages: Message) -> None:
        """These are done. Raises LeaseLost for those that are no longer ours; the others count nevertheless."""
        failed: list[Failure] = []
        for (topic, group, owner), places in _by_lease(messages):
            request = AckRequest(topic=topic, group=group, owner=owner, messages=places)
            failed += (await self._ack(request)).failed
        _check(failed, "acked")

    async def _ack(self, request: AckRequest, retries: Retries | None = None) -> AckResponse:
        # SAFE: acking what is done already is fine (ruling 3).
        return await self._transport.call("POST", "/v2/ack", AckResponse, Repeat.SAFE, body=request, retries=retries)

    async def nack(
        self,
        *messages: Message,
        reason: str = "",
        delay_ms: int | None = None,
        retryable: bool = True,
        traceback: str = "",
    ) -> None:
        """Report that these attempts failed. They come again when the retry policy says, or after `delay_ms`; with
        `retryable=False` they go straight to the dead letters. A `traceback` is shown with the attempt. Raises
        LeaseLost as `ack` does."""
        failed: list[Failure] = []
        for (topic, group, owner), places in _by_lease(messages):
            items = [
                NackItem(
                    partition=place.partition,
                    offset=place.offset,
                    reason=reason,
                    delay_ms=delay_ms,
                    retryable=retryable,
                    traceback=traceback,
                )
                for place in places
            ]
            request = NackRequest(topic=topic, group=group, owner=owner, messages=items)
            failed += (await self._nack(request)).failed
        _check(failed, "nacked")

    async def _nack(self, request: NackRequest, retries: Retries | None = None) -> NackResponse:
        # SAFE: a lease that was let go is let go. Should the same owner have been handed the message again in the
        # meantime, the second nack fails that attempt too: it comes once more, and nothing is lost.
        return await self._transport.call("POST", "/v2/nack", NackResponse, Repeat.SAFE, body=request, retries=retries)

    async def extend(self, *messages: Message, lease_ms: int = 10_000) -> int:
        """More time for these, counted from now; returns until when, in ms since 1970. Raises LeaseLost as `ack` does.

        Example:
            await client.extend(message, lease_ms=60_000)
        """
        failed: list[Failure] = []
        until_ms = 0
        for (topic, group, owner), places in _by_lease(messages):
            request = ExtendRequest(topic=topic, group=group, owner=owner, messages=places, lease_ms=lease_ms)
            response = await self._extend(request)
            failed += response.failed
            until_ms = response.lease_until_ms
        _check(failed, "extended")
        return until_ms

    async def _extend(self, request: ExtendRequest, retries: Retries | None = None) -> ExtendResponse:
        # SAFE: a lease is extended to a time, not by one.
        return await self._transport.call(
            "POST", "/v2/extend", ExtendResponse, Repeat.SAFE, body=request, retries=retries
        )


def _by_lease(messages: Iterable[Message]) -> Iterator[tuple[tuple[str, str, str], list[Place]]]:
    """A request speaks for one topic, group and owner, and not for more messages than a server takes."""
    found: defaultdict[tuple[str, str, str], list[Place]] = defaultdict(list)
    for message in messages:
        found[message.topic, message.group, message.owner].append(Place(message.partition, message.offset))
    for lease, places in found.items():
        for start in range(0, len(places), PLACES):
            yield lease, places[start : start + PLACES]


def _check(failed: list[Failure], what: str) -> None:
    if failed:
        first = failed[0]
        others = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise LeaseLost(
            f"{first.partition}/{first.offset} was not {what}: {first.message}{others}; "
            "let go of it: it comes again, or somebody has finished it",
            failures=failed,
        )
