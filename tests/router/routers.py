"""Routers as a user would write them, named on the command line of the servers under test."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

from slipstream.broker import RoutingDecision
from slipstream.router import RoutedMessage

log = logging.getLogger(__name__)


def label(topic: str, message: RoutedMessage) -> RoutingDecision:
    """Says what it saw."""
    return RoutingDecision(label=topic, meta={"key": message.key.decode(), "value": message.value.decode()})


async def label_async(topic: str, message: RoutedMessage) -> RoutingDecision:
    await asyncio.sleep(0)
    return label(topic, message)


class Labeller:
    """An object whose call is a coroutine."""

    async def __call__(self, topic: str, message: RoutedMessage) -> RoutingDecision:
        return await label_async(topic, message)


labeller = Labeller()


def as_dict(topic: str, message: RoutedMessage) -> dict[str, object]:
    return {"label": topic, "meta": {"key": message.key.decode(), "value": message.value.decode()}}


def leave(topic: str, message: RoutedMessage) -> None:
    """No opinion."""


def slow(topic: str, message: RoutedMessage) -> RoutingDecision:
    log.warning("the slow router was asked")
    time.sleep(0.5)
    return RoutingDecision(label="late")


def hanging(topic: str, message: RoutedMessage) -> None:
    threading.Event().wait()


async def hanging_async(topic: str, message: RoutedMessage) -> None:
    await asyncio.Event().wait()


def failing(topic: str, message: RoutedMessage) -> None:
    raise ZeroDivisionError("the model is gone")


async def failing_async(topic: str, message: RoutedMessage) -> None:
    raise ZeroDivisionError("the model is gone")


def nonsense(topic: str, message: RoutedMessage) -> object:
    return {"lable": "typo"}


def more_nonsense(topic: str, message: RoutedMessage) -> object:
    return 7


def mistyped(topic: str, message: RoutedMessage) -> RoutingDecision:
    return RoutingDecision(partition_override="2")  # type: ignore[arg-type]


def not_text(topic: str, message: RoutedMessage) -> RoutingDecision:
    return RoutingDecision(label="\ud800")


def hanging_for_some(topic: str, message: RoutedMessage) -> RoutingDecision:
    if message.value == b"hang":
        threading.Event().wait()
    return RoutingDecision(label="asked")


def by_value(topic: str, message: RoutedMessage) -> RoutingDecision:
    """Does what the message asks for: `topic/partition`, either of which may be empty."""
    target, _, partition = message.value.decode().partition("/")
    return RoutingDecision("routed", target or None, int(partition) if partition else None)


def urgent(topic: str, message: RoutedMessage) -> RoutingDecision | None:
    return RoutingDecision(target_topic="urgent") if message.value.startswith(b"urgent") else None
