"""What an operator does with single messages of a group, without owning their leases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import quote

import msgspec

from slipstream.api import (
    ExtendLeasesRequest,
    MessagesRequest,
    MessageState,
    OperationResponse,
    Place,
    RejectRequest,
    ReleaseOwnerRequest,
    ReleaseOwnerResponse,
)
from slipstream.client.part import Part, topic_path
from slipstream.client.retry import Repeat

RequestT = TypeVar("RequestT", bound=msgspec.Struct)


class Operations(Part):
    async def message_state(self, topic: str, group: str, partition: int, offset: int) -> MessageState:
        """Return where a message stands in a group that has not finished it, with its failed attempts."""
        path = topic_path(topic, "groups", group, "messages", str(partition), str(offset))
        return await self._transport.call("GET", path, MessageState, Repeat.SAFE)

    async def retry_now(self, topic: str, group: str, messages: Iterable[Place]) -> OperationResponse:
        """Deliver messages that wait for their next attempt, or that are delayed, now.

        Example:
            await client.retry_now("orders", "billing", [Place(0, 17)])
        """
        return await self._operate(topic, group, "retry", MessagesRequest(list(messages)))

    async def reject_messages(
        self, topic: str, group: str, messages: Iterable[Place], *, reason: str = ""
    ) -> OperationResponse:
        """Move messages to the dead letters of their topic, whoever holds them."""
        return await self._operate(topic, group, "reject", RejectRequest(list(messages), reason))

    async def discard_messages(self, topic: str, group: str, messages: Iterable[Place]) -> OperationResponse:
        """Finish messages for the group as if they had been acked."""
        return await self._operate(topic, group, "discard", MessagesRequest(list(messages)))

    async def extend_messages(
        self, topic: str, group: str, messages: Iterable[Place], *, lease_ms: int = 10_000
    ) -> OperationResponse:
        """Give the owners of the leases more time, counted from now."""
        return await self._operate(topic, group, "extend", ExtendLeasesRequest(list(messages), lease_ms))

    async def release_messages(self, topic: str, group: str, messages: Iterable[Place]) -> OperationResponse:
        """End leases without counting the attempts: the messages are delivered again at once."""
        return await self._operate(topic, group, "release", MessagesRequest(list(messages)))

    async def release_owner(
        self, owner: str, *, topic: str | None = None, group: str | None = None
    ) -> ReleaseOwnerResponse:
        """End every lease of an owner, such as a worker that crashed, in all topics or in the one that is named."""
        path = f"/v2/owners/{quote(owner, safe='')}/release"
        request = ReleaseOwnerRequest(topic, group)
        # UNDONE: the owner may have fetched more in between, and those leases are not meant.
        return await self._transport.call("POST", path, ReleaseOwnerResponse, Repeat.UNDONE, body=request)

    async def _operate(self, topic: str, group: str, operation: str, request: RequestT) -> OperationResponse:
        path = topic_path(topic, "groups", group, "messages", operation)
        # UNDONE: a message may have been delivered again in between; the second request would be about that attempt.
        return await self._transport.call("POST", path, OperationResponse, Repeat.UNDONE, body=request)
