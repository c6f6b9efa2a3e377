"""What the connections of one server share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slipstream.engine import Engine
from slipstream.limits import Limits
from slipstream.server.request_head import NO_TYPES, Types
from slipstream.server.route import Route


class Front:
    """What all connections of a server share."""

    def __init__(self, engine: Engine, routes: dict[bytes, Route], limits: Limits, sweep_ms: int = 1_000) -> None:
        self.engine = engine
        self.routes = routes
        """Paths that are answered inside the connection."""
        self.limits = limits
        self.sweep_ms = sweep_ms
        self.heads = HeadMemo()
        self.app_methods: Callable[[str], Sequence[str]] = lambda _: ()
        """The methods that the application answers on a path; none where it has no such path."""
        self.refused: dict[int, int] = {}
        """Status → how many requests were cut off while they were still being read."""

    def allowed(self, path: bytes) -> Sequence[str]:
        """Return the methods that a path answers; none where there is no such path."""
        route = self.routes.get(path)
        if route is not None:
            return [method.decode() for method in route.handlers]
        return self.app_methods(path.decode("latin-1"))

    def sweeps(self, timeout_ms: int) -> int:
        return max(1, timeout_ms // self.sweep_ms)


class Head:
    """What a request head says, for one that was parsed before."""

    __slots__ = ("data", "method", "route", "size", "total", "types")

    def __init__(self, data: bytes, route: Route, method: bytes, body_bytes: int, types: Types = NO_TYPES) -> None:
        self.data = data
        self.route = route
        self.method = method
        self.types = types
        self.size = len(data)
        self.total = len(data) + body_bytes
        """Head and body together."""


class HeadMemo(dict[bytes, Head]):
    """Request heads seen before, byte for byte.

    A client sends the same few heads again and again; only Content-Length varies. The same bytes at the start of a
    message mean the same thing, so the parser need not be asked twice. It is most of the cost of a small request.
    """

    ENTRIES_MAX = 4_096
    HEAD_BYTES_MAX = 1_024

    def find(self, data: bytes) -> Head | None:
        """The head of `data`, if it was seen before and `data` is just that request and nothing more."""
        head = self.get(data[: data.find(b"\r\n\r\n") + 4])
        return head if head is not None and head.total == len(data) else None

    def remember(self, head: Head) -> None:
        if head.size > self.HEAD_BYTES_MAX:
            return
        if len(self) >= self.ENTRIES_MAX:
            self.clear()
        self[head.data] = head
