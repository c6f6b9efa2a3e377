"""The data pipeline on Spark, next to Spark reading the same rows from Parquet, in one session.

Messages are read into `noop` from the broker and from Parquet in turns; tables are made by the queries as a user runs
them, to the last commit. Runs in a process of its own and prints one JSON line.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import msgspec
from deltalake import DeltaTable

from slipstream.api.media import MSGPACK
from slipstream.client import Client
from slipstream.jobs.messages import JobState, JobStatus, encode
from slipstream.pipeline.queries import QUERIES
from slipstream.pipeline.run import Pipeline
from slipstream.pipeline.session import JAVA_OPTIONS, spark_session
from slipstream.pipeline.settings import PipelineSettings, load_settings
from slipstream.pipeline.stream import Told
from slipstream.pipeline.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from slipstream.pipeline.queries import Query

VALUE_BYTES = 200
PARTITIONS = 8
BATCH = 2_000
BODIES = 25
"""That many different batches are sent again and again: making them is not what is measured."""
ROUNDS = 7
WARM_ROUNDS = 3
"""For Java, which compiles what it does often; both readers have them."""
SETTLE_S = 5.0
"""Longer than a server waits with files for more to come."""
LETTERS = 40
"""New messages, one by one, until each is a row."""


class Plan(msgspec.Struct, kw_only=True):
    folder: str
    port: int
    """Of a broker."""
    messages: int = 1_000_000
    many: int = 0
    """So many, too, if it is more than 0."""


class Taken(msgspec.Struct, kw_only=True):
    """What a query took for all messages."""

    appended_s: float
    """From the log to the commit of what was decoded."""
    batches_s: float
    """To the last commit to the last table that is made of it."""
    whole_s: float
    """With its start, of which most is Python's, and its end."""


class Read(msgspec.Struct, kw_only=True):
    read_s: list[float]
    parquet_s: list[float]
    """Of the same round."""


class Measured(msgspec.Struct, kw_only=True):
    bronze: Taken
    silver: Taken
    gold_s: list[float]
    """From producing a message to its row."""
    many: Taken | None


def measure_reading(plan: Plan) -> Read:
    """In a Java as Spark starts it: whoever reads topics in a program of their own has no other."""
    url = f"http://127.0.0.1:{plan.port}"
    folder = Path(plan.folder)
    settings = load_settings({"master": "local[2]", "driver_memory": "3g"}, {})
    produce(url, "bench", plan.messages)
    settle(url, "bench")
    with spark_session(settings, folder / "spark.log", {JAVA_OPTIONS: ""}) as spark:
        read_s, parquet_s = reading(spark, url, folder / "parquet", plan.messages)
    return Read(read_s=read_s, parquet_s=parquet_s)


def measure(plan: Plan) -> Measured:
    """After reading: the messages are there."""
    url = f"http://127.0.0.1:{plan.port}"
    folder = Path(plan.folder)
    settings = load_settings({"url": url, "master": "local[2]", "driver_memory": "3g"}, {})
    with spark_session(settings, folder / "spark.log") as spark:
        produce(url, "warm", 50_000)
        bronze(spark, settings, folder / "warm", "warm")
        bronze(spark, settings, folder / "warm-bronze", "bench")
        of_bronze = bronze(spark, settings, folder / "bronze", "bench")
        produce(url, "fetchbox.jobs.status", plan.messages, status)
        settle(url, "fetchbox.jobs.status")
        run(spark, settings, folder / "warm-silver", QUERIES["jobs"])
        of_silver = run(spark, settings, folder / "silver", QUERIES["jobs"])
        of_many = None
        if plan.many:
            produce(url, "many", plan.many)
            settle(url, "many")
            of_many = bronze(spark, settings, folder / "many", "many")
        gold_s = list(gold(spark, settings, folder / "gold", url))
    return Measured(bronze=of_bronze, silver=of_silver, gold_s=gold_s, many=of_many)


# Messages


def value(rng: random.Random, _: int) -> bytes:
    return rng.randbytes(VALUE_BYTES)


def status(rng: random.Random, number: int) -> bytes:
    return encode(
        JobStatus(
            job_id=f"job-{number}",
            job_type="photos",
            state=JobState.JOB_STATE_IN_PROGRESS,
            resources_total=1_000,
            resources_completed=rng.randrange(1_000),
            manifest_key=f"manifests/{rng.randbytes(24).hex()}.json",
            tenant=f"tenant-{number % 20}",
            timestamp_ms=1_790_000_000_000 + number,
        )
    )


