"""The bus: publish and subscribe, with the engine chosen by configuration alone.

    from slipstream.bus import open_bus

    async with open_bus() as bus:
        await bus.subscribe("orders", "shipping", ship)
        await bus.publish("orders", "two books")

The engine is the embedded broker, a Slipstream server, NATS JetStream or Google Pub/Sub, and what is said about
delivery here holds on each. Drivers (`slipstream.bus.drivers`) hand out messages and take them back; everything else,
from the in-flight bound to dead letters, is done once, above them. Slips and jobs stand on this and see nothing else.
"""

from slipstream.bus.bus import Bus
from slipstream.bus.contract import Handler, MessagePublisher, MessageSubscriber, SubscriptionHandle
from slipstream.bus.dead_letters import DeadLetter, DeadLetters, Selection
from slipstream.bus.draft import Draft
from slipstream.bus.drivers.driver import NO_OFFSET, Finding, Stored, TopicInfo
from slipstream.bus.errors import (
    BusClosed,
    BusError,
    BusUnavailable,
    DeadLetterMissing,
    InvalidArgument,
    PublishFailed,
    TopicMissing,
    Unauthorized,
    Unsupported,
)
from slipstream.bus.message import Message
from slipstream.bus.opening import examine, open_bus
from slipstream.bus.options import Backoff, SubscribeOptions
from slipstream.bus.settings import BusSettings, load_settings
from slipstream.bus.subscription import Subscription
from slipstream.outcome import Postpone, Reject, Retry, Undecodable

__all__ = [
    "NO_OFFSET",
    "Backoff",
    "Bus",
    "BusClosed",
    "BusError",
    "BusSettings",
    "BusUnavailable",
    "DeadLetter",
    "DeadLetterMissing",
    "DeadLetters",
    "Draft",
    "Finding",
    "Handler",
    "InvalidArgument",
    "Message",
    "MessagePublisher",
    "MessageSubscriber",
    "Postpone",
    "PublishFailed",
    "Reject",
    "Retry",
    "Selection",
    "Stored",
    "SubscribeOptions",
    "Subscription",
    "SubscriptionHandle",
    "TopicInfo",
    "TopicMissing",
    "Unauthorized",
    "Undecodable",
    "Unsupported",
    "examine",
    "load_settings",
    "open_bus",
]
