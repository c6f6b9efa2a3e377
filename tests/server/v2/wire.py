"""Small words for the calls of `/v2`, so that the tests read as stories."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from tests.server_process import ServerProcess

MSGPACK = "application/msgpack"

_SETTLED = {"partition", "offset", "reason", "delay_ms", "retryable", "traceback"}
"""What a settlement repeats of a message that was fetched."""


class V2:
    """Calls of one server about one topic. Each fails where the status is not the one that was expected."""

    def __init__(self, server: ServerProcess, topic: str) -> None:
        self.server = server
        self.topic = topic

    def call(self, method: str, path: str, body: Any = None, expect: int = 200, **arguments: Any) -> Any:
        response = self.respond(method, path, body, **arguments)
        assert response.status_code == expect, f"{response.status_code} {response.text}"
        return response.json() if response.content else None

    def respond(self, method: str, path: str, body: Any = None, **arguments: Any) -> httpx.Response:
        if body is not None:
            arguments["content"] = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.server.request(method, path, **arguments)

    def produce(self, *messages: Any, expect: int = 200, **request: Any) -> Any:
        """Each a value, or a whole message."""
        whole = [message if isinstance(message, dict) else {"value": message} for message in messages]
        return self.call("POST", "/v2/produce", {"topic": self.topic, "messages": whole, **request}, expect)

    def fetch(self, group: str = "g", owner: str = "o", expect: int = 200, **request: Any) -> Any:
        body = {"topic": self.topic, "group": group, "owner": owner, "lease_ms": 60_000, **request}
        answer = self.call("POST", "/v2/fetch", body, expect)
        return answer["messages"] if expect == 200 else answer

    def settle(
        self, verb: str, *messages: Any, group: str = "g", owner: str = "o", expect: int = 200, **fields: Any
    ) -> Any:
        places = [{name: m[name] for name in m if name in _SETTLED} for m in messages]
        body = {"topic": self.topic, "group": group, "owner": owner, "messages": places, **fields}
        return self.call("POST", f"/v2/{verb}", body, expect)

    def ack(self, *messages: Any, **arguments: Any) -> Any:
        return self.settle("ack", *messages, **arguments)

    def nack(self, *messages: Any, **arguments: Any) -> Any:
        return self.settle("nack", *messages, **arguments)

    def path(self, *parts: object) -> str:
        return "/".join(["/v2/topics", self.topic, *map(str, parts)])

    def describe(self) -> Any:
        return self.call("GET", self.path())

    def group(self, name: str = "g") -> Any:
        return self.call("GET", self.path("groups", name))

    def read(self, expect: int = 200, **query: Any) -> Any:
        return self.call("GET", self.path("messages"), expect=expect, params=query)


def values(messages: Any) -> list[str]:
    return [message["value"] for message in messages]
