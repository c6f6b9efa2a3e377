"""The router hook: asks the configured router before a message is stored, and never lets it stand in the way."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import msgspec

from slipstream.broker import Envelope, RoutingDecision

log = logging.getLogger(__name__)


class RouterRefused(ValueError):
    """The configured router cannot be used: which one, and why."""


class RoutedMessage(msgspec.Struct, frozen=True):
    """What a router gets to see."""

    key: bytes
    value: bytes
    envelope: Envelope | None = None


class Router(Protocol):
    """Decides what a message is and where it goes; None leaves it as the producer sent it."""

    async def route(self, topic: str, message: RoutedMessage) -> RoutingDecision | None: ...

    async def close(self) -> None: ...


class RouterHook:
    """Ruling 13: an error or a time-out is logged and counted, and the message goes its normal way."""

    def __init__(self, router: Router, timeout_ms: int) -> None:
        self.router = router
        self.timeout_s = timeout_ms / 1000
        self.decided_total = 0
        self.failed_total = 0

    async def decide(self, topic: str, message: RoutedMessage) -> RoutingDecision | None:
        try:
            async with asyncio.timeout(self.timeout_s):
                decision = await self.router.route(topic, message)
        except TimeoutError:
            self.failed_total += 1
            log.warning("the router took longer than %d ms for a message to %s", self.timeout_s * 1000, topic)
            return None
        except Exception as error:  # noqa: BLE001 - user code may raise anything, and must not stop the message
            self.failed_total += 1
            log.warning("the router failed for a message to %s: %s: %s", topic, type(error).__name__, error)
            return None
        self.decided_total += 1
        return decision

    async def close(self) -> None:
        await self.router.close()
