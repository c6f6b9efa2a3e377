"""The Python client: everything `/v2` offers, typed, for programs with an event loop and without.

    from slipstream.client import AsyncClient, Client, Worker

`AsyncClient` speaks to a server; `Client` is the same where nothing is awaited; `Worker` runs handlers. They know the
server by its address and by the types in `slipstream.api`, and nothing else of it.
"""

from slipstream.client.async_client import AsyncClient
from slipstream.client.client import Client
from slipstream.client.errors import (
    BrokerFull,
    Conflict,
    ConnectionFailed,
    InProgress,
    InvalidArgument,
    LeaseLost,
    NotFound,
    OffsetOutOfRange,
    Overloaded,
    ProduceFailed,
    RedriveFailed,
    SlipstreamError,
    TooLarge,
    Unavailable,
)
from slipstream.client.message import AsyncMessage, Message, SyncMessage
from slipstream.client.produce import MessageFields, compose
from slipstream.client.producer import Producer
from slipstream.client.redrive import Redrive, SyncRedrive
from slipstream.client.sync_producer import SyncProducer
from slipstream.client.worker import Worker
from slipstream.outcome import Postpone, Reject, Retry, Undecodable

__all__ = [
    "AsyncClient",
    "AsyncMessage",
    "BrokerFull",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "InProgress",
    "InvalidArgument",
    "LeaseLost",
    "Message",
    "MessageFields",
    "NotFound",
    "OffsetOutOfRange",
    "Overloaded",
    "Postpone",
    "ProduceFailed",
    "Producer",
    "Redrive",
    "RedriveFailed",
    "Reject",
    "Retry",
    "SlipstreamError",
    "SyncMessage",
    "SyncProducer",
    "SyncRedrive",
    "TooLarge",
    "Unavailable",
    "Undecodable",
    "Worker",
    "compose",
]
