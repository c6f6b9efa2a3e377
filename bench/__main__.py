"""`make bench`: measure, print the table, and write it to bench/results/.

Every number is a ratio to the echo baseline of the same round, because machines differ and are shared; the median of
the rounds counts. `--quick` leaves out what needs five million messages, `--update-readme` puts the table into README.
Each row says whether it shows a burst or a sustained rate, and every load obeys the broker's 429.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.batch import Kind
from bench.bus import Plan, Rates
from bench.failover import Silences, measure_silences
from bench.jobs import JOBS, RESOURCES
from bench.jobs import Measured as JobsMeasured
from bench.jobs import Plan as JobPlan
from bench.load import LoadResult
from bench.pipeline import Measured as PipelineMeasured
from bench.pipeline import Plan as PipelinePlan
from bench.pipeline import Read as PipelineRead
from bench.servers import (
    batch_load,
    bus_rates,
    echo,
    files,
    find_pubsub,
    find_redis,
    full_path_load,
    job_seconds,
    nats,
    nats_cluster,
    pipeline_reading,
    pipeline_seconds,
    produce_load,
    pubsub,
    redis,
    slip_seconds,
    slipstream,
)
from bench.slip import TURNS, Seconds
from bench.slip import Plan as SlipPlan
from bench.spark import JOBS as SPARK_JOBS
from bench.spark import SLOTS, measure_downloads
from bench.steps import CORES as STEP_CORES
from bench.steps import MESSAGES as STEP_MESSAGES
from bench.steps import measure_steps

ROOT = Path(__file__).parent.parent
FEW, MANY = 10_000, 5_000_000
PARTITIONS = 4
PUBSUB_MESSAGES, PUBSUB_ONE_BY_ONE = 2_000, 100
DRAINED_S = 1.0
SUSTAINED_AFTER_S, SUSTAINED_S = 30.0, 15.0

COLUMNS = ("", "p50", "p99", "rate", "load", "ratio", "target")

console = Console()


class Row(msgspec.Struct, kw_only=True):
    what: str
    p50: str = ""
    p99: str = ""
    rate: str = ""
    load: str = ""
    """Whether the row shows a burst, of so many seconds or messages, or a sustained load."""
    ratio: str = ""
    target: str = ""
    met: bool | None = None


class Run(msgspec.Struct, frozen=True):
    """The options of one run of the bench."""

    scratch: Path
    """The folder of all data directories: its disk is the one that is measured."""
    rounds: int
    seconds: float
    quick: bool
    sync_ms: float

    @property
    def burst(self) -> str:
        return f"burst, {self.seconds:g} s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the five million messages")
    parser.add_argument("--only", choices=[*PARTS], help="measure one part; the README stays as it is")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--data", type=Path, help="where the data directories go: the disk that is measured")
    parser.add_argument("--update-readme", action="store_true")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="slipstream-bench-", dir=arguments.data or ROOT))
    try:
        sync_ms = measure_sync_ms(scratch)
        run = Run(scratch, arguments.rounds, arguments.seconds, arguments.quick, sync_ms)
        parts = [PARTS[arguments.only]] if arguments.only else PARTS.values()
        rows = [row for measure in parts for row in measure(run)]
    finally:
        shutil.rmtree(scratch)
    report(rows, sync_ms, update_readme=arguments.update_readme and not arguments.only)


def measure_sync_ms(scratch: Path) -> float:
    """The median of one fdatasync behind a write the size of a usual commit."""
    fd = os.open(scratch / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    times = []
    for _ in range(500):
        os.write(fd, b"x" * 8192)
        started = time.perf_counter()
        os.fdatasync(fd)
        times.append(time.perf_counter() - started)
    os.close(fd)
    return statistics.median(times) * 1000


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
        _row("echo (same loop and parser, no work)", results["echo"], run.burst),
        _row("produce, durable", results["always"], run.burst, baseline, 0.30),
        _row("produce, durability off", results["off"], run.burst, baseline, 0.60),
        _row("produce → stream → ack, durable", results["full"], run.burst, baseline, 0.10),
        Row(
            what="p99 of durable produce ÷ median fdatasync",
            load=run.burst,
            ratio=f"{latency:.1f}",
            target="≤ 10",
            met=latency <= 10,
        ),
    ]


def _row(
    what: str,
    results: list[LoadResult],
    load: str,
    baseline: list[LoadResult] | None = None,
    target: float | None = None,
) -> Row:
    """Return a row of the medians of all rounds; with a baseline, also of the ratio to it in the same round."""
    if deferred := sum(result.deferred for result in results):
        load += f"; 429 {deferred:,} times"
    row = Row(
        what=what,
        p50=f"{statistics.median(r.p50_ms for r in results):.2f} ms",
        p99=f"{statistics.median(r.p99_ms for r in results):.2f} ms",
        rate=f"{statistics.median(r.rate for r in results):,.0f}/s",
        load=load,
    )
    if baseline is not None:
        ratio = statistics.median(ours.rate / other.rate for ours, other in zip(results, baseline, strict=True))
        row.ratio = f"{ratio:.2f}"
        if target is not None:
            row.target, row.met = f"≥ {target:.2f}", ratio >= target
    return row


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
        _row(
            f"produce, durable, 100 a request, {name} (÷ one a request)", results[kind], run.burst, results["one"], 5.0
        )
        for name, kind in (("MessagePack", "msgpack"), ("JSON", "json"))
    ]
    if results["redis"]:
        what = "Redis Streams, 100 pipelined, appendfsync always (÷ it: ours, MessagePack)"
        ours = _row(what, results["msgpack"], run.burst, results["redis"], 1.0)
        redis_row = _row(what, results["redis"], run.burst)
        rows.append(msgspec.structs.replace(redis_row, ratio=ours.ratio, target=ours.target, met=ours.met))
    drain = _row("fetch + ack, 100 a request, durability off", results["drain"], f"burst, {DRAINED_S:g} s of produce")
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
        rows.append(_row(f"produce, durable, {name} (÷ a burst)", [sustained], load, [burst]))
    return rows


def measure_bus(run: Run) -> list[Row]:
    """Our drivers next to the bare client library of the same engine, on the same server in the same round."""
    scratch, rounds = run.scratch, run.rounds
    drivers: dict[str, list[Rates]] = {"nats": [], "http": [], "pubsub": [], "embedded": []}
    pubsub_server = find_pubsub()
    for number in range(rounds):
        console.print(f"[dim]bus, round {number + 1} of {rounds}[/]")
        with nats(scratch / f"nats-{number}") as address:
            drivers["nats"].append(bus_rates(Plan(driver="nats", address=address)))
        with slipstream(scratch / f"bus-{number}") as server:
            drivers["http"].append(bus_rates(Plan(driver="http", address=f"http://127.0.0.1:{server.port}")))
        if pubsub_server is not None:
            with pubsub(pubsub_server) as address:
                plan = Plan(driver="pubsub", address=address, messages=PUBSUB_MESSAGES, one_by_one=PUBSUB_ONE_BY_ONE)
                drivers["pubsub"].append(bus_rates(plan))
        plan = Plan(driver="embedded", address=str(scratch / f"embedded-{number}"))
        drivers["embedded"].append(bus_rates(plan))
        for name in ("nats", "bus", "embedded"):
            shutil.rmtree(scratch / f"{name}-{number}", ignore_errors=True)
    names = {
        "nats": ("NATS JetStream", "bare nats-py"),
        "http": ("http", "our bare client"),
        "pubsub": ("Pub/Sub (pstest)", "bare google-cloud-pubsub"),
        "embedded": ("embedded", ""),
    }
    usual = Plan(driver="", address="")
    rows = []
    for driver, rates in drivers.items():
        is_pubsub = driver == "pubsub"
        messages = PUBSUB_MESSAGES if is_pubsub else usual.messages
        one_by_one = PUBSUB_ONE_BY_ONE if is_pubsub else usual.one_by_one
        for what, count in (
            ("publish, one by one", one_by_one),
            ("publish", messages),
            ("consume", one_by_one + messages),
        ):
            if rates:
                row = _bus_row(f"bus on {names[driver][0]}: {what}", names[driver][1], what, rates, driver == "nats")
                row.load = f"burst, {count:,} messages"
                rows.append(row)
    return rows


def _bus_row(text: str, beside: str, what: str, rounds: list[Rates], has_target: bool) -> Row:
    rate = statistics.median(rates[f"ours {what}"] for rates in rounds)
    row = Row(what=text, rate=f"{rate:,.0f}/s")
    if beside:
        ratio = statistics.median(rates[f"ours {what}"] / rates[f"bare {what}"] for rates in rounds)
        row.what, row.ratio = f"{text} (÷ {beside})", f"{ratio:.2f}"
        if has_target:
            row.target, row.met = "≥ 0.80", ratio >= 0.8
    return row


def measure_failover(run: Run) -> list[Row]:
    """The silence after the leader is killed, next to bare nats-py in the same elections."""
    rounds: list[Silences] = []
    for number in range(run.rounds):
        console.print(f"[dim]fail-over, round {number + 1} of {run.rounds}[/]")
        folder = run.scratch / f"cluster-{number}"
        with nats_cluster(folder) as cluster:
            rounds.append(measure_silences(cluster))
        shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for what in ("publish", "consume"):
        silence = statistics.median(each[f"ours {what}"] for each in rounds)
        ratio = statistics.median(each[f"ours {what}"] / each[f"bare {what}"] for each in rounds)
        text = f"bus on NATS, 3 servers, the leader killed: longest silence, {what} (time ÷ bare nats-py)"
        shown = Row(what=text, p50=f"{silence:.1f} s", ratio=f"{ratio:.2f}", target="≤ 1.30", met=ratio <= 1.3)
        shown.load = "one election"
        rows.append(shown)
    return rows


def measure_slips(run: Run) -> list[Row]:
    """Routing next to the bus it stands on: the same messages, as many hops, the same engine, in the same round."""
    scratch, rounds = run.scratch, run.rounds
    drivers: dict[str, list[Seconds]] = {"embedded": [], "http": [], "nats": []}
    folder = str(scratch)
    for number in range(rounds):
        console.print(f"[dim]slips, round {number + 1} of {rounds}[/]")
        address = str(scratch / f"slips-{number}")
        drivers["embedded"].append(slip_seconds(SlipPlan(driver="embedded", address=address, folder=folder)))
        with slipstream(scratch / f"slips-http-{number}") as server:
            plan = SlipPlan(driver="http", address=f"http://127.0.0.1:{server.port}", folder=folder)
            drivers["http"].append(slip_seconds(plan))
        with nats(scratch / f"slips-nats-{number}") as address:
            drivers["nats"].append(slip_seconds(SlipPlan(driver="nats", address=address, folder=folder)))
        for left in scratch.glob("slips-*"):
            shutil.rmtree(left, ignore_errors=True)
    names = {"embedded": "embedded", "http": "http", "nats": "NATS JetStream"}
    return [_slip_row(names[driver], seconds) for driver, seconds in drivers.items()]


def _slip_row(name: str, rounds: list[Seconds]) -> Row:
    messages = TURNS * SlipPlan(driver="", address="", folder="").messages
    rate = statistics.median(messages / seconds["slips"] for seconds in rounds)
    cost = statistics.median(seconds["slips"] / seconds["bus"] for seconds in rounds)
    what = f"routing on {name}: three steps, whole messages (time ÷ that of the bus alone, the same messages)"
    return Row(
        what=what,
        rate=f"{rate:,.0f}/s",
        load=f"burst, {messages:,} messages",
        ratio=f"{cost:.2f}",
        target="≤ 2.00",
        met=cost <= 2,
    )


def measure_jobs(run: Run) -> list[Row]:
    """Download jobs next to a bare loop of the client that they use."""
    scratch, rounds = run.scratch, run.rounds
    found: dict[str, list[JobsMeasured]] = {"embedded, one process": [], "NATS JetStream, two workers": []}
    for number in range(rounds):
        console.print(f"[dim]jobs, round {number + 1} of {rounds}[/]")
        with files() as server:
            folder = scratch / f"jobs-embedded-{number}"
            environment = {"MESSAGE_BUS_DRIVER": "embedded", "SLIPSTREAM_DATA": str(folder / "data")}
            plan = JobPlan(folder=str(folder), port=server.port, environment=environment)
            found["embedded, one process"].append(job_seconds(plan))
            folder = scratch / f"jobs-nats-{number}"
            with nats(folder / "nats") as address:
                environment = {"MESSAGE_BUS_DRIVER": "nats", "NATS_URL": address}
                plan = JobPlan(folder=str(folder), port=server.port, environment=environment, workers=2)
                found["NATS JetStream, two workers"].append(job_seconds(plan))
    # Only now: after ten thousand deletions ext4 took ten times as long to create each of the next files.
    for left in scratch.glob("jobs-*"):
        shutil.rmtree(left, ignore_errors=True)
    return [row for name, measured in found.items() for row in _job_rows(name, measured)]


def _job_rows(name: str, rounds: list[JobsMeasured]) -> list[Row]:
    resources = JOBS * RESOURCES
    rate = statistics.median(resources / each.jobs_s for each in rounds)
    ratio = statistics.median(each.bare_s / each.jobs_s for each in rounds)
    to_httpx = statistics.median(each.httpx_s / each.jobs_s for each in rounds)
    grown = statistics.median(each.memory_mb[-1] / each.memory_mb[0] for each in rounds)
    memory_mb = statistics.median(each.memory_mb[-1] for each in rounds)
    what = f"download jobs on {name}: {resources:,} files of 4 KiB"
    load = f"burst, {resources:,} files"
    memory = Row(what=f"{what}: memory (÷ after a fifth)", rate=f"{memory_mb:.0f} MB", load=load, ratio=f"{grown:.2f}")
    if "one process" not in name:
        # A broker in the same process keeps its newest records in memory until they are compacted: it grows to a bound.
        memory.target, memory.met = "≤ 1.20", grown <= 1.2
    return [
        Row(
            what=f"{what} (÷ bare aiohttp loop)",
            rate=f"{rate:,.0f}/s",
            load=load,
            ratio=f"{ratio:.2f}",
            target="≥ 0.50",
            met=ratio >= 0.5,
        ),
        Row(
            what=f"{what} (÷ bare httpx loop)", load=load, ratio=f"{to_httpx:.2f}", target="≥ 0.50", met=to_httpx >= 0.5
        ),
        memory,
    ]


def measure_spark(run: Run) -> list[Row]:
    """What executors do for the bus, next to what does it without them."""
    scratch, rounds = run.scratch, run.rounds
    console.print("[dim]a step on Spark[/]")
    step_rate = statistics.median(measure_steps(scratch, rounds))
    step = f"a step on Spark that does nothing, {STEP_CORES} cores: {STEP_MESSAGES:,} messages, durable"
    console.print("[dim]downloads on Spark[/]")
    measured = measure_downloads(scratch, rounds)
    resources = SPARK_JOBS * RESOURCES
    rate = statistics.median(resources / each.spark_s for each in measured)
    ratio = statistics.median(each.asyncio_s / each.spark_s for each in measured)
    what = f"downloads on Spark, {SLOTS} slots: {resources:,} files of 4 KiB (÷ the ordinary worker)"
    return [
        Row(
            what=step,
            rate=f"{step_rate:,.0f}/s",
            load=f"burst, {STEP_MESSAGES:,} messages",
            target="≥ 50,000/s",
            met=step_rate >= 50_000,
        ),
        Row(
            what=what,
            rate=f"{rate:,.0f}/s",
            load=f"burst, {resources:,} files",
            ratio=f"{ratio:.2f}",
            target="≥ 0.70",
            met=ratio >= 0.7,
        ),
    ]


def measure_pipeline(run: Run) -> list[Row]:
    """The connector next to Spark's own reader, and what the queries make of messages in a second."""
    scratch = run.scratch
    console.print("[dim]pipeline[/]")
    plan = PipelinePlan(folder=str(scratch / "pipeline"), port=0, many=0 if run.quick else 10_000_000)
    with slipstream(scratch / "pipeline-data", "--durability", "off") as server:
        plan.port = server.port
        read = pipeline_reading(plan)
        found = pipeline_seconds(plan)
    for name in ("pipeline", "pipeline-data"):
        shutil.rmtree(scratch / name, ignore_errors=True)
    return list(_pipeline_rows(plan, read, found))


