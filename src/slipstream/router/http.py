"""A router behind HTTP: gets the message as JSON, answers a decision as JSON (or 204 for none)."""

from __future__ import annotations

import base64
from http import HTTPStatus

import aiohttp
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
        self._timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        self._session: aiohttp.ClientSession | None = None

    async def route(self, topic: str, message: RoutedMessage) -> RoutingDecision | None:
        body = msgspec.json.encode(_question(topic, message))
        if self._session is None:  # it belongs to the loop that runs now, and routers are made before there is one
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        headers = {"content-type": "application/json"}
        async with self._session.post(self.url, data=body, headers=headers, allow_redirects=False) as response:
            if response.status == HTTPStatus.NO_CONTENT:
                return None
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise ValueError(f"{self.url} answered {response.status}")
            return msgspec.json.decode(await response.read(), type=RoutingDecision)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _question(topic: str, message: RoutedMessage) -> _Question:
    try:
        return _Question(topic, message.key.decode(), message.value.decode(), envelope=message.envelope)
    except UnicodeDecodeError:
        key, value = (base64.b64encode(part).decode() for part in (message.key, message.value))
        return _Question(topic, key, value, encoding="base64", envelope=message.envelope)
