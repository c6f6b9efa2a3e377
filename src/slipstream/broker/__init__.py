"""The delivery rules: topics, partitions, groups, leases, retries, dead letters, idempotency, backpressure.

A state machine and nothing else. It imports no socket, no file, no thread and no clock: whoever runs it (`engine`, the
simulator in the tests) hands in the time with each command and the logs at construction, and carries out the effects.
"""

from slipstream.broker.broker import Broker, HasPlace
from slipstream.broker.config import BrokerConfig
from slipstream.broker.consumption import Consumed
from slipstream.broker.effects import Delivery, Effects, Publications
from slipstream.broker.envelope import (
    NO_META,
    DeadLetter,
    Envelope,
    Meta,
    RetryPolicy,
    Routing,
    RoutingDecision,
    decode_meta,
)
from slipstream.broker.errors import (
    BrokerError,
    BrokerFull,
    DiskLow,
    FailedPrecondition,
    InProgress,
    InvalidArgument,
    NotFound,
    Overloaded,
    Unavailable,
)
from slipstream.broker.evidence import Attempt, Evidence
from slipstream.broker.group import Consumer, Group, Progress
from slipstream.broker.intake import Placement, group_addressed
from slipstream.broker.lease import Lease
from slipstream.broker.message import NewMessage
from slipstream.broker.operations import OPERATIONS
from slipstream.broker.parts import Part
from slipstream.broker.topic import DEAD_LETTER_PREFIX, Partition, PartitionLog, Topic, TopicConfig, TopicOverrides

__all__ = [
    "DEAD_LETTER_PREFIX",
    "NO_META",
    "OPERATIONS",
    "Attempt",
    "Broker",
    "BrokerConfig",
    "BrokerError",
    "BrokerFull",
    "Consumed",
    "Consumer",
    "DeadLetter",
    "Delivery",
    "DiskLow",
    "Effects",
    "Envelope",
    "Evidence",
    "FailedPrecondition",
    "Group",
    "HasPlace",
    "InProgress",
    "InvalidArgument",
    "Lease",
    "Meta",
    "NewMessage",
    "NotFound",
    "Overloaded",
    "Part",
    "Partition",
    "PartitionLog",
    "Placement",
    "Progress",
    "Publications",
    "RetryPolicy",
    "Routing",
    "RoutingDecision",
    "Topic",
    "TopicConfig",
    "TopicOverrides",
    "Unavailable",
    "decode_meta",
    "group_addressed",
]
