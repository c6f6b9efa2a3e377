"""Consumer groups: how far they are, and moving them."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from slipstream.api import GroupInfo, GroupList, GroupRetryRequest, RetryPolicyFields, SeekRequest
from slipstream.client.part import Part, topic_path
from slipstream.client.retry import Repeat


class Groups(Part):
    async def groups(self, topic: str) -> list[GroupInfo]:
        """All groups of a topic."""
        return (await self._transport.call("GET", topic_path(topic, "groups"), GroupList, Repeat.SAFE)).groups

    async def group(self, topic: str, group: str) -> GroupInfo:
        """One group, with what it has in flight."""
        return await self._transport.call("GET", _path(topic, group), GroupInfo, Repeat.SAFE)

    async def seek(
        self,
        topic: str,
        group: str,
        *,
        to: Literal["earliest", "latest"] | None = None,
        offset: int | None = None,
        time: dt.datetime | None = None,
        partition: int | None = None,
    ) -> GroupInfo:
        """The group goes on from there; give exactly one of `to`, `offset` and `time`. It lets go of what it holds.

        Example:
            await client.seek("orders", "billing", to="earliest")  # everything again
        """
        request = SeekRequest(to=to, offset=offset, time=time, partition=partition)
        # SAFE: it names a place, not a distance. To "latest" it then means the end as it is when the call returns.
        return await self._transport.call("POST", _path(topic, group) + "/seek", GroupInfo, Repeat.SAFE, body=request)

    async def pause(self, topic: str, group: str) -> GroupInfo:
        """Hands out nothing more to this group until `resume`; what is on lease can be finished."""
        return await self._transport.call("POST", _path(topic, group) + "/pause", GroupInfo, Repeat.SAFE)

    async def resume(self, topic: str, group: str) -> GroupInfo:
        return await self._transport.call("POST", _path(topic, group) + "/resume", GroupInfo, Repeat.SAFE)

    async def set_group_retry(self, topic: str, group: str, retry: RetryPolicyFields | None) -> GroupInfo:
        """Set how messages that fail in this group are retried; with None as the topic has it.

        Example:
            await client.set_group_retry("orders", "billing", RetryPolicyFields(max_attempts=5, backoff_ms=1_000))
        """
        request = GroupRetryRequest(retry=retry)
        return await self._transport.call("PUT", _path(topic, group) + "/retry", GroupInfo, Repeat.SAFE, body=request)

    async def forget_group(self, topic: str, group: str) -> None:
        """Removes a group and its progress. If it is used again it begins as a new one, with the oldest message."""
        # UNDONE: a worker may have begun anew in between, and the second would forget what it has finished.
        await self._transport.ask("DELETE", _path(topic, group), Repeat.UNDONE)


def _path(topic: str, group: str) -> str:
    return topic_path(topic, "groups", group)
