"""Messages to read, and what became of those that were written."""

from __future__ import annotations

from slipstream.client import Client, compose


def fill(client: Client, topic: str, count: int, first: int = 0) -> None:
    """Values `v<n>`, with keys that are spread over the partitions."""
    client.produce_batch(topic, [compose(f"v{n}", key=f"user:{n % 7}") for n in range(first, first + count)])


def numbered(first: int, end: int) -> list[str]:
    return [f"v{n}" for n in range(first, end)]


def in_topic(client: Client, topic: str) -> list[str]:
    """All values, of all partitions, in the order of their offsets."""
    partitions = range(len(client.topic(topic).partitions))
    found = [message for partition in partitions for message in client.scan(topic, partition)]
    return [message.value.decode() for message in sorted(found, key=lambda message: message.offset)]
