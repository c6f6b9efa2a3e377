"""What every table must contain, computed from the log in plain Python.

Nothing here is of the pipeline: protobuf is read by google's library, JSON by Python's, and all the rest is loops over
dictionaries, slow and easy to check. Where pipeline and answers disagree, one of them has a rule wrong.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from slipstream.api import Envelope
from tests.pipeline.job_answers import (
    dead_letter_causes,
    job_snapshots,
    job_throughput,
    silver_jobs,
    tenant_usage,
)
from tests.pipeline.rows import Row, place_of
from tests.pipeline.slip_answers import (
    run_lineage,
    silver_slips,
    slip_runs,
    slip_steps,
    step_metrics,
    stuck_slips,
)
from tests.pipeline.stored import Stored, time_of

STUCK_AFTER = dt.timedelta(minutes=5)


def answers(log: list[Stored], now: dt.datetime | None = None) -> dict[str, list[Row]]:
    """By table, in no particular order. `now` is for what has been quiet for too long."""
    tables: dict[str, list[Row]] = {"messages": messages(log)}
    tables |= silver_jobs(log)
    slips = silver_slips(log)
    tables["slip_events"] = slips["slip_events"]
    tables["quarantine"] += slips["quarantine"]
    tables["slip_steps"] = slip_steps(tables["slip_events"])
    tables["slip_runs"] = slip_runs(tables["slip_events"])
    tables["job_snapshots"] = job_snapshots(tables["job_status"])
    tables["job_throughput"] = job_throughput(tables)
    tables["tenant_usage"] = tenant_usage(tables)
    tables["step_metrics"] = step_metrics(tables["slip_steps"])
    tables["dead_letter_causes"] = dead_letter_causes(tables["dead_letters"])
    tables["run_lineage"] = run_lineage(tables["slip_events"], tables["slip_steps"]) + envelope_lineage(log)
    tables["stuck_slips"] = stuck_slips(tables["slip_runs"], (now or dt.datetime.now(dt.UTC)) - STUCK_AFTER)
    return tables


def messages(log: Iterable[Stored]) -> list[Row]:
    return [
        place_of(one)
        | {
            "key": one.key,
            "value": one.value,
            "headers": one.attributes,
            "envelope": _envelope(one.envelope),
            "routing": None if one.routing is None else {"label": one.routing.label, "meta": one.routing.meta},
            "incarnation": one.incarnation,
        }
        for one in log
    ]


def _envelope(envelope: Envelope | None) -> Row | None:
    """What nobody has said is null."""
    if envelope is None:
        return None
    texts = ("run_id", "step_id", "parent_step_id", "tenant_id", "idempotency_key", "target_topic")
    row: Row = {name: getattr(envelope, name) or None for name in texts}
    policy, dlq = envelope.retry_policy, envelope.dlq
    row |= {
        "partition_override": envelope.partition_override,
        "deadline": envelope.deadline,
        "retry_policy": None if policy is None else _fields(policy, "max_attempts", "backoff_ms", "max_backoff_ms"),
        "labels": envelope.labels,
        "dlq": None,
    }
    if dlq is not None:
        origin = _fields(dlq, "original_topic", "original_partition", "original_offset", "group")
        why = _fields(dlq, "attempts", "last_error", "reason")
        row["dlq"] = origin | why | {"routed_at": time_of(dlq.routed_at_ms)}
    return row


def _fields(struct: object, *names: str) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in names}


def envelope_lineage(log: Iterable[Stored]) -> list[Row]:
    """Of runs that are known by the envelopes of their messages."""
    steps: dict[tuple[str, str], list[Stored]] = {}
    for one in log:
        if one.envelope is not None and one.envelope.run_id and one.envelope.step_id:
            steps.setdefault((one.envelope.run_id, one.envelope.step_id), []).append(one)
    rows: list[Row] = []
    for (run_id, step_id), found in steps.items():
        latest = max(found, key=lambda one: (one.timestamp_ms, one.offset, one.topic, one.partition))
        rows.append(
            {
                "origin": "envelope",
                "run_id": run_id,
                "step_id": step_id,
                "parent_step_id": max(one.envelope.parent_step_id for one in found if one.envelope is not None),
                "parent_run_id": "",
                "position": None,
                "first_at": min(one.timestamp for one in found),
                "last_at": max(one.timestamp for one in found),
                "attempts": None,
                "state": None,
                "topic": latest.topic,
                "messages": len(found),
            }
        )
    return rows
