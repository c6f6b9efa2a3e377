"""What a Spark task does for a step: reads its window, calls the function, and leaves the answers with the server."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.source import open_log
from slipstream.pipeline.source.range import Range
from slipstream.pipeline.steps.attempt import Attempt, Came, Outcome, Sent, answer, judge, returned
from slipstream.pipeline.steps.calling import Calls
from slipstream.pipeline.steps.staging import Staging
from slipstream.slip import clock
from slipstream.slip.errors import Pause
from slipstream.slip.event import Status, StepError

if TYPE_CHECKING:
    import datetime as dt

    from slipstream.pipeline.source.log import Log
    from slipstream.pipeline.steps.step import SparkStep

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 << 20
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
    fault: str = ""
    """What we ourselves have failed of, with some message of it: it is to be found."""


def do_order(step: SparkStep[Any, Any], data: bytes) -> bytes:
    """The function for `run_tasks`."""
    return msgspec.json.encode(do(step, msgspec.json.decode(data, type=Order)))


def do(step: SparkStep[Any, Any], order: Order) -> Done:
    """Nothing is raised but by what kills the process, so that the driver can tell that from all else."""
    with open_log({"url": order.url, "failOnDataLoss": "false"}) as read:
        return stage(order, _answers(step, order, read))


def _chunks(messages: Iterator[Came], rows: int) -> Iterator[list[Came]]:
    """So many at a time as the function wants, and no more than memory bears."""
    chunk: list[Came] = []
    size = 0
    for came in messages:
        if chunk and (len(chunk) == rows or size + len(came.data) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(came)
        size += len(came.data)
    if chunk:
        yield chunk


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
    except Exception as error:
        log.exception("a window of a step cannot be answered")
        staging.take_back()
        return Done(fault=f"{type(error).__name__}: {error}".encode(errors="replace").decode())


def _answers(step: SparkStep[Any, Any], order: Order, read: Log) -> Iterator[Sent]:
    for messages in _chunks(read_messages(read, step.topic, order.ranges), step.rows):
        yield from _answer(step, order, messages)


def read_messages(read: Log, topic: str, ranges: Iterable[Range]) -> Iterator[Came]:
    """`topic` is its name without the prefix, as everybody on the bus calls it."""
    for asked in ranges:
        for batch in read.read(asked, COLUMNS):
            columns = (batch.column(name).to_pylist() for name in COLUMNS)
            yield from map(Came, repeat(topic), *columns)


def _answer(step: SparkStep[Any, Any], order: Order, messages: Sequence[Came]) -> Iterator[Sent]:
    """In the order in which they came."""
    began = clock.now()
    judged = [_judge(step, order, came, began) for came in messages]
    attempts = [each for each in judged if isinstance(each, Attempt)]
    found = iter(_outcomes(step, order, attempts) if attempts else ())
    ended = clock.now()
    for each in judged:
        yield answer(each, next(found), began, ended) if isinstance(each, Attempt) else each


def _judge(step: SparkStep[Any, Any], order: Order, came: Came, now: dt.datetime) -> Attempt | Sent:
    try:
        return judge(came, step.step_id, now)
    except Exception:
        if order.error is None:
            raise
        return returned(came)  # of which it is known that we cannot read it: the router may know more


def _outcomes(step: SparkStep[Any, Any], order: Order, attempts: Sequence[Attempt]) -> Sequence[Outcome]:
    if order.error is not None:
        return [Outcome(Status.ERROR, error=order.error)] * len(attempts)
    return Calls(step.function, step.schema, step.timeout_s).outcomes(attempts)
