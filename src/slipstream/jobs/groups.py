"""The consumer groups: with which options each subscribes, here and where the groups are made beforehand."""

from __future__ import annotations

from slipstream.bus import SubscribeOptions
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.streams import Streams, streams

STATUSES_IN_FLIGHT = 64
LOGS_IN_FLIGHT = 256


def worker_options(settings: JobSettings) -> SubscribeOptions:
    """Of `workers` at jobs.tasks. What cannot be done is a DeadLetterTask of ours; what comes again does so because a
    worker died, or the bus was away, and is tried until it works: so there is no limit of deliveries."""
    downloading_ms = settings.max_attempts * (settings.total_timeout_ms + settings.hold_ms)
    storing_ms = settings.upload_attempts * (settings.upload_timeout_ms + 2 * settings.retry_longest_ms)
    return SubscribeOptions(
        max_in_flight=max(settings.max_in_flight, settings.concurrency),
        ack_deadline=settings.ack_deadline_ms / 1000,
        extend_for=(downloading_ms + storing_ms) / 1000,
        max_deliver=0,
        dead_letter_topic=streams(settings.namespace).dlq.topic,
    )


def ledger_options(streams: Streams, max_in_flight: int) -> SubscribeOptions:
    """Return the options of `ledger` at jobs.status and jobs.logs. A message comes again because the ledger could not
    be written: so there is no limit of deliveries."""
    return SubscribeOptions(max_in_flight=max_in_flight, max_deliver=0, dead_letter_topic=streams.dlq.topic)
