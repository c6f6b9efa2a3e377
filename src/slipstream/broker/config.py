"""Everything about the delivery rules that can be set, with the defaults for real work."""

from __future__ import annotations

import msgspec

from slipstream.broker.topic import TopicConfig


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a broker. What can differ per topic is in `topic`, the configuration new topics start with."""

    topic: TopicConfig = TopicConfig()
    lease_ms: int = 2_000
    lease_ms_max: int = 12 * 3600 * 1000
    idempotency_ttl_ms: int = 10 * 60 * 1000
    idempotency_keys_max: int = 1_000_000
    overload_retry_after_ms: int = 1_000
    group_absent_ms: int = 3600 * 1000
    """A group that nobody has used for this long no longer holds back producers; its progress is kept."""
    group_expiry_ms: int = 30 * 24 * 3600 * 1000
    """A group that has never acked and was not used for this long is forgotten; 0: never."""
    backpressure_without_groups: bool = False
    """Count messages as waiting even while no group exists that waits for them, as DriftQ does."""
    stream_window_bytes: int = 1 << 20
    """A consumer is handed no more than about this much before it is seen whether it keeps up."""
    pace_streams: bool = True
    """Measure how much each stream can hold, and park those that settle nothing. DriftQ does neither."""
    partitions_max: int = 1_024
    topics_max: int = 10_000
    groups_max: int = 10_000
    writers_max: int = 100_000
    writer_ttl_ms: int = 30 * 24 * 3600 * 1000
    """How long the sequence of a writer is remembered after its last commit."""
    staged_bytes_max: int = 256 << 20
    """What may wait in memory for its commit."""
    staged_ttl_ms: int = 3600 * 1000
    last_error_chars_max: int = 4_096
    deadlines_max: int = 100_000
    """How many waiting messages have their deadline watched; past that it is only looked at on delivery."""
    delayed_max: int = 100_000
    """Maximum number of messages a group looks past in a partition because they are not due yet, and as many again that
    wait for another attempt. At the limit the group waits, so that memory stays bounded."""
