"""Steps on Spark as a service: several of them, in one session, until it is told to stop."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.bus import BusSettings, open_bus
from slipstream.pipeline.shipping import pack_module
from slipstream.pipeline.spark_place import is_local
from slipstream.pipeline.steps.errors import InvalidStep
from slipstream.pipeline.steps.runner import Pauses, StepRunner, Told
from slipstream.pipeline.steps.work import story
from slipstream.pipeline.tasks import run_tasks
from slipstream.slip.topics import DEAD_LETTERS, ROUTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.pipeline.settings import PipelineSettings
    from slipstream.pipeline.steps.step import SparkStep

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Between two looks at whether one has ended."""


def check_steps(steps: Sequence[SparkStep[Any, Any]], bus: BusSettings) -> None:
    """Raises InvalidStep for what can be known before Spark is there."""
    if bus.driver != "http":
        raise InvalidStep(
            f"MESSAGE_BUS_DRIVER is {bus.driver}, and a step on Spark stores its answers and its group's place in one "
            "commit, which only a server of ours has: MESSAGE_BUS_DRIVER=http, with its address in SLIPSTREAM_URL"
        )
    topics = [step.topic for step in steps]
    twice = next((topic for topic in topics if topics.count(topic) > 1), None)
    if twice is not None:
        raise InvalidStep(f"two functions are for {twice}: one of them")


def ensure_topics(steps: Sequence[SparkStep[Any, Any]], bus: BusSettings) -> None:
    """Those of the steps, and those of their answers. Raises BusError."""

    async def ensure() -> None:
        async with open_bus(bus) as opened:
            for topic in (*(step.topic for step in steps), ROUTER, DEAD_LETTERS):
                await opened.ensure_topic(topic)

    if bus.ensure:
        asyncio.run(ensure())


def send_along(
    spark: SparkSession, steps: Sequence[SparkStep[Any, Any]], master: str, remote: str, folder: Path
) -> None:
    """The modules of the functions, to executors that are not of this machine; and tries whether they can be loaded
    there. Raises InvalidStep: one that cannot would fail for every message."""
    if remote or not is_local(master):
        for module in {step.function.__module__.partition(".")[0] for step in steps}:
            if (path := pack_module(importlib.import_module(module), folder)) is None:
                continue
            if remote:
                spark.addArtifacts(str(path), pyfile=True)
            else:
                spark.sparkContext.addPyFile(str(path))
    for step in steps:
        try:
            run_tasks(spark, functools.partial(_name, step), [b""])
        except Exception as error:
            raise InvalidStep(
                f"step {step.step_id} cannot be loaded where Spark's tasks run: {story(error)}"
            ) from error


def _name(step: SparkStep[Any, Any], _: bytes) -> bytes:
    return step.step_id.encode()


def run_steps(
    spark: SparkSession,
    steps: Sequence[SparkStep[Any, Any]],
    settings: PipelineSettings,
    stop: threading.Event,
    *,
    prefix: str = "",
    held: Pauses | None = None,
    told: Callable[[Told], None] = lambda _: None,
    waits: Callable[[str, str], None] = lambda step, why: None,
    turned: Callable[[], None] = lambda: None,
    once: bool = False,
) -> None:
    """Each in a thread of its own, until `stop`, or with `once` until all that is there is done. What one of them
    cannot go on for ends all. `waits` is told which step waits and why, or "" when it goes on; `turned` is called all
    the time, as long as somebody looks after them."""
    with ThreadPoolExecutor(len(steps), "steps") as threads:
        runners = [
            StepRunner(spark, step, settings, prefix=prefix, held=held, told=told, waits=waits) for step in steps
        ]
        running = [threads.submit(runner.run, stop, once=once) for runner in runners]
        while True:
            turned()
            done, left = wait(running, timeout=LOOK_S, return_when=FIRST_EXCEPTION)
            if not left or any(each.exception() is not None for each in done):
                break
        stop.set()
        for each in done:
            each.result()
        for each in running:
            each.result()
