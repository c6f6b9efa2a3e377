"""What the doctor finds at a server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import msgspec

from slipstream.api import JSON, GroupInfo, TopicSummary
from slipstream.api.server import ServerCondition, ServerInfo
from slipstream.bus.drivers.driver import Finding
from slipstream.bus.errors import BusError
from slipstream.bus.names import DEAD_LETTER_SUFFIX
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import NotFound, SlipstreamError
from slipstream.client.retry import Repeat
from slipstream.plurals import counted

SILENT_MS = 10_000
"""A group that has something to do asks every second: one that has not for so long has nobody at work."""

OWN_GRAVES = "dlq."
"""Where the server itself puts what it gives up: never on behalf of the bus, unless a topic was set up so."""


class _Version(msgspec.Struct):
    version: str


async def examination(
    client: AsyncClient, prefix: str, connect: Callable[[], Awaitable[None]], *, ensure: bool
) -> AsyncIterator[Finding]:
    yield Finding("ok", "address", f"{client._transport.shown} (SLIPSTREAM_URL)")
    began = time.perf_counter()
    try:
        await connect()
    except BusError as error:
        yield Finding("problem", "connection", str(error))
        return
    took_ms = (time.perf_counter() - began) * 1000
    yield Finding("ok", "connection", f"answers after {took_ms:.0f} ms{await _version(client)}")
    for condition in await _conditions(client):
        verdict: Literal["warning", "problem"] = "problem" if condition.level == "error" else "warning"
        yield Finding(verdict, condition.kind, f"{condition.text}: {condition.detail}")
    try:
        topics = await client.topics()
        yield _topics([topic for topic in topics if topic.name.startswith(prefix)], prefix, ensure=ensure)
        for topic in topics:
            if topic.name.startswith(OWN_GRAVES + prefix) and topic.messages:
                yield _own_graves(topic)
            elif topic.name.startswith(prefix):
                if topic.name.endswith(DEAD_LETTER_SUFFIX) and topic.messages:
                    yield _dead_letters(topic)
                for group in await _groups(client, topic):
                    yield _group(group)
    except SlipstreamError as error:
        yield Finding("problem", "server", f"it answered, and then no longer: {error}")


async def _version(client: AsyncClient) -> str:
    """Told by servers of ours; a proxy may hide it, which is no trouble."""
    try:
        answer = await client._transport.ask("GET", "/v1/version", Repeat.SAFE, accept=JSON)
        return f", version {msgspec.json.decode(answer.body, type=_Version).version}"
    except (SlipstreamError, msgspec.DecodeError):
        return ""


async def _conditions(client: AsyncClient) -> list[ServerCondition]:
    """Return what should be mended at the server; a proxy may hide it, which is no trouble."""
    try:
        answer = await client._transport.ask("GET", "/v2/server", Repeat.SAFE, accept=JSON)
        return msgspec.json.decode(answer.body, type=ServerInfo).conditions
    except (SlipstreamError, msgspec.DecodeError):
        return []


def _topics(topics: list[TopicSummary], prefix: str, *, ensure: bool) -> Finding:
    named = f" that start with {prefix}" if prefix else ""
    if topics:
        messages = sum(topic.messages for topic in topics)
        return Finding("ok", "topics", f"{len(topics)}{named}, with {counted(messages, 'message')}")
    if ensure:
        return Finding("ok", "topics", f"none{named} yet: they are made when they are first used")
    return Finding("warning", "topics", f"none{named}, and BUS_ENSURE=false: create them before they are used")


async def _groups(client: AsyncClient, topic: TopicSummary) -> list[GroupInfo]:
    try:
        return await client.groups(topic.name) if topic.groups else []
    except NotFound:
        return []  # deleted in this moment


def _group(group: GroupInfo) -> Finding:
    what = f"group {group.group}"
    unreadable = next((each.unreadable for each in group.partitions if each.unreadable), "")
    behind = f"{counted(group.lag, 'message')} of {group.topic} not finished"
    if unreadable:
        return Finding("problem", what, f"stands still in {group.topic}: {unreadable}; run slipstream doctor there")
    if group.paused:
        resume = f"slipstream group resume {group.topic} {group.group}"
        return Finding("warning", what, f"is paused: {behind}; go on with: {resume}")
    if group.lag and group.idle_ms > SILENT_MS:
        return Finding("warning", what, f"{behind}, and nobody has asked for one in {group.idle_ms / 1000:.0f} s")
    return Finding("ok", what, f"{behind}, {group.in_flight:,} in flight" if group.lag else f"has all of {group.topic}")


def _dead_letters(topic: TopicSummary) -> Finding:
    look = f"slipstream read {topic.name}"
    return Finding("warning", "dead letters", f"{topic.messages:,} in {topic.name}; look at them with: {look}")


def _own_graves(topic: TopicSummary) -> Finding:
    source = topic.name.removeprefix(OWN_GRAVES)
    return Finding(
        "warning",
        "dead letters",
        f"{topic.messages:,} in {topic.name}: given up by the server and not by the bus, for {source} or its messages "
        f"limit their attempts; look at them with: slipstream dlq list {source}",
    )
