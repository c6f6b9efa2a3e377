"""What JetStream says about a message it hands out: it stands in the subject that answers to it."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    consumer: str
    delivered: int
    """How often the consumer was given it, this time included."""
    stream_sequence: int
    consumer_sequence: int
    """How many the consumer was given, this one included."""
    published_ms: int


def place_of(reply: str) -> Place:
    # $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<delivered>.<sequence>.<…>.<time in ns>.<pending>[.<token>]
    tokens = reply.split(".")
    first = 3 if len(tokens) == 9 else 5
    consumer, delivered, stream_sequence, consumer_sequence, published_ns = tokens[first : first + 5]
    return Place(consumer, int(delivered), int(stream_sequence), int(consumer_sequence), int(published_ns) // 1_000_000)
