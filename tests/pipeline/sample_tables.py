"""A folder of tables as a pipeline leaves them: an afternoon of download jobs and slips, the same for the same seed."""

from __future__ import annotations

import datetime as dt
import functools
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from slipstream.pipeline.tables import TABLES

END = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
TENANTS = {"acme": 40, "globex": 25, "initech": 8}
STEPS = {"validate": 12.0, "charge": 180.0, "ship": 90.0, "notify": 35.0}

Rows = Sequence[Mapping[str, Any]]


def make_table(
    root: Path, name: str, rows: Rows = (), *, batch: int | None = None, query: str = "", parts: int = 1
) -> DeltaTable:
    """Puts rows into a table, which is made if it is not there; columns that a row does not have are null."""
    table = TABLES[name]
    path = str(root / name)
    if not (root / name / "_delta_log").is_dir():
        DeltaTable.create(path, schema=table.columns, partition_by=list(table.partition_by), name=name)
    full = [{field.name: row.get(field.name) for field in table.columns} for row in rows]
    each = -(-len(full) // parts) or 1
    for start in range(0, len(full), each):
        properties = None
        if batch is not None:
            writer = query or table.queries[0]
            metadata = root / "_checkpoints" / writer / "metadata"
            metadata.parent.mkdir(parents=True, exist_ok=True)
            metadata.write_text('{"id": "spark-s-own"}')
            transaction = Transaction(f"{writer}:spark-s-own", batch + start // each)
            properties = CommitProperties(app_transactions=[transaction])
        part = pa.Table.from_pylist(full[start : start + each], schema=table.columns)
        write_deltalake(path, part, mode="append", commit_properties=properties)
    return DeltaTable(path)


def make_far(root: Path, time_us: int, *, names: Sequence[str] = ()) -> None:
    """A row in every table, or in those, whose times are all this one, which need be none that Python has."""
    day = max(-(2**31) + 2, min(2**31 - 2, time_us // 86_400_000_000))

    def values(field: pa.Field) -> pa.Array:
        if pa.types.is_timestamp(field.type):
            return pa.array([time_us], pa.int64()).cast(field.type)
        if pa.types.is_date32(field.type):
            return pa.array([day], pa.int32()).cast(field.type)
        if pa.types.is_string(field.type):
            return pa.array(["" if field.name == "parent" else "far"])
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        return pa.array([1 if is_number else None], field.type)

    for name in names or TABLES:
        columns = TABLES[name].columns
        row = pa.Table.from_arrays([values(field) for field in columns], schema=columns)
        write_deltalake(str(root / name), row, mode="append", partition_by=list(TABLES[name].partition_by) or None)


def place(topic: str, offset: int, at: dt.datetime, partition: int = 0) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset, "timestamp": at, "date": at.date()}


def make_all(root: Path, *, end: dt.datetime = END, minutes: int = 180) -> None:
    """Make every table of the pipeline, with something in each: once for each `end`, and copies of that."""
    for name, content in _all_files(end, minutes).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@functools.cache
def _all_files(end: dt.datetime, minutes: int) -> Mapping[Path, bytes]:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        _make_all(root, end, minutes)
        return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _make_all(root: Path, end: dt.datetime, minutes: int) -> None:
    chance = random.Random(7)
    begin = end.replace(second=0, microsecond=0) - minutes * MINUTE
    _messages(root, begin)
    _jobs(root, begin, minutes, chance)
    _slips(root, begin, end, minutes, chance)


def _messages(root: Path, begin: dt.datetime) -> None:
    rows = [
        {
            **place("orders", offset, begin + offset * dt.timedelta(seconds=7)),
            "key": f"user:{offset % 5}".encode(),
            "value": b"\xff\xfe\x00" if offset == 3 else f'{{"order": {offset}}}'.encode(),
            "headers": [("traceparent", "00-1")] if offset % 2 else None,
            "incarnation": "a1",
        }
        for offset in range(50)
    ]
    make_table(root, "messages", rows, batch=4, parts=5)
    bad = {
        **place("fetchbox.jobs.status", 7, begin),
        "value": b"\x08\xff",
        "kind": "JobStatus",
        "reason": "unexpected EOF",
    }
    make_table(root, "quarantine", [bad], batch=2, query="jobs")


# Jobs


def _jobs(root: Path, begin: dt.datetime, minutes: int, chance: random.Random) -> None:
    throughput = []
    for tenant, much in TENANTS.items():
        for number in range(minutes):
            if tenant == "initech" and number % 3:
                continue
            low = 0.3 if 70 <= number < 85 else 1.0  # an outage of somebody's host
            tasks = int(much * chance.uniform(0.7, 1.3))
            stored = int(tasks * low * chance.uniform(0.85, 1.0))
            failed = int((tasks - stored) * 0.4)
            throughput.append(
                {
                    "tenant": tenant,
                    "minute": begin + number * MINUTE,
                    "tasks": tasks,
                    "started": tasks,
                    "stored": stored,
                    "failed": failed,
                    "retried": tasks - stored - failed,
                    "dead_letters": failed,
                    "bytes": stored * chance.randint(50_000, 400_000),
                }
            )
    make_table(root, "job_throughput", throughput, batch=11, parts=3)
    make_table(root, "tenant_usage", _usage(throughput, begin), batch=11)
    make_table(root, "job_snapshots", _snapshots(begin, minutes, chance), batch=11, parts=2)
    make_table(root, "dead_letter_causes", _causes(begin, minutes), batch=11)
    logs = [
        {**place("fetchbox.jobs.logs", number, begin + number * MINUTE), "job_id": f"job-{number:03}", "step": "stored"}
        for number in range(20)
    ]
    for name in ("download_tasks", "job_status", "dead_letters"):
        make_table(root, name, [{**place(f"fetchbox.{name}", 1, begin), "job_id": "job-001"}], batch=11)
    make_table(root, "job_logs", logs, batch=11)


def _usage(throughput: Rows, begin: dt.datetime) -> Rows:
    found = []
    for tenant in TENANTS:
        mine = [row for row in throughput if row["tenant"] == tenant]
        for day in range(3):
            counts = {
                name: sum(row[name] for row in mine) // (1 + day)
                for name in ("tasks", "stored", "failed", "retried", "dead_letters", "bytes")
            }
            jobs = {"jobs": 30, "jobs_completed": 24, "jobs_partial": 4, "jobs_failed": 1}
            found.append({"tenant": tenant, "day": begin.date() - dt.timedelta(days=day), **counts, **jobs})
    return found


def _snapshots(begin: dt.datetime, minutes: int, chance: random.Random) -> Rows:
    found = []
    for number in range(60):
        first = begin + dt.timedelta(minutes=minutes * number / 60)
        total = chance.randint(5, 400)
        state = "IN_PROGRESS" if number >= 55 else "QUEUED" if number == 54 else "COMPLETED"
        state = {7: "FAILED", 21: "PARTIAL", 33: "PARTIAL"}.get(number, state)
        done = {"COMPLETED": total, "FAILED": 0, "QUEUED": 0}.get(state, int(total * chance.uniform(0.2, 0.9)))
        took = dt.timedelta(seconds=total * chance.uniform(0.5, 2))
        ended = first + took if state in ("COMPLETED", "FAILED", "PARTIAL") else None
        found.append(
            {
                "job_id": f"0199c0de-7f00-7000-8000-{number:012}",
                "job_type": "catalogue",
                "tenant": list(TENANTS)[number % 3],
                "state": f"JOB_STATE_{state}",
                "resources_total": total,
                "resources_completed": done,
                "resources_failed": total - done if ended else 0,
                "last_error_code": "" if state == "COMPLETED" else "timeout",
                "first_at": first,
                "updated_at": ended or first + took,
                "ended_at": ended,
                "statuses": 3,
                "offset": number * 3,
            }
        )
    return found


def _causes(begin: dt.datetime, minutes: int) -> Rows:
    causes = [
        ("http_503", "cdn.example.test", "acme", 212, "the server answered 503 Service Unavailable"),
        ("http_404", "images.example.test", "globex", 96, "the server answered 404 Not Found"),
        ("timeout", "slow.example.test", "acme", 61, "no answer within 30 s"),
        ("checksum_mismatch", "cdn.example.test", "initech", 14, "sha256 is 9f… and should be 3a…"),
        ("dns", "gone.example.test", "globex", 3, "<script>alert('no such host')</script>"),
    ]
    return [
        {
            "failure_code": code,
            "host": host,
            "tenant": tenant,
            "count": count,
            "first_at": begin,
            "last_at": begin + (minutes - 5 * number) * MINUTE,
            "example_job_id": f"0199c0de-7f00-7000-8000-{number:012}",
            "example_resource_id": f"picture-{number}",
            "example_url": f"https://{host}/pictures/{number}.jpg?size=large&n=1",
            "example_message": message,
            "example_topic": "fetchbox.jobs.dlq",
            "example_partition": 0,
            "example_offset": number,
        }
        for number, (code, host, tenant, count, message) in enumerate(causes)
    ]


# Slips


def _slips(root: Path, begin: dt.datetime, end: dt.datetime, minutes: int, chance: random.Random) -> None:
    metrics = []
    for step, usual_ms in STEPS.items():
        for number in range(minutes):
            slow = 4.0 if step == "charge" and 70 <= number < 85 else 1.0
            p50 = usual_ms * slow * chance.uniform(0.85, 1.2)
            attempts = chance.randint(20, 60)
            metrics.append(
                {
                    "step": step,
                    "minute": begin + number * MINUTE,
                    "runs": attempts - 2,
                    "attempts": attempts,
                    "errors": chance.randint(0, 6) if slow > 1 else chance.choice((0, 0, 0, 1)),
                    "p50_ms": p50,
                    "p95_ms": p50 * chance.uniform(2, 3),
                    "p99_ms": p50 * chance.uniform(3.5, 6),
                }
            )
    make_table(root, "step_metrics", metrics, batch=21, parts=2)
    _one_run(root, end - dt.timedelta(minutes=20))
    stuck = [
        ("order-0815", "charge", "started", 64, "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("order-0900", "manager", "waiting", 31, ""),
        ("<b>order</b>", "ship", "retried", 9, ""),
    ]
    rows = [
        {"correlation_id": slip, "run": 0, "type": "order.v1", "step": step, "kind": kind, "since": end - age * MINUTE}
        for slip, step, kind, age, _ in stuck
    ]
    make_table(root, "stuck_slips", rows, batch=21)
    events = [
        {**place("slip.events", 1, begin), "index": 0, "kind": "planned", "correlation_id": "order-1", "at": begin}
    ]
    make_table(root, "slip_events", events, batch=21)


def _one_run(root: Path, at: dt.datetime) -> None:
    """One that failed in a branch of it, with attempts that were repeated; and one that was well."""

    def ms(count: int) -> dt.datetime:
        return at + dt.timedelta(milliseconds=count)

    steps = [
        ("order-1", "validate", 0, "done", 5, 18, "", ""),
        ("order-1", "charge", 0, "retried", 30, 420, "timeout", "the bank has not answered"),
        ("order-1", "charge", 1, "done", 900, 1130, "", ""),
        ("order-1", "prepare", 0, "failed", 1150, 4000, "branch_failed", "papers has failed"),
        ("order-1/warehouse", "reserve", 0, "done", 1180, 1500, "", ""),
        ("order-1/warehouse", "pick", 0, "done", 1520, 3900, "", ""),
        ("order-1/papers", "invoice", 0, "failed", 1190, 1400, "no_address", "the order has no address"),
        ("order-2", "validate", 0, "done", 5, 16, "", ""),
    ]
    usual = random.Random(3)
    for number in range(200):
        for step, usual_ms in STEPS.items():
            began = -60_000 * (number % 100)
            took = round(usual_ms * usual.lognormvariate(0, 0.6))
            steps.append((f"order-{1000 + number}", step, 0, "done", began, began + took, "", ""))
    made = [
        {
            "correlation_id": slip,
            "run": 0,
            "step": step,
            "attempt": attempt,
            "type": "order.v1",
            "state": state,
            "began_at": ms(began),
            "ended_at": ms(ended),
            "duration_ms": float(ended - began),
            "error_code": code or None,
            "error_message": message or None,
            "last_at": ms(ended),
            "_order": 1,
            "_place": 1,
        }
        for slip, step, attempt, state, began, ended, code, message in steps
    ]
    make_table(root, "slip_steps", made, batch=21)
    runs = [
        ("order-1", "", "", "dead-lettered", 0, 4010, ["validate", "charge", "prepare", "notify"], "prepare"),
        ("order-1/warehouse", "order-1", "warehouse", "completed", 1160, 3950, ["reserve", "pick"], ""),
        ("order-1/papers", "order-1", "papers", "dead-lettered", 1160, 1420, ["invoice"], "invoice"),
        ("order-2", "", "", "completed", 0, 20, ["validate"], ""),
    ]
    told = [
        {
            "correlation_id": slip,
            "run": 0,
            "type": "order.v1",
            "parent": parent,
            "branch": branch,
            "state": state,
            "steps": planned,
            "begun_at": ms(begun),
            "ended_at": ms(ended),
            "duration_ms": float(ended - begun),
            "failed_step": failed,
            "error_code": "no_address" if failed else None,
            "error_message": "the order has no address" if failed else None,
            "last_at": ms(ended),
            "events": 8,
            "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        }
        for slip, parent, branch, state, begun, ended, planned, failed in runs
    ]
    make_table(root, "slip_runs", told, batch=21)
    lineage = []
    for slip, parent, _, _, _, _, planned, _ in runs:
        for position, step in enumerate(planned):
            mine = [each for each in steps if each[0] == slip and each[1] == step]
            lineage.append(
                {
                    "origin": "slip",
                    "run_id": slip,
                    "step_id": step,
                    "parent_step_id": planned[position - 1] if position else "",
                    "parent_run_id": parent,
                    "position": position,
                    "first_at": ms(min(each[4] for each in mine)) if mine else None,
                    "last_at": ms(max(each[5] for each in mine)) if mine else None,
                    "attempts": len(mine) or None,
                    "state": mine[-1][3] if mine else None,
                }
            )
    make_table(root, "run_lineage", lineage, batch=21, query="slips")
