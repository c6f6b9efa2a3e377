"""How messages of jobs are put on the bus: the attributes they travel with, and the ids that repeats are known by."""

from __future__ import annotations

import hashlib

from slipstream.spans import active_span, somewhere_in

PROTOBUF = "application/x-protobuf"
LEDGER = "ledger"
"""The attribute by which a ledger knows the JobStatus that it has published itself."""

CONTROL_MS = "controlMs"
"""The attribute of a task that was published again: the time of the last decision of operators about its job then, in
milliseconds. A cancellation from before does not hold for it."""


def attributes_of(kind: str, job_id: str, trace_id: str = "") -> dict[str, str]:
    """`kind` is the message's name in proto/jobs.proto."""
    attributes = {"contentType": PROTOBUF, "messageType": f"fetchbox.jobs.{kind}", "correlationId": job_id}
    if len(trace_id) == 32:
        active = active_span()
        attributes["traceparent"] = active if active[3:35] == trace_id else somewhere_in(trace_id)
    return attributes


def message_id(*parts: str) -> str:
    """Of a fixed length and of plain characters, whatever the parts are: not every engine takes all in an id."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.hexdigest()
