"""A step on Spark that does nothing: how fast messages go through it, from the step's topic to the router's, durably.

Half a million messages wait when the clock starts, in files as they would after a night; Spark is warm by some that
came before. Runs in a process of its own and prints one JSON line.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pyarrow as pa

from bench.servers import slipstream
from slipstream.api import ProduceMessage
from slipstream.client import Client
from slipstream.pipeline.session import spark_session
from slipstream.pipeline.settings import load_settings
from slipstream.pipeline.steps import spark_step
from slipstream.pipeline.steps.runner import StepRunner
from slipstream.slip.event import Envelope, Event, RoutingStep, Status, encode
from slipstream.slip.topics import ROUTER

WARM = 100_000
MESSAGES = 500_000
PARTITIONS = 4
TOGETHER = 1_000
CORES = 2
FILES_S = 3.0
"""After so long without a message, the journal has become files (journal_idle_ms)."""


@spark_step("noop")
def noop(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def measure_steps(scratch: Path, rounds: int) -> list[float]:
    """Messages a second, of each round."""
    return [_round(scratch / f"steps-{number}") for number in range(rounds)]


def _round(folder: Path) -> float:
    with slipstream(folder / "data") as server:
        command = [sys.executable, "-m", "bench.steps", f"http://127.0.0.1:{server.port}", str(folder)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    return msgspec.json.decode(output, type=float)


def measure(url: str, folder: Path) -> float:
    with Client(url) as client:
        for topic in (noop.topic, ROUTER):
            client.create_topic(topic, PARTITIONS)
        spark_settings = load_settings({"master": f"local[{CORES}]", "url": url}, {})
        with spark_session(spark_settings, folder / "spark.log") as spark:
            runner = StepRunner(spark, noop, spark_settings)
            _produce(client, 0, WARM)
            runner.run(threading.Event(), once=True)
            _produce(client, WARM, MESSAGES)
            time.sleep(FILES_S)
            began = time.perf_counter()
            runner.run(threading.Event(), once=True)
            took_s = time.perf_counter() - began
        lag = client.group(noop.topic, noop.group).lag
        answers = sum(each.messages for each in client.offsets([ROUTER]).topics[0].partitions)
    assert (lag, answers) == (0, WARM + MESSAGES), "each is answered once"
    return MESSAGES / took_s


def _produce(client: Client, first: int, count: int) -> None:
    now = dt.datetime.now(dt.UTC)
    for at in range(first, first + count, TOGETHER):
        client.produce_batch(noop.topic, [_message(number, now) for number in range(at, at + TOGETHER)])


def _message(number: int, now: dt.datetime) -> ProduceMessage[bytes]:
    """The third of four steps, as a router sends it."""
    slip = (
        RoutingStep("router", Status.OK, started_at=now, ended_at=now),
        RoutingStep("retrieval", Status.OK, attempt=0, max_attempts=3, started_at=now, ended_at=now),
        RoutingStep("noop", Status.PENDING, attempt=0, max_attempts=3, started_at=now),
        RoutingStep("egress", Status.PENDING),
    )
    envelope = Envelope("1", "bench", f"c-{number}", trace_id=f"{number + 1:032x}", routing_slip=slip)
    event = Event(envelope, "chat.message.v1", {"channel": "#bench", "text": "x" * 100, "userId": f"u-{number}"})
    return ProduceMessage(value=encode(event), key=f"c-{number}".encode())


if __name__ == "__main__":
    sys.stdout.write(f"{measure(sys.argv[1], Path(sys.argv[2]))}\n")
