"""The dashboard for Grafana: rows of panels, each with the questions it asks of Prometheus.

Written here and not by clicking, so that a metric that is renamed is renamed in one place, and a test can hold each
question against the metrics that exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PATH = Path(__file__).parent.parent / "deploy" / "grafana" / "slipstream.json"

WIDTH, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SINCE = "[$__rate_interval]"


class Panel(NamedTuple):
    title: str
    about: str
    unit: str
    questions: dict[str, str]
    """By legend."""
    kind: str = "timeseries"
    width: int = 8


def quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{SINCE})))"


def rate(metric: str, by: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{SINCE}))" if by else f"sum(rate({metric}{SINCE}))"


ROWS: dict[str, list[Panel]] = {
    "Broker": [
        Panel(
            "Messages",
            "Stored, delivered and acked by all brokers.",
            "ops",
            {
                "produced": rate("slipstream_produced_total"),
                "delivered": rate("slipstream_delivered_total"),
                "acked": rate("slipstream_acked_total"),
            },
        ),
        Panel(
            "Not as it should be",
            "Redeliveries, nacks, and messages refused by backpressure.",
            "ops",
            {
                "redelivered": rate("slipstream_redelivered_total"),
                "nacked": rate("slipstream_nacked_total"),
                "rejected: {{reason}}": rate("produce_rejected_total", "reason"),
                "router failures": rate("slipstream_router_failures_total"),
                "routers that fail or are paused": "sum(slipstream_router_well == bool 0)",
            },
        ),
        Panel(
            "Sync of the journal",
            "How long one takes on average. Every produce waits for one.",
            "s",
            {"sync": f"{rate('slipstream_journal_sync_seconds_total')} / {rate('slipstream_journal_syncs_total')}"},
        ),
        Panel(
            "Writable",
            "0 after the journal failed: restart it. Or there is no room on the disk: make some.",
            "none",
            {"": "min(slipstream_writable)", "disk low": "max(slipstream_disk_low)"},
            "stat",
            4,
        ),
        Panel(
            "Compaction",
            "Journal files that wait for it.",
            "short",
            {"files": "max(slipstream_compaction_backlog)"},
            width=6,
        ),
        Panel(
            "Kept",
            "Key and value bytes by topic.",
            "bytes",
            {"{{topic}}": "sum by (topic) (slipstream_partition_bytes)"},
            width=8,
        ),
        Panel(
            "Memory",
            "Of every part.",
            "bytes",
            {"{{job}} {{instance}}": "process_resident_memory_bytes"},
            width=6,
        ),
    ],
    "Groups and lag": [
        Panel(
            "Lag",
            "Messages that a group has not finished, as the broker counts them.",
            "short",
            {"{{topic}} {{group}}": 'sum by (topic, group) (consumer_lag{driver=""})'},
            width=12,
        ),
        Panel(
            "In flight",
            "On lease to a consumer, and failed messages that wait for another attempt.",
            "short",
            {
                "{{topic}} {{group}}": "sum by (topic, group) (inflight_messages)",
                "retrying {{topic}} {{group}}": "sum by (topic, group) (slipstream_retrying_messages)",
            },
            width=12,
        ),
        Panel(
            "Standing still",
            "Groups that cannot read on, and messages that retention took from them.",
            "short",
            {
                "unreadable {{topic}} {{group}}": "sum by (topic, group) (slipstream_unreadable)",
                "lost {{topic}} {{group}}": (
                    f"sum by (topic, group) (increase(slipstream_retention_lost_messages_total{SINCE})) > 0"
                ),
            },
            width=12,
        ),
        Panel(
            "Consumers",
            "Open streams, and fetches that wait; and streams that are parked, because they settle nothing.",
            "short",
            {
                "{{topic}} {{group}}": "sum by (topic, group) (slipstream_consumers)",
                "parked {{topic}} {{group}}": "sum by (topic, group) (slipstream_parked_consumers) > 0",
            },
            width=12,
        ),
    ],
    "Dead letters": [
        Panel(
            "Moved to the dead letters",
            "By the broker, and by the bus, which does it itself on every engine.",
            "short",
            {
                "broker {{topic}} {{reason}}": f"sum by (topic, reason) (increase(dlq_messages_total{SINCE}))",
                "bus {{topic}} {{reason}}": f"sum by (topic, reason) (increase(dead_letters_total{SINCE}))",
            },
            width=12,
        ),
        Panel("Sent back", "Redriven.", "ops", {"redriven": rate("slipstream_redriven_total")}, width=12),
        Panel(
            "By hand",
            "Messages that operators retried, rejected, discarded, extended or released, and what expired.",
            "ops",
            {
                "{{operation}}": rate("slipstream_operations_total", "operation"),
                "expired {{kind}}": rate("slipstream_expired_total", "kind"),
            },
            width=12,
        ),
    ],
    "Bus": [
        Panel(
            "Messages",
            "What became of them, on whatever engine.",
            "ops",
            {"{{driver}} {{event}}": rate("messages_total", "driver, event")},
        ),
        Panel(
            "Publish",
            "From publish until the engine has the message safely.",
            "ms",
            {
                "{{driver}} p50": quantile(0.5, "publish_latency_ms", "driver"),
                "{{driver}} p99": quantile(0.99, "publish_latency_ms", "driver"),
            },
        ),
        Panel(
            "Lag",
            "As the engine tells the subscribers.",
            "short",
            {"{{driver}} {{topic}} {{group}}": 'max by (driver, topic, group) (consumer_lag{driver!=""})'},
        ),
        Panel(
            "In the hands of handlers",
            "A group that stays at its limit needs more workers.",
            "short",
            {"{{topic}} {{group}}": "sum by (topic, group) (messages_inflight)"},
            width=12,
        ),
        Panel(
            "Redeliveries",
            "Received for at least the second time.",
            "ops",
            {"{{topic}} {{group}}": rate("redeliveries_total", "topic, group")},
            width=12,
        ),
    ],
    "Slips": [
        Panel("Slips", "Planned, completed, dead-lettered, late.", "ops", {"{{event}}": rate("slips_total", "event")}),
        Panel("Attempts", "By step.", "ops", {"{{step}}": rate("step_attempts_total", "step")}),
        Panel(
            "Errors",
            "Attempts that failed, by step and code.",
            "ops",
            {"{{step}} {{code}}": rate("step_errors_total", "step, code")},
        ),
        Panel(
            "How long an attempt takes",
            "By step.",
            "ms",
            {
                "{{step}} p50": quantile(0.5, "step_duration_ms", "step"),
                "{{step}} p95": quantile(0.95, "step_duration_ms", "step"),
            },
            width=16,
        ),
        Panel(
            "Route table",
            "1 while the newest is wrong, and an older one is used.",
            "none",
            {"": "max(route_table_refused)"},
            "stat",
        ),
        Panel(
            "Topics without a worker",
            "1 while messages of a step are sent to a topic that has never had a consumer group.",
            "none",
            {"{{step}} {{topic}}": "max by (step, topic) (step_topic_unserved)"},
            width=24,
        ),
    ],
    "Jobs": [
        Panel("Jobs", "In the ledger, by state.", "short", {"{{state}}": "sum by (state) (jobs_by_state)"}),
        Panel(
            "Submitted",
            "Accepted, or refused with a code.",
            "ops",
            {"{{outcome}} {{code}}": rate("jobs_submissions_total", "outcome, code")},
        ),
        Panel(
            "Tasks",
            "That came to an end: stored, or failed with a code.",
            "ops",
            {"{{outcome}} {{code}}": rate("jobs_tasks_total", "outcome, code")},
        ),
        Panel(
            "Retries",
            "Attempts that failed, with another to come.",
            "ops",
            {"{{code}}": rate("jobs_retries_total", "code")},
        ),
        Panel("Stored", "Bytes of resources.", "Bps", {"stored": rate("jobs_stored_bytes_total")}),
        Panel(
            "How long a task takes",
            "From taking it to its end, pauses included.",
            "s",
            {
                "p50": quantile(0.5, "jobs_task_seconds", "job"),
                "p95": quantile(0.95, "jobs_task_seconds", "job"),
            },
        ),
    ],
    "Pipeline": [
        Panel(
            "Freshness",
            "How old what each table shows may be; 0 while all is read.",
            "s",
            {"{{table}}": "max by (table) (pipeline_table_freshness_seconds)"},
        ),
        Panel(
            "Lag", "Messages that are not read yet.", "short", {"{{query}}": "sum by (query) (pipeline_lag_messages)"}
        ),
        Panel("Rows", "Written or changed, by table.", "ops", {"{{table}}": rate("pipeline_rows_total", "table")}),
        Panel(
            "How long a batch takes",
            "Until it is in all of its tables.",
            "s",
            {
                "{{query}} p50": quantile(0.5, "pipeline_batch_seconds", "query"),
                "{{query}} p95": quantile(0.95, "pipeline_batch_seconds", "query"),
            },
        ),
        Panel("Batches", "That have changed a table.", "ops", {"{{table}}": rate("pipeline_batches_total", "table")}),
        Panel(
            "Since the last batch",
            "And whether a query has stopped.",
            "s",
            {
                "{{query}}": "time() - max by (query) (pipeline_last_batch_timestamp_seconds)",
                "stopped: {{query}}": f"sum by (query) (increase(pipeline_failed_queries_total{SINCE})) > 0",
            },
        ),
    ],
    "Console": [
        Panel(
            "Answers",
            "Of the console's process, by class of status.",
            "ops",
            {"{{status}}": rate("console_requests_total", "status")},
        ),
        Panel(
            "Questions in SQL",
            "Answered, or refused with a code.",
            "ops",
            {"{{outcome}}": rate("console_questions_total", "outcome")},
        ),
        Panel("Watching", "Pages that are open and follow the overview.", "short", {"pages": "sum(console_watching)"}),
    ],
}


def dashboard() -> dict[str, Any]:
    return {
        "uid": "slipstream",
        "title": "Slipstream",
        "tags": ["slipstream"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {},
                }
            ]
        },
        "annotations": {"list": []},
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield _row(number, title, top)
        top, left = top + 1, 0
        for panel in panels:
            if left + panel.width > WIDTH:
                top, left = top + HEIGHT, 0
            number += 1
            yield _panel(number, panel, left, top)
            left += panel.width
        top += HEIGHT


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(number: int, panel: Panel, left: int, top: int) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": question, "legendFormat": legend}
        for index, (legend, question) in enumerate(panel.questions.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {} if panel.kind == "stat" else {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }


def dashboard_text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"
