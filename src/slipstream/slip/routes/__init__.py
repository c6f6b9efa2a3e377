"""Which steps for which type of event: a table in a file, with conditions. It knows events and nothing of the bus."""

from slipstream.slip.routes.condition import Condition, ConditionFailed, ConditionInvalid
from slipstream.slip.routes.problems import RouteTableInvalid
from slipstream.slip.routes.table import NoRoute, RouteTable
from slipstream.slip.routes.watch import WatchedRoutes

__all__ = [
    "Condition",
    "ConditionFailed",
    "ConditionInvalid",
    "NoRoute",
    "RouteTable",
    "RouteTableInvalid",
    "WatchedRoutes",
]
