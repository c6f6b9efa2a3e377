"""What is added to a message on its way to the dead letters."""

from __future__ import annotations

import datetime as dt

from slipstream.bus.drivers.driver import Delivery, Outgoing

REASON = "deadLetterReason"
TOPIC = "deadLetterTopic"
GROUP = "deadLetterGroup"
ATTEMPTS = "deadLetterAttempts"
TIME = "deadLetterTime"
ID = "deadLetterId"

REASON_CHARS_MAX = 1_000
"""Pub/Sub takes 1024 bytes in an attribute; NATS 64 KiB in all of them, unless told otherwise."""


def dead_letter(delivery: Delivery, to: str, *, topic: str, group: str, reason: str) -> Outgoing:
    """The message as it was, and why it is here. Its id is made of where and when it was published, so that one
    published again, after a crash in between, is the same dead letter to every engine that can tell; and one that has
    its place, because the topic was deleted and made again, is another."""
    attributes = {
        **delivery.attributes,
        REASON: short(reason),
        TOPIC: topic,
        GROUP: group,
        ATTEMPTS: str(delivery.attempt),
        TIME: dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        ID: delivery.id,
    }
    message_id = f"dead:{delivery.topic}:{group}:{delivery.id}:{delivery.published_ms}"
    return Outgoing(to, delivery.data, attributes, delivery.key, message_id)


def short(reason: object) -> str:
    """In whole characters, however many bytes they take; what is no text, or cannot be sent, becomes it here."""
    return str(reason).encode(errors="replace")[:REASON_CHARS_MAX].decode(errors="ignore")
