"""`slipstream slip worker --engine spark`: steps that are functions of many messages, on Spark."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from slipstream import references
from slipstream.cli.extras import need_extras
from slipstream.cli.output import Output, answering, client_advice
from slipstream.cli.pipeline_run import stopping
from slipstream.cli.slip_store import exit_code as slip_exit_code
from slipstream.cli.slip_store import slip_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.health import Health
    from slipstream.pipeline.settings import PipelineSettings
    from slipstream.pipeline.steps import SparkStep
    from slipstream.pipeline.steps.runner import Told

SPARK_LOG = "spark-steps.log"


def run_on_spark(
    references: Sequence[str], *, once: bool, store: str | None, given: dict[str, Any], health: Health
) -> None:
    """Until SIGTERM or Ctrl-C; then what is under way may finish."""
    need_extras("steps on Spark", "pipeline")
    from slipstream.bus import load_settings as bus_settings  # noqa: PLC0415 - --help needs none of this
    from slipstream.pipeline.session import spark_session  # noqa: PLC0415
    from slipstream.pipeline.settings import load_settings  # noqa: PLC0415
    from slipstream.pipeline.steps.metrics import Counting  # noqa: PLC0415
    from slipstream.pipeline.steps.pauses import stored_pauses  # noqa: PLC0415
    from slipstream.pipeline.steps.service import check_steps, ensure_topics, run_steps, send_along  # noqa: PLC0415

    with answering(False, exit_code, client_advice) as output:
        steps = [load_step(reference) for reference in references]
        bus = bus_settings({})
        check_steps(steps, bus)
        settings = load_settings({name: value for name, value in given.items() if value is not None})
        ensure_topics(steps, bus)
        said = Path(settings.tables).parent / SPARK_LOG
        stop = threading.Event()
        waiting = Waiting()

        def stop_steps() -> None:
            health.stopping()
            if stop.is_set():
                cancel(spark, settings)
            stop.set()

        health.starting("Spark is being started")
        output.note(f"[dim]starting Spark ({escape(_where(settings))}); what it says goes to {escape(str(said))}[/]")
        with (
            stored_pauses(slip_settings(store)) as held,
            spark_session(settings, said) as spark,
            tempfile.TemporaryDirectory(prefix="slipstream-steps-") as folder,
            stopping(stop_steps),
        ):
            send_along(spark, steps, settings.master, settings.remote, Path(folder))
            names = ", ".join(step.step_id for step in steps)
            output.note(f"[dim]{escape(names)} at work; stop with SIGTERM or Ctrl-C[/]")
            show, counting = Show(output), Counting(steps)

            def told(each: Told) -> None:
                show.told(each)
                counting.told(each)

            health.ready(waiting.reason)
            run_steps(
                spark,
                steps,
                settings,
                stop,
                prefix=bus.prefix,
                held=held,
                told=told,
                waits=waiting.told,
                turned=health.beat,
                once=once,
            )
            health.rest()
        show.conclude()


def cancel(spark: SparkSession, settings: PipelineSettings) -> None:
    """Whoever asks a second time does not want to wait for a function that takes long: what is under way is given up,
    and done again by the next."""
    if settings.remote:
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


def load_step(reference: str) -> SparkStep[Any, Any]:
    """Raises InvalidStep if it cannot be imported, or is something else."""
    from slipstream.pipeline.steps import InvalidStep, SparkStep  # noqa: PLC0415

    try:
        found = references.find(reference)
    except references.NotFound as error:
        raise InvalidStep(str(error)) from error
    if not isinstance(found, SparkStep):
        kind = type(found).__name__
        raise InvalidStep(f"{reference} is no step on Spark, but of type {kind}: declare it with @spark_step(…)")
    return found


def _where(settings: PipelineSettings) -> str:
    from slipstream.pipeline.spark_place import shown  # noqa: PLC0415

    return shown(settings.remote) if settings.remote else settings.master


class Waiting:
    """The steps that cannot go on for now. Told from their threads."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def told(self, step: str, why: str) -> None:
        self._reasons[step] = why

    def reason(self) -> str:
        """Of any of them, with its name; "" where all are at work."""
        return next((f"step {step} waits: {why}" for step, why in list(self._reasons.items()) if why), "")


class Show:
    """How it goes: a line for each commit, and what it comes to at the end."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {}

    def told(self, told: Told) -> None:
        with self._lock:
            counts = self._counts.setdefault(told.step, {})
            for kind, count in told.counts.items():
                counts[kind] = counts.get(kind, 0) + count
        if told.messages:
            what = ", ".join(f"{count:,} {kind}" for kind, count in sorted(told.counts.items()))
            self._output.note(f"{escape(told.step)}: {what}; {told.lag:,} waiting")

    def conclude(self) -> None:
        kinds = ("OK", "SKIP", "ERROR", "returned")
        rows = [(step, *(f"{counts.get(kind, 0):,}" for kind in kinds)) for step, counts in self._counts.items()]
        self._output.table(["STEP", *(f">{kind.upper()}" for kind in kinds)], rows)


def exit_code(error: Exception) -> int | None:
    from slipstream.cli.table_folder import exit_code as pipeline_exit_code  # noqa: PLC0415
    from slipstream.pipeline.steps import InvalidStep  # noqa: PLC0415

    if isinstance(error, InvalidStep):
        return 2
    code = slip_exit_code(error)
    return pipeline_exit_code(error) if code is None else code
