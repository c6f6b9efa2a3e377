"""What travels with a payload: who it belongs to, where it may go, how often it may be tried, why it died."""

from __future__ import annotations

import datetime as dt

import msgspec

from slipstream.broker.evidence import NO_EVIDENCE, Evidence

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999. Nothing is due later: it could be shown as no date, and past 64 bits not be written."""


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How failures of one message are repeated. `max_attempts` 0 means without end, `backoff_ms` 0 means at once."""

    max_attempts: int = 0
    backoff_ms: int = 0
    max_backoff_ms: int = 0

    def delay_ms(self, retry: int) -> int:
        """The pause before the n-th retry, counted from 1 (ruling 5)."""
        if self.backoff_ms <= 0:
            return 0
        # 2**40 ms is 34 years: beyond that a larger shift only costs time.
        delay = self.backoff_ms << min(retry - 1, 40)
        return min(delay, self.max_backoff_ms) if self.max_backoff_ms > 0 else delay


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Where a dead letter came from and what happened to it there (ruling 6)."""

    original_topic: str
    original_partition: int
    original_offset: int
    group: str
    attempts: int
    last_error: str
    reason: str
    routed_at_ms: int
    tenant_id: str = ""
    idempotency_key: str = ""


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The agent metadata of DriftQ v1.4; every field is optional."""

    run_id: str = ""
    step_id: str = ""
    parent_step_id: str = ""
    tenant_id: str = ""
    idempotency_key: str = ""
    target_topic: str = ""
    deadline: dt.datetime | None = None
    retry_policy: RetryPolicy | None = None
    partition_override: int | None = None
    labels: dict[str, str] | None = None
    dlq: DeadLetter | None = None

    @property
    def deadline_ms(self) -> int | None:
        # Rounded: as a float, .121 s may be a hair less than 121 ms.
        return None if self.deadline is None else round(self.deadline.timestamp() * 1000)


class Routing(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the router said about a message; consumers see it beside the envelope."""

    label: str = msgspec.field(default="")
    meta: dict[str, str] = {}


class RoutingDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A router's answer. What it sets wins over the producer; what it leaves out does not (ruling 13)."""

    label: str = ""
    target_topic: str | None = None
    partition_override: int | None = None
    meta: dict[str, str] | None = None


class Meta(msgspec.Struct, array_like=True, frozen=True):
    """Everything kept beside a payload, as it is encoded into `Record.meta`."""

    envelope: Envelope | None = None
    routing: Routing | None = None
    attributes: dict[str, str] | None = None
    deliver_at_ms: int | None = None
    """Consumers get it no earlier."""
    redriven_from: str = ""
    """`dlq.<topic>/<partition>/<offset>` of the dead letter it was."""
    only_group: str = ""
    """The one group that gets it; "" for every group of the topic (ruling 29)."""
    evidence: Evidence = NO_EVIDENCE
    """What happened at each attempt, of a dead letter."""


NO_META = Meta()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Meta).decode


def encode_meta(meta: Meta) -> bytes:
    return _encode(meta) if meta != NO_META else b""


def decode_meta(encoded: bytes) -> Meta:
    return _decode(encoded) if encoded else NO_META