def _pipeline_rows(plan: PipelinePlan, read: PipelineRead, found: PipelineMeasured) -> Iterator[Row]:
    def rate(messages: int, seconds: float) -> str:
        return f"{messages / seconds:,.0f}/s"

    ratio = statistics.median(parquet / ours for ours, parquet in zip(read.read_s, read.parquet_s, strict=True))
    what = f"pipeline: {plan.messages:,} messages of 200 B into noop (÷ Spark's Parquet reader, the same rows)"
    read_s = statistics.median(read.read_s)
    load = f"burst, {plan.messages:,} messages"
    yield Row(
        what=what,
        rate=rate(plan.messages, read_s),
        load=load,
        ratio=f"{ratio:.2f}",
        target="≥ 0.70",
        met=ratio >= 0.7,
    )
    for what, seconds, least in (
        ("bronze, from the log to the commit", found.bronze.appended_s, 300_000),
        ("bronze, and starting and ending the query", found.bronze.whole_s, 0),
        ("protobuf silver, from the log to the commit", found.silver.appended_s, 200_000),
        ("protobuf silver, and gold", found.silver.batches_s, 0),
    ):
        row = Row(what=f"pipeline: {what}", rate=rate(plan.messages, seconds), load=load)
        if least:
            row.target, row.met = f"≥ {least:,}/s", plan.messages / seconds >= least
        yield row
    gold_s = sorted(found.gold_s)
    p50, p99 = statistics.median(gold_s), gold_s[-1]
    yield Row(
        what="pipeline: new message to gold row",
        p50=f"{p50:.2f} s",
        p99=f"{p99:.2f} s",
        load="one message after the other",
        target="p50 ≤ 2 s",
        met=p50 <= 2,
    )
    if found.many is not None:
        cost = (found.many.batches_s / plan.many) / (found.bronze.batches_s / plan.messages)
        what = f"pipeline: bronze, cost of a row with {plan.many:,} ÷ with {plan.messages:,}"
        yield Row(
            what=what,
            rate=rate(plan.many, found.many.batches_s),
            load=f"sustained, {plan.many:,} messages",
            ratio=f"{cost:.2f}",
            target="≤ 1.10",
            met=cost <= 1.1,
        )


