"""A path that is answered inside the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from slipstream.server.exchange import Exchange

Handler: TypeAlias = Callable[[Exchange], None]


class Route:
    """Who answers which method on it."""

    __slots__ = ("allow", "alone", "body_bytes", "handle", "handlers", "takes")

    def __init__(
        self,
        handle: Callable[[Route, Exchange], None],
        *,
        alone: bool = False,
        takes: bool = False,
        body_bytes: int | None = None,
        **handlers: Handler,
    ) -> None:
        self.handle = handle
        """Every request on this path goes in here, and leaves answered or to be answered."""
        self.alone = alone
        """Nothing else may be under way on the connection: a stream does not end."""
        self.takes = takes
        """A GET takes something away, so that it is no mere reading."""
        self.body_bytes = body_bytes
        """How large a body may be, if not as large as everywhere."""
        self.handlers = {method.encode(): handler for method, handler in handlers.items()}
        self.allow = b"Allow: " + b", ".join(self.handlers) + b"\r\n"
