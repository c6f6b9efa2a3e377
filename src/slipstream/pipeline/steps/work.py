"""Work on windows in Spark: many in one job, and where a job fails one by one and in halves, until the guilty are
alone."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.steps.errors import StepTrouble
from slipstream.pipeline.steps.frame import do_frame
from slipstream.pipeline.steps.task import Done, Order, do_order
from slipstream.pipeline.steps.window import Window
from slipstream.pipeline.tasks import run_tasks
from slipstream.slip.event import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.pipeline.steps.step import SparkStep

JOBS_ALONE_MAX = 4
"""So many messages fail one by one, each with a job, and none succeeds: then it is not the messages."""
TEXT_CHARS = 500
LOST = StepError("worker_lost", "the process that worked at it has died, each time it was tried", retryable=True)

MakeOrder = Callable[[Window, int, StepError | None], Order]


class Task(msgspec.Struct, frozen=True):
    """A window and what is asked about it."""

    window: Window
    order: Order


def do_orders(spark: SparkSession, step: SparkStep[Any, Any], orders: Sequence[Order]) -> list[Done]:
    """Each in a task of its own, except that a frame is a job of its own. Raises what Spark raises."""
    if step.kind == "frame" and not any(order.error for order in orders):
        return [do_frame(spark, step, order) for order in orders]
    data = [msgspec.json.encode(order) for order in orders]
    answers = run_tasks(spark, functools.partial(do_order, step), data)
    return [msgspec.json.decode(answer, type=Done) for answer in answers]


def check_guilt(error: Exception, step: SparkStep[Any, Any], marker: str) -> None:
    """Raises where a job failed for what has nothing to do with the messages: StepTrouble if it is worth another try,
    and PipelineError if not. `marker` is the word by which tasks of ours say so."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PythonException  # noqa: PLC0415

    if isinstance(error, Py4JNetworkError | ConnectionError):
        raise PipelineError(f"Spark has ended: {first_line(error)}") from error
    text = str(error)
    if f"StepTrouble: {marker}" in text:
        raise StepTrouble(story(error)) from error
    if step.kind == "arrow" and isinstance(error, PythonException):
        # A task of ours raises nothing that the function has: the function could not even be loaded.
        raise StepTrouble(story(error)) from error


class Apart:
    """One window whose job has failed."""

    def __init__(
        self, spark: SparkSession, step: SparkStep[Any, Any], make: MakeOrder, sequence: int, stop: threading.Event
    ) -> None:
        self._spark, self._step, self._make, self._stop = spark, step, make, stop
        self._numbers = count(sequence + 1)
        self._failed_alone = 0
        self._succeeded = False

    def pieces(self, window: Window) -> Iterator[tuple[Task, Done]]:
        """Its parts, in their order, with what became of each. Raises StepTrouble and PipelineError."""
        if self._stop.is_set():
            raise StepTrouble("it was stopped while a window was taken apart")
        order = self._make(window, next(self._numbers), None)
        done, error = self._try(order)
        if done is not None:
            self._succeeded = True
        else:
            assert error is not None
            hopeless = self._failed_alone >= JOBS_ALONE_MAX and not self._succeeded
            if window.width > 1 and not hopeless:
                for half in window.halves():
                    yield from self.pieces(half)
                return
            self._failed_alone += 1
            order = self._make(window, next(self._numbers), error)
            done, failed = self._try(order)
            if done is None:
                raise StepTrouble(f"{window} cannot be answered at all: {failed}")
        yield Task(window, order), done

    def _try(self, order: Order) -> tuple[Done | None, StepError | None]:
        """What was done, or why not."""
        try:
            done = do_orders(self._spark, self._step, [order])[0]
        except Exception as error:  # noqa: BLE001 - Spark's own, of many kinds, and the function's
            check_guilt(error, self._step, order.attempt)
            # A function of batches that only raised would not have failed a job: somebody has died.
            if self._step.kind == "arrow":
                return None, LOST
            return None, StepError(error_class(error), story(error)[:TEXT_CHARS], retryable=True)
        if done.fault:
            return None, StepError("fault", done.fault[:TEXT_CHARS], retryable=True)
        return done, None


def first_line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), "")


_SPARKS_WORDS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")


def error_class(error: Exception) -> str:
    """As Spark names it, such as CAST_INVALID_INPUT; else as Python does."""
    found = _SPARKS_WORDS.search(str(error))
    return found[1] if found is not None else type(error).__name__


def story(error: Exception) -> str:
    """What people need of what Spark says: the reason, and not the stacks of two languages."""
    text = str(error)
    if found := _SPARKS_WORDS.search(text):
        return found[0]
    lines = [line.strip() for line in text.partition("JVM stacktrace:")[0].strip().splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception|Trouble)\b", line)]
    return (raised or lines or [type(error).__name__])[-1]
