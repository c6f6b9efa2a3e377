"""Removes the groups and topics that have been idle for too long."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from slipstream.broker import Broker, Topic
from slipstream.durations import about_text

log = logging.getLogger(__name__)

EXPIRED_AT_ONCE = 100
"""Groups, and topics, that are removed together: other commands wait meanwhile."""


def expire(broker: Broker, now_ms: int, remove_files: Callable[[Topic], None]) -> None:
    """Forget groups and delete topics that have expired; the files of a topic go after the journal has its deletion."""
    expiry = broker.expiry
    for group in list(islice(expiry.groups(now_ms), EXPIRED_AT_ONCE)):
        idle = about_text(now_ms - group.used_ms)
        broker.forget_group(group.topic.name, group.name)
        expiry.totals["group"] += 1
        log.info(
            "group %s of %s has expired: it never acked, and was not used for %s", group.name, group.topic.name, idle
        )
    for topic in list(islice(expiry.topics(now_ms), EXPIRED_AT_ONCE)):
        remove_files(broker.delete_topic(topic.name))
        expiry.totals["topic"] += 1
        log.info("topic %s has expired: it was not used for %s", topic.name, about_text(topic.config.expiry_ms))
