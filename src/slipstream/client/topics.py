"""Topics: making them, looking at them, changing them."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.api import (
    CreateTopicRequest,
    TopicChange,
    TopicConfigFields,
    TopicCreated,
    TopicInfo,
    TopicList,
    TopicSummary,
)
from slipstream.client.part import Part, topic_path
from slipstream.client.retry import Repeat, Retries


class Topics(Part):
    async def create_topic(
        self, name: str, partitions: int = 1, *, config: TopicConfigFields | None = None
    ) -> TopicCreated:
        """Makes a topic; one that exists is left as it is, and the answer says so.

        Example:
            await client.create_topic("orders", 3, config=TopicConfigFields(retention_ms=3_600_000))
        """
        request = CreateTopicRequest(name=name, partitions=partitions, config=config or TopicConfigFields())
        return await self._create_topic(request, None)

    async def _create_topic(self, request: CreateTopicRequest, retries: Retries | None) -> TopicCreated:
        # SAFE: creating it again changes nothing (ruling 9). After a lost answer `created` may be false.
        return await self._transport.call(
            "POST", "/v2/topics", TopicCreated, Repeat.SAFE, body=request, retries=retries
        )

    async def topics(self) -> list[TopicSummary]:
        """All topics, dead letters too."""
        return (await self._transport.call("GET", "/v2/topics", TopicList, Repeat.SAFE)).topics

    async def topic(self, name: str) -> TopicInfo:
        """One topic with its partitions, groups and configuration."""
        return await self._transport.call("GET", topic_path(name), TopicInfo, Repeat.SAFE)

    async def change_topic(
        self,
        name: str,
        *,
        config: TopicConfigFields | None = None,
        reset: Sequence[str] = (),
        partitions: int | None = None,
    ) -> TopicInfo:
        """Changes what is given and leaves the rest; names in `reset` follow the settings of the server again.

        Example:
            await client.change_topic("orders", config=TopicConfigFields(max_in_flight=16), reset=["retention_ms"])
        """
        request = TopicChange(config=config or TopicConfigFields(), reset=list(reset), partitions=partitions)
        # SAFE: it names what shall be, not what shall be added.
        return await self._transport.call("PATCH", topic_path(name), TopicInfo, Repeat.SAFE, body=request)

    async def delete_topic(self, name: str) -> None:
        """Removes a topic, its messages and the progress of its groups."""
        # UNDONE: between the two, somebody may have made it again, and the second would delete what is theirs.
        await self._transport.ask("DELETE", topic_path(name), Repeat.UNDONE)
