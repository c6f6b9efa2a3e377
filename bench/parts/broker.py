"""The broker: its speed next to the echo baseline, batches, a sustained load, and what stored messages cost."""

from __future__ import annotations

import shutil
import signal
import statistics
from pathlib import Path

import msgspec

from bench.batch import Kind
from bench.load import LoadResult
from bench.parts.run import PARTITIONS, Row, Run, console, load_row
from bench.servers import batch_load, echo, find_redis, full_path_load, produce_load, redis, slipstream

FEW, MANY = 10_000, 5_000_000
DRAINED_S = 1.0
SUSTAINED_AFTER_S, SUSTAINED_S = 30.0, 15.0


def measure_speed(run: Run) -> list[Row]:
    scratch, rounds, seconds = run.scratch, run.rounds, run.seconds
    results: dict[str, list[LoadResult]] = {"echo": [], "always": [], "off": [], "full": []}
    for number in range(rounds):
        console.print(f"[dim]speed, round {number + 1} of {rounds}[/]")
        with echo() as server:
            results["echo"].append(produce_load(server, "t", seconds))
        for durability in ("always", "off"):
            with slipstream(scratch / f"{durability}-{number}", "--durability", durability) as server:
                server.post("/v1/topics", {"name": "t", "partitions": PARTITIONS})
                results[durability].append(produce_load(server, "t", seconds))
        with slipstream(scratch / f"full-{number}") as server:
            server.post("/v1/topics", {"name": "t", "partitions": PARTITIONS})
            results["full"].append(full_path_load(server, "t", seconds))
    baseline = results["echo"]
    latency = statistics.median(result.p99_ms for result in results["always"]) / run.sync_ms
    return [
        load_row("echo (same loop and parser, no work)", results["echo"], run.burst),
        load_row("produce, durable", results["always"], run.burst, baseline, 0.30),
        load_row("produce, durability off", results["off"], run.burst, baseline, 0.60),
        load_row("produce → stream → ack, durable", results["full"], run.burst, baseline, 0.10),
        Row(
            what="p99 of durable produce ÷ median fdatasync",
            load=run.burst,
            ratio=f"{latency:.1f}",
            target="≤ 10",
            met=latency <= 10,
        ),
    ]


def measure_batches(run: Run) -> list[Row]:
    """100 messages a request, next to one a request and next to Redis in the same round."""
    scratch, rounds, seconds = run.scratch, run.rounds, run.seconds
    redis_command = find_redis()
    results: dict[str, list[LoadResult]] = {"one": [], "json": [], "msgpack": [], "redis": [], "drain": []}
    for number in range(rounds):
        console.print(f"[dim]batches, round {number + 1} of {rounds}[/]")
        kinds: tuple[Kind, ...] = ("json", "msgpack")
        with slipstream(scratch / f"one-{number}") as server:
            server.post("/v1/topics", {"name": "t", "partitions": PARTITIONS})
            results["one"].append(produce_load(server, "t", seconds))
        for kind in kinds:
            with slipstream(scratch / f"{kind}-{number}") as server:
                server.post("/v1/topics", {"name": "t", "partitions": PARTITIONS})
                results[kind].append(batch_load(server.port, "t", kind, seconds))
        if redis_command is not None:
            with redis(scratch / f"redis-{number}", redis_command) as port:
                results["redis"].append(batch_load(port, "t", "redis", seconds))
        with slipstream(scratch / f"drain-{number}", "--durability", "off") as server:
            server.post("/v1/topics", {"name": "t", "partitions": PARTITIONS})
            batch_load(server.port, "t", "msgpack", DRAINED_S)
            results["drain"].append(batch_load(server.port, "t", "drain", 0, server.next_offset("t")))
        for name in ("one", "json", "msgpack", "redis", "drain"):
            shutil.rmtree(scratch / f"{name}-{number}", ignore_errors=True)
    rows = [
        load_row(
            f"produce, durable, 100 a request, {name} (÷ one a request)", results[kind], run.burst, results["one"], 5.0
        )
        for name, kind in (("MessagePack", "msgpack"), ("JSON", "json"))
    ]
    if results["redis"]:
        what = "Redis Streams, 100 pipelined, appendfsync always (÷ it: ours, MessagePack)"
        ours = load_row(what, results["msgpack"], run.burst, results["redis"], 1.0)
        redis_row = load_row(what, results["redis"], run.burst)
        rows.append(msgspec.structs.replace(redis_row, ratio=ours.ratio, target=ours.target, met=ours.met))
    drain = load_row(
        "fetch + ack, 100 a request, durability off", results["drain"], f"burst, {DRAINED_S:g} s of produce"
    )
    drained = statistics.median(result.rate for result in results["drain"])
    rows.append(msgspec.structs.replace(drain, target="≥ 100,000/s", met=drained >= 100_000))
    return rows