def measure_flatness(run: Run) -> list[Row]:
    """What it costs to hold five million messages: nothing per message."""
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


def report(rows: list[Row], sync_ms: float, *, update_readme: bool) -> None:
    now = datetime.now(UTC)
    machine = f"{os.cpu_count()} cores ({_cpu()}), {platform.system()}, Python {platform.python_version()}"
    connections = "64 connections, 200-byte values; batches on 16 connections, drained by 4."
    caption = f"{machine}; one fdatasync takes {sync_ms:.2f} ms (median). {connections}"
    table = Table(title="Slipstream bench", caption=caption)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in {"", "load"} else "right")
    for row in rows:
        style = {True: "green", False: "bold red", None: ""}[row.met]
        ratio = f"[{style}]{row.ratio}[/]" if style else row.ratio
        table.add_row(row.what, row.p50, row.p99, row.rate, row.load, ratio, row.target)
    console.print(table)
    markdown = _markdown(rows, caption, now)
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.md").write_text(markdown)
    (results / "latest.json").write_bytes(
        msgspec.json.format(
            msgspec.json.encode({"time": now, "machine": machine, "fdatasync_ms": sync_ms, "rows": rows})
        )
    )
    if update_readme:
        readme = ROOT / "README.md"
        block = re.compile(r"<!-- bench:table -->.*?(?=\n## |\Z)", re.DOTALL)
        readme.write_text(block.sub(lambda _: f"<!-- bench:table -->\n\n{markdown}", readme.read_text()))


def _markdown(rows: list[Row], caption: str, now: datetime) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|--:|--:|--:|---|--:|--:|"]
    lines += [f"| {r.what} | {r.p50} | {r.p99} | {r.rate} | {r.load} | {r.ratio} | {r.target} |" for r in rows]
    return "\n".join([*lines, "", f"Measured on {now:%Y-%m-%d}: {caption}", ""])


def _cpu() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


PARTS: dict[str, Callable[[Run], list[Row]]] = {
    "speed": measure_speed,
    "batches": measure_batches,
    "sustained": measure_sustained,
    "bus": measure_bus,
    "failover": measure_failover,
    "slips": measure_slips,
    "jobs": measure_jobs,
    "pipeline": measure_pipeline,
    "spark": measure_spark,
    "flatness": measure_flatness,
}


if __name__ == "__main__":
    main()
