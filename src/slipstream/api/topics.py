"""Topics: what they are made with and what they look like."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slipstream.api.groups import GroupInfo
from slipstream.api.retry import Natural, RetryPolicyFields


class TopicConfigFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """What can be set for one topic. What is absent follows the settings of the server. 0 means no limit."""

    max_in_flight: Natural | None = None
    """Messages on lease per group and partition."""
    max_waiting_messages: Natural | None = None
    """Messages per partition the slowest group may have left before producers get 429."""
    max_waiting_bytes: Natural | None = None
    retry: RetryPolicyFields | None = None
    """For messages that bring no policy of their own."""
    retention_ms: Natural | None = None
    retention_bytes: Natural | None = None
    hold_unfinished: bool | None = None
    """Retention keeps what a group has not finished."""
    dead_letters: bool | None = None
    """false: a message that has had its attempts is dropped instead of kept in dlq.<topic>."""
    expiry_ms: Natural | None = None
    """The topic is deleted if it was not used for this long and nothing in it is unfinished."""


class CreateTopicRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/topics`. A topic that exists is left as it is."""

    name: str
    partitions: Annotated[int, msgspec.Meta(ge=1)] = 1
    config: TopicConfigFields = TopicConfigFields()


class TopicChange(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`PATCH /v2/topics/{topic}`. What is absent stays as it is."""

    config: TopicConfigFields = TopicConfigFields()
    reset: list[str] = []
    """Names of the configuration that shall follow the settings of the server again."""
    partitions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """More than there are. Keys may then belong to another partition than before."""


class PartitionInfo(msgspec.Struct, frozen=True):
    partition: int
    first_offset: int
    """The oldest that can still be read."""
    next_offset: int
    """Everything below it has been written: read up to here and you have it all."""
    messages: int
    bytes: int
    """Of keys and values."""


class TopicSummary(msgspec.Struct, frozen=True):
    name: str
    id: str
    """Differs for a topic that was deleted and created again."""
    partitions: int
    messages: int
    bytes: int
    groups: int
    lag: int
    """Of the group that is furthest behind."""
    retention_ms: int | None = None
    """0: for ever. Null where what keeps the messages does not say."""
    retention_bytes: int | None = None
    """Per partition. 0: any size."""


class TopicList(msgspec.Struct, frozen=True):
    topics: list[TopicSummary]


class TopicInfo(msgspec.Struct, frozen=True):
    """`GET /v2/topics/{topic}`"""

    name: str
    id: str
    created_ms: int
    next_offset: int
    """The offset the next message of any partition gets, at least."""
    config: TopicConfigFields
    """What holds, with every field."""
    overrides: TopicConfigFields
    """Of that, what was set for this topic."""
    partitions: list[PartitionInfo]
    groups: list[GroupInfo]


class TopicCreated(msgspec.Struct, frozen=True):
    created: bool
    """false: it existed before and is as it was."""
    topic: TopicInfo
