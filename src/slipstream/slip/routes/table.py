"""The route table: which steps an event takes, by its type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.slip.event import Event, RoutingStep
from slipstream.slip.routes.document import Document
from slipstream.slip.routes.file import read_document
from slipstream.slip.routes.parser import parse_routes
from slipstream.slip.routes.problems import did_you_mean
from slipstream.slip.routes.route import Route


class NoRoute(LookupError):
    """The table has no route for events of this type."""

    def __init__(self, event_type: str, hint: str = "") -> None:
        super().__init__(f"there is no route for events of type {event_type!r:.200}{hint}: add one to the route table")
        self.event_type = event_type


class RouteTable:
    """Made once and never changed; a changed file is another table (`route_watch`).

    Example:
        table = RouteTable.load(Path("routes.yaml"))
        slip = (router_step, *table.plan(event))
    """

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.types = tuple(routes)
        """As the table has them, those that end in `*` included."""
        self._exact = {name: route for name, route in routes.items() if not name.endswith("*")}
        prefixes = [(name[:-1], route) for name, route in routes.items() if name.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda each: len(each[0]), reverse=True)

    @classmethod
    def load(cls, path: Path | str) -> RouteTable:
        """From a `.yaml`, `.json` or `.toml` file. Raises RouteTableInvalid with everything that is wrong with it."""
        return cls(parse_routes(read_document(Path(path))))

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> RouteTable:
        """From what such a file holds. Raises RouteTableInvalid."""
        return cls(parse_routes(Document(mapping)))

    def plan(self, event: Event) -> tuple[RoutingStep, ...]:
        """The steps after the router's own, all of them PENDING. There may be none: each can have its condition.

        Raises NoRoute, and ConditionFailed if a condition cannot be decided for this event."""
        return self.route(event.type).plan(event)

    def timeout(self, event_type: str) -> dt.timedelta | None:
        """How long a message may take as a whole. Raises NoRoute."""
        return self.route(event_type).timeout

    def route(self, event_type: str) -> Route:
        """That of the very type, or else of the longest beginning of it. Raises NoRoute."""
        if (exact := self._exact.get(event_type)) is not None:
            return exact
        for prefix, route in self._prefixes:
            if event_type.startswith(prefix):
                return route
        raise NoRoute(event_type, did_you_mean(event_type, self.types))
