"""What is said over `/v2`: the structs that requests are decoded into and answers are encoded from.

The server, the client and the OpenAPI document use the same types, so none of them can drift from the others. Nothing
here does anything: no socket, and of the broker only the types of the envelope. In JSON, payloads are text, or base64
with `encoding` beside it; in MessagePack they are bytes.
"""

from slipstream.api.commits import (
    CommitRequest,
    CommitResponse,
    ConsumedWindow,
    Staged,
    StageQuery,
    Unstaged,
    UnstageRequest,
    WriterInfo,
)
from slipstream.api.consume import (
    AckRequest,
    AckResponse,
    ExtendRequest,
    ExtendResponse,
    Failure,
    FetchedMessage,
    FetchRequest,
    FetchResponse,
    NackItem,
    NackRequest,
    NackResponse,
    Place,
)
from slipstream.api.dead_letters import (
    AttemptInfo,
    DeadLetterItem,
    DeadLetterList,
    DeadLetterQuery,
    RedriveList,
    RedriveRequest,
    RedriveState,
    RedriveStatus,
)
from slipstream.api.errors import ErrorResponse
from slipstream.api.events import GroupStats, Stats, TopicStats
from slipstream.api.groups import (
    ConsumerInfo,
    GroupInfo,
    GroupList,
    GroupPartition,
    GroupRetryRequest,
    InFlight,
    SeekRequest,
)
from slipstream.api.media import ARROW, JSON, MSGPACK, NDJSON
from slipstream.api.offsets import OffsetsRequest, OffsetsResponse, PartitionOffsets, TopicOffsets
from slipstream.api.once import OnceBeginRequest, OnceBeginResponse, OnceSettleRequest
from slipstream.api.produce import EnvelopeFields, Placed, ProduceMessage, ProduceRequest, ProduceResponse
from slipstream.api.read import LogMessage, ReadQuery, ReadResponse
from slipstream.api.retry import RetryPolicyFields
from slipstream.api.segments import SegmentFile, SegmentList, SegmentsQuery
from slipstream.api.topics import (
    CreateTopicRequest,
    PartitionInfo,
    TopicChange,
    TopicConfigFields,
    TopicCreated,
    TopicInfo,
    TopicList,
    TopicSummary,
)
from slipstream.broker.envelope import DeadLetter, Envelope, RetryPolicy, Routing

__all__ = [
    "ARROW",
    "JSON",
    "MSGPACK",
    "NDJSON",
    "AckRequest",
    "AckResponse",
    "AttemptInfo",
    "CommitRequest",
    "CommitResponse",
    "ConsumedWindow",
    "ConsumerInfo",
    "CreateTopicRequest",
    "DeadLetter",
    "DeadLetterItem",
    "DeadLetterList",
    "DeadLetterQuery",
    "Envelope",
    "EnvelopeFields",
    "ErrorResponse",
    "ExtendRequest",
    "ExtendResponse",
    "Failure",
    "FetchRequest",
    "FetchResponse",
    "FetchedMessage",
    "GroupInfo",
    "GroupList",
    "GroupPartition",
    "GroupRetryRequest",
    "GroupStats",
    "InFlight",
    "LogMessage",
    "NackItem",
    "NackRequest",
    "NackResponse",
    "OffsetsRequest",
    "OffsetsResponse",
    "OnceBeginRequest",
    "OnceBeginResponse",
    "OnceSettleRequest",
    "PartitionInfo",
    "PartitionOffsets",
    "Place",
    "Placed",
    "ProduceMessage",
    "ProduceRequest",
    "ProduceResponse",
    "ReadQuery",
    "ReadResponse",
    "RedriveList",
    "RedriveRequest",
    "RedriveState",
    "RedriveStatus",
    "RetryPolicy",
    "RetryPolicyFields",
    "Routing",
    "SeekRequest",
    "SegmentFile",
    "SegmentList",
    "SegmentsQuery",
    "StageQuery",
    "Staged",
    "Stats",
    "TopicChange",
    "TopicConfigFields",
    "TopicCreated",
    "TopicInfo",
    "TopicList",
    "TopicOffsets",
    "TopicStats",
    "TopicSummary",
    "UnstageRequest",
    "Unstaged",
    "WriterInfo",
]
