"""placeholder"""

from __future__ import annotations

import datetime as dt

from slipstream.slip.event import Event, RoutingStep
from slipstream.slip.route_table import RouteTable


class WatchedRoutes:
    def __init__(self, path: str) -> None:
        self.table = RouteTable.load(path)

    def plan(self, event: Event) -> tuple[RoutingStep, ...]:
        return self.table.plan(event)

    def timeout(self, event_type: str) -> dt.timedelta | None:
        return self.table.timeout(event_type)

    async def run(self) -> None: ...