def produce(url: str, topic: str, count: int, make: Callable[[random.Random, int], bytes] = value) -> None:
    """As fast as it goes, and returns when all of it is stored."""
    rng = random.Random(topic)
    numbers = itertools.count()
    with Client(url) as client:
        client.create_topic(topic, PARTITIONS)
    bodies = [
        msgspec.msgpack.encode(
            [{"key": f"user:{n % 1_000}".encode(), "value": make(rng, next(numbers))} for n in range(BATCH)]
        )
        for _ in range(min(BODIES, -(-count // BATCH)))
    ]
    with httpx.Client(timeout=60, headers={"Content-Type": MSGPACK}) as http, ThreadPoolExecutor(4) as pool:

        def send(number: int) -> None:
            body = bodies[number % len(bodies)]
            while (answer := http.post(f"{url}/v2/produce", params={"topic": topic}, content=body)).status_code == 429:
                time.sleep(float(answer.headers["Retry-After"]))  # ten million are more than a disk takes at once
            answer.raise_for_status()

        list(pool.map(send, range(count // BATCH)))


def settle(url: str, topic: str) -> None:
    """Until the server has made files of what it will: some of it stays in the journal, and is read over HTTP."""
    with Client(url) as client:
        before = -1
        while (filed := client.segments(topic, 0).next_offset) != before:
            before = filed
            time.sleep(SETTLE_S)
    os.sync()  # or the disk would still be busy with it while we measure


# What is measured


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def reading(spark: SparkSession, url: str, parquet: Path, count: int) -> tuple[list[float], list[float]]:
    def messages() -> DataFrame:
        return spark.read.format("slipstream").options(url=url, subscribe="bench").load()

    def into_nothing(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def stored() -> DataFrame:
        return spark.read.parquet(str(parquet))

    messages().write.parquet(str(parquet))
    assert stored().count() == count
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_ROUNDS + ROUNDS):
        seconds = timed(lambda: into_nothing(messages())), timed(lambda: into_nothing(stored()))
        if number >= WARM_ROUNDS:
            for times, taken in zip(found, seconds, strict=True):
                times.append(taken)
    return found


def bronze(spark: SparkSession, settings: PipelineSettings, tables: Path, topic: str) -> Taken:
    return run(spark, msgspec.structs.replace(settings, topics=topic), tables, QUERIES["messages"])


def run(spark: SparkSession, settings: PipelineSettings, tables: Path, query: Query) -> Taken:
    batches = _Batches()
    made = Pipeline(spark, msgspec.structs.replace(settings, tables=str(tables)), batches)
    whole_s = timed(lambda: made.run([query], once=True))
    return Taken(appended_s=batches.appended_s, batches_s=batches.took_s, whole_s=whole_s)


class _Batches(Watch):
    def __init__(self) -> None:
        self.took_s = self.appended_s = 0.0

    def told(self, told: Told) -> None:
        self.took_s += told.took_s
        self.appended_s += told.appended_s


def gold(spark: SparkSession, settings: PipelineSettings, tables: Path, url: str) -> Iterator[float]:
    """One message after the other, each as soon as the one before is a row of `job_snapshots`."""
    namespace = "latency"
    topic = f"{namespace}.jobs.status"
    made = Pipeline(spark, msgspec.structs.replace(settings, tables=str(tables), namespace=namespace))
    with Client(url) as client, ThreadPoolExecutor(1) as pool:
        client.create_topic(topic, 4)
        running = pool.submit(made.run, [QUERIES["jobs"]], once=False)
        try:
            for number in range(LETTERS + 3):
                job = f"letter-{number}"
                began = time.perf_counter()
                client.produce(topic, encode(JobStatus(job_id=job, tenant="acme", timestamp_ms=number + 1)), key=job)
                while not running.done() and job not in _jobs(tables):
                    time.sleep(0.01)
                if running.done():
                    running.result()
                if number >= 3:
                    yield time.perf_counter() - began
        finally:
            made.stop()
            running.result()


def _jobs(tables: Path) -> set[str]:
    path = tables / "job_snapshots"
    if not (path / "_delta_log").is_dir():
        return set()
    return set(DeltaTable(str(path)).to_pyarrow_table(columns=["job_id"]).column("job_id").to_pylist())


if __name__ == "__main__":
    plan = msgspec.json.decode(sys.argv[2], type=Plan)
    json.dump(msgspec.to_builtins(measure_reading(plan) if sys.argv[1] == "reading" else measure(plan)), sys.stdout)
