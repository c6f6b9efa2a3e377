"""Routing slips: a message carries its itinerary with it, each service does its step, and anyone can see where it is.

Everything here is an application of the bus (`slipstream.bus`) and runs unchanged on each of its engines. What a slip
is and how it advances (`event`, `itinerary`) touches neither bus nor clock; `router` and `worker` do, and `store` keeps
what must be known by all of them: which attempt ended how, what waits for whom, and what is over.
"""

from slipstream.outcome import Reject, Retry
from slipstream.slip.control import Control, Signal
from slipstream.slip.errors import InvalidSlip, Pause, Skip, StepFailed
from slipstream.slip.event import Envelope, Event, Malformed, RoutingStep, Status, StepError, decode, encode
from slipstream.slip.identity import dedupe_key
from slipstream.slip.ingress import submit
from slipstream.slip.itinerary import Itinerary
from slipstream.slip.progress import Progress
from slipstream.slip.retries import Retries
from slipstream.slip.router import Router
from slipstream.slip.routes.table import NoRoute, RouteTable
from slipstream.slip.service import run, serving
from slipstream.slip.settings import SlipSettings, load_settings
from slipstream.slip.store import open_store
from slipstream.slip.work import Work
from slipstream.slip.worker import Worker

__all__ = [
    "Control",
    "Envelope",
    "Event",
    "InvalidSlip",
    "Itinerary",
    "Malformed",
    "NoRoute",
    "Pause",
    "Progress",
    "Reject",
    "Retries",
    "Retry",
    "RouteTable",
    "Router",
    "RoutingStep",
    "Signal",
    "Skip",
    "SlipSettings",
    "Status",
    "StepError",
    "StepFailed",
    "Work",
    "Worker",
    "decode",
    "dedupe_key",
    "encode",
    "load_settings",
    "open_store",
    "run",
    "serving",
    "submit",
]
