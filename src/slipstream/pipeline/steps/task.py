"""What a Spark task does for a step: reads its window, calls the function, and leaves the answers with the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.source import open_log
from slipstream.pipeline.source.range import Range
from slipstream.pipeline.steps.attempt import Attempt, Came, Outcome, Sent, answer, judge
from slipstream.pipeline.steps.calling import Calls
from slipstream.pipeline.steps.staging import Staging
from slipstream.slip import clock
from slipstream.slip.errors import Pause
from slipstream.slip.event import Status, StepError

if TYPE_CHECKING:
    from slipstream.pipeline.source.log import Log
    from slipstream.pipeline.steps.step import SparkStep

COLUMNS = ("partition", "offset", "key", "value")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver wants of a task."""

    url: str
    prefix: str
    """What stands before every topic on the bus."""
    ranges: list[Range]
    writer: str
    sequence: int
    attempt: str
    """Of the driver, at this commit: what an earlier one has left is forgotten."""
    error: StepError | None = None
    """Why all of it has failed, where that is known: then the function is not called."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    staged: list[str] = []
    counts: dict[str, int] = {}
    """By what was sent: OK, SKIP, ERROR, or `returned` for what went back as it came."""
    trouble: str = ""
    """Why nothing is known of it: the server was away, say. To be tried again."""
    is_overloaded: bool = False
    """The server has no room for so much."""
    pause_s: float = 0.0
    """What the step depends on is down for so long, said the function."""


def do_order(step: SparkStep[Any, Any], data: bytes) -> bytes:
    """The function for `run_tasks`."""
    return msgspec.json.encode(do(step, msgspec.json.decode(data, type=Order)))


def do(step: SparkStep[Any, Any], order: Order) -> Done:
    """Nothing is raised but by what kills the process, so that the driver can tell that from all else."""
    with open_log({"url": order.url, "failOnDataLoss": "false"}) as log:
        return stage(order, _answers(step, order, log))


def stage(order: Order, answers: Iterator[Sent]) -> Done:
    """Leaves them with the server, or takes back what it has left."""
    from slipstream.client import Overloaded, SlipstreamError  # noqa: PLC0415

    staging = Staging(order.url, order.prefix, order.writer, order.sequence, order.attempt)
    try:
        for sent in answers:
            staging.add(sent)
        return Done(staged=staging.finish(), counts=staging.counts)
    except Pause as pause:
        staging.take_back()
        return Done(trouble=str(pause) or "the function asks for a pause", pause_s=pause.seconds)
    except SlipstreamError as error:
        staging.take_back()
        return Done(trouble=str(error), is_overloaded=isinstance(error, Overloaded))


def _answers(step: SparkStep[Any, Any], order: Order, log: Log) -> Iterator[Sent]:
    read = read_messages(log, step.topic, order.ranges)
    while messages := list(islice(read, step.rows)):
        yield from _answer(step, order, messages)


def read_messages(log: Log, topic: str, ranges: Iterable[Range]) -> Iterator[Came]:
    """`topic` is its name without the prefix, as everybody on the bus calls it."""
    for asked in ranges:
        for batch in log.read(asked, COLUMNS):
            columns = (batch.column(name).to_pylist() for name in COLUMNS)
            yield from map(Came, repeat(topic), *columns)


def _answer(step: SparkStep[Any, Any], order: Order, messages: Sequence[Came]) -> Iterator[Sent]:
    began = clock.now()
    attempts: list[Attempt] = []
    for came in messages:
        judged = judge(came, step.step_id, began)
        if isinstance(judged, Attempt):
            attempts.append(judged)
        else:
            yield judged
    if not attempts:
        return
    found = _outcomes(step, order, attempts)
    ended = clock.now()
    for attempt, outcome in zip(attempts, found, strict=True):
        yield answer(attempt, outcome, began, ended)


def _outcomes(step: SparkStep[Any, Any], order: Order, attempts: Sequence[Attempt]) -> Sequence[Outcome]:
    if order.error is not None:
        return [Outcome(Status.ERROR, error=order.error)] * len(attempts)
    return Calls(step.function, step.schema, step.timeout_s).outcomes(attempts)
