"""Names of streams and consumers, which may not have dots in them as subjects do."""

from __future__ import annotations


def stream_name(topic: str) -> str:
    """`=` is in no name of ours, so no two topics share a stream."""
    return topic.replace(".", "=")


def group_name(consumer: str) -> str:
    """Return the group that a durable consumer belongs to."""
    return consumer.replace("=", ".")


def consumer_name(group: str) -> str:
    return group.replace(".", "=")