def measure_sustained(run: Run) -> list[Row]:
    """Produce for long enough that compaction has to keep up, next to a burst on the same machine."""
    rows = []
    load = f"sustained, second {SUSTAINED_AFTER_S:g} to {SUSTAINED_AFTER_S + SUSTAINED_S:g}"
    kinds: tuple[tuple[str, Kind | None], ...] = (
        ("one a request", None),
        ("100 a request, MessagePack", "msgpack"),
        ("100 a request, JSON", "json"),
    )
    for name, kind in kinds:
        console.print(f"[dim]sustained, {name}[/]")
        found = []
        for warmup_seconds, seconds in ((0.5, run.seconds), (SUSTAINED_AFTER_S, SUSTAINED_S)):
            data = run.scratch / "sustained"
            with slipstream(data) as server:
                server.post("/v1/topics", {"name": "t", "partitions": PARTITIONS})
                if kind is None:
                    found.append(produce_load(server, "t", seconds, warmup_seconds))
                else:
                    found.append(batch_load(server.port, "t", kind, seconds, warmup_seconds=warmup_seconds))
            shutil.rmtree(data)
        burst, sustained = found
        rows.append(load_row(f"produce, durable, {name} (÷ a burst)", [sustained], load, [burst]))
    return rows


def measure_flatness(run: Run) -> list[Row]:
    """Compare a broker that holds five million messages with one that holds ten thousand."""
    if run.quick:
        return []
    scratch, rounds, seconds = run.scratch, run.rounds, run.seconds
    few, many = scratch / "few", scratch / "many"
    memory = 0.0
    for data, count in ((few, FEW), (many, MANY)):
        console.print(f"[dim]storing {count:,} messages[/]")
        memory = _fill(data, count)
    rates: dict[Path, list[LoadResult]] = {few: [], many: []}
    for number in range(rounds):
        console.print(f"[dim]flat cost, round {number + 1} of {rounds}[/]")
        for data in (few, many):
            with slipstream(data) as server:
                rates[data].append(produce_load(server, "t", seconds))
    ratio = statistics.median(a.rate / b.rate for a, b in zip(rates[many], rates[few], strict=True))
    with slipstream(many) as server:
        server.seconds_to_health()
        server.end(signal.SIGKILL)
    with slipstream(many) as server:
        restart = server.seconds_to_health()
    return [
        Row(
            what=f"produce with {MANY:,} stored ÷ with {FEW:,}",
            load=run.burst,
            ratio=f"{ratio:.2f}",
            target="≥ 0.90",
            met=ratio >= 0.9,
        ),
        Row(
            what=f"memory holding {MANY:,} messages of 200 B",
            rate=f"{memory:.0f} MB",
            load=f"sustained, {MANY:,} messages",
            target="≤ 400 MB",
            met=memory <= 400,
        ),
        Row(what="restart of it after kill -9, to healthz", rate=f"{restart:.2f} s", target="≤ 3 s", met=restart <= 3),
    ]


def _fill(data: Path, count: int) -> float:
    """Returns the memory, in MB, of the broker that took them in, its compaction process included."""
    with slipstream(data, "--durability", "off") as server:
        server.post("/v1/topics", {"name": "t", "partitions": PARTITIONS})
        stored = 0
        while stored < count:
            seconds = 0.05 if count == FEW else 10.0
            stored += produce_load(server, "t", seconds).requests
        return sum(server.memory_mb())
