"""A router behind HTTP: gets the message as JSON, answers a decision as JSON (or 204 for none)."""

from __future__ import annotations

import base64

import httpx
import msgspec

from slipstream.broker import Envelope, RoutingDecision
from slipstream.router.hook import RoutedMessage


class _Question(msgspec.Struct, omit_defaults=True):
    topic: str
    key: str
    value: str
    encoding: str = ""
    envelope: Envelope | None = None


class HttpRouter:
    def __init__(self, url: str, timeout_ms: int) -> None:
        self.url = url
        self._client = httpx.AsyncClient(timeout=timeout_ms / 1000)

    async def route(self, topic: str, message: RoutedMessage) -> RoutingDecision | None:
        body = msgspec.json.encode(_question(topic, message))
        response = await self._client.post(self.url, content=body, headers={"content-type": "application/json"})
        response.raise_for_status()
        if response.status_code == httpx.codes.NO_CONTENT:
            return None
        return msgspec.json.decode(response.content, type=RoutingDecision)

    async def close(self) -> None:
        await self._client.aclose()


def _question(topic: str, message: RoutedMessage) -> _Question:
    try:
        return _Question(topic, message.key.decode(), message.value.decode(), envelope=message.envelope)
    except UnicodeDecodeError:
        key, value = (base64.b64encode(part).decode() for part in (message.key, message.value))
        return _Question(topic, key, value, encoding="base64", envelope=message.envelope)
