"""What the engine itself says, asked with Google's own client."""

from __future__ import annotations

import asyncio
from typing import Any

from google.api_core.exceptions import NotFound

from slipstream.bus import Bus


class Engine:
    def __init__(self, bus: Bus) -> None:
        self._native = bus.native
        self._publisher: Any = bus.native.publisher
        self._subscriber: Any = bus.native.subscriber

    async def subscription(self, name: str) -> Any:
        path = self._native.subscription_path(name)
        return await asyncio.to_thread(self._subscriber.get_subscription, subscription=path)

    async def subscriptions(self) -> set[str]:
        found = await asyncio.to_thread(self._subscriber.list_subscriptions, project=f"projects/{self._native.project}")
        return {one.name.rpartition("/")[2] for one in found}

    async def create_topic(self, topic: str) -> None:
        await asyncio.to_thread(self._publisher.create_topic, name=self._native.topic_path(topic))

    async def create_subscription(self, topic: str, name: str) -> None:
        await asyncio.to_thread(
            self._subscriber.create_subscription,
            request={
                "name": self._native.subscription_path(name),
                "topic": self._native.topic_path(topic),
                "ack_deadline_seconds": 10,
            },
        )

    async def delete_topic(self, topic: str) -> None:
        await asyncio.to_thread(self._publisher.delete_topic, topic=self._native.topic_path(topic))

    async def delete_subscription(self, name: str) -> None:
        path = self._native.subscription_path(name)
        await asyncio.to_thread(self._subscriber.delete_subscription, subscription=path)

    async def has_topic(self, topic: str) -> bool:
        try:
            await asyncio.to_thread(self._publisher.get_topic, topic=self._native.topic_path(topic))
        except NotFound:
            return False
        return True

    async def pull(self, name: str) -> list[Any]:
        """What nobody has on lease, now or half a second later."""
        path = self._native.subscription_path(name)
        answer = await asyncio.to_thread(
            self._subscriber.pull,
            request={"subscription": path, "max_messages": 1000},
        )
        return [received.message for received in answer.received_messages]
