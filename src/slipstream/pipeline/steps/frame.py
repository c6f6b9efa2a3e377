"""Steps that are functions of DataFrames: Spark plans what becomes of the rows, and tasks of ours stand at both ends.

The messages are read twice: for the function, as rows, and beside its answers, so that each can be sent on with what it
came with. To carry them through the function would leave it to the function to bring them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.source import open_log
from slipstream.pipeline.source.planning import tasks_of
from slipstream.pipeline.steps.attempt import Attempt, Came, Outcome, Sent, answer, judge
from slipstream.pipeline.steps.calling import NO_ANSWER, failure
from slipstream.pipeline.steps.columns import given, outcome_of
from slipstream.pipeline.steps.errors import AnswerRefused, StepTrouble
from slipstream.pipeline.steps.names import ATTEMPT, CORRELATION_ID, GIVEN, PAYLOAD, ROW, TYPE
from slipstream.pipeline.steps.task import Done, Order, read_messages, stage
from slipstream.pipeline.tasks import parallelism_of
from slipstream.slip import clock
from slipstream.slip.event import Status, StepError

if TYPE_CHECKING:
    import datetime as dt

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from slipstream.pipeline.steps.step import SparkStep

SAID, COUNT = "said", "count"
CAME = f"{ROW} long, `partition` int, key binary, value binary"
"""`row` is the offset, which no other message of the topic has."""
TASK_DONE = "done binary"
READ_ROWS = 10_000
TWICE = StepError("bad_answer", f"the function has returned two rows for it, with the same {ROW}", retryable=False)

Batches = Iterator["pa.RecordBatch"]
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def do_frame(spark: SparkSession, step: SparkStep[Any, Any], order: Order) -> Done:
    """The whole window in one job. Raises what Spark raises when the function fails."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    began = clock.now()
    answered: DataFrame = step.function(_read(spark, order, _rows_of(step, began), _row_schema(step)))
    if ROW not in answered.columns:
        raise AnswerRefused(
            f"the frame that the function returned has no column {ROW}, which says what each row answers"
        )
    said = [name for name in answered.columns if name not in GIVEN]
    packed = f.to_json(f.struct(*[answered[_quoted(name)] for name in said])) if said else f.lit("{}")
    answers = answered.groupBy(ROW).agg(f.first(packed).alias(SAID), f.count(f.lit(1)).alias(COUNT))
    came = _read(spark, order, _messages, CAME).join(answers, ROW, "left")
    done = came.mapInArrow(_stager(step, order, began), TASK_DONE).toArrow().column("done").to_pylist()
    return _together([msgspec.json.decode(one, type=Done) for one in done])


def _read(
    spark: SparkSession, order: Order, read: Callable[[Sequence[Came]], pa.RecordBatch], schema: str
) -> DataFrame:
    """What `read` makes of the messages of the window, shared out to tasks."""
    pieces = tasks_of(order.ranges, parallelism_of(spark))
    topic = order.ranges[0].topic.removeprefix(order.prefix)

    def rows(numbers: Batches) -> Batches:
        from slipstream.client import SlipstreamError  # noqa: PLC0415

        try:
            with open_log({"url": order.url, "failOnDataLoss": "false"}) as log:
                for batch in numbers:
                    for number in batch.column("id").to_pylist():
                        messages = list(read_messages(log, topic, pieces[number]))
                        for first in range(0, len(messages), READ_ROWS):
                            yield read(messages[first : first + READ_ROWS])
        except SlipstreamError as error:
            # Told from what the function raises, whatever that quotes, by a word that nobody else knows.
            raise StepTrouble(f"{order.attempt}: {error}") from error

    count = max(1, len(pieces))
    return spark.range(0, len(pieces), 1, count).mapInArrow(rows, schema)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _rows_of(step: SparkStep[Any, Any], began: dt.datetime) -> Callable[[Sequence[Came]], pa.RecordBatch]:
    def rows(messages: Sequence[Came]) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415

        judged = (judge(came, step.step_id, began) for came in messages)
        attempts = [each for each in judged if isinstance(each, Attempt)]
        try:
            batch = given(attempts, step.schema)
        except AnswerRefused:  # of some, to whom it is answered without the function
            attempts = [each for each in attempts if _why_not(each, step) is None]
            batch = given(attempts, step.schema)
        offsets = pa.array([each.came.offset for each in attempts], pa.int64())
        return batch.set_column(0, ROW, offsets)

    return rows


def _why_not(attempt: Attempt, step: SparkStep[Any, Any]) -> AnswerRefused | None:
    """Why a message cannot be a row; None if it can."""
    try:
        given([attempt], step.schema)
    except AnswerRefused as error:
        return error
    return None


def _row_schema(step: SparkStep[Any, Any]) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    common = f"{ROW} long, {CORRELATION_ID} string, {TYPE} string, {ATTEMPT} int, "
    if step.schema is None:
        return common + f"{PAYLOAD} string"
    fields = from_arrow_schema(step.schema).fields
    return common + ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)


def _messages(messages: Sequence[Came]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    return pa.record_batch(
        {
            ROW: pa.array([each.offset for each in messages], pa.int64()),
            "partition": pa.array([each.partition for each in messages], pa.int32()),
            "key": pa.array([each.key for each in messages], pa.binary()),
            "value": pa.array([each.data for each in messages], pa.binary()),
        }
    )


# The answers


def _stager(step: SparkStep[Any, Any], order: Order, began: dt.datetime) -> Callable[[Batches], Batches]:
    def answers(batches: Batches) -> Iterator[Sent]:
        for batch in batches:
            names = (ROW, "partition", "key", "value", SAID, COUNT)
            for row, partition, key, value, said, count in zip(
                *(batch.column(name).to_pylist() for name in names), strict=True
            ):
                yield _answer(step, Came(step.topic, partition, row, key, value), said, count or 0, began)

    def write(batches: Batches) -> Batches:
        import pyarrow as pa  # noqa: PLC0415

        done = msgspec.json.encode(stage(order, answers(batches)))
        yield pa.record_batch({"done": pa.array([done], pa.binary())})

    return write


def _answer(step: SparkStep[Any, Any], came: Came, said: str | None, count: int, began: dt.datetime) -> Sent:
    ended = clock.now()
    judged = judge(came, step.step_id, began)
    if not isinstance(judged, Attempt):
        return judged
    return answer(judged, _outcome(step, judged, said, count), began, ended)


def _outcome(step: SparkStep[Any, Any], attempt: Attempt, said: str | None, count: int) -> Outcome:
    if not count:
        refused = _why_not(attempt, step)
        return Outcome(Status.ERROR, error=NO_ANSWER) if refused is None else failure(refused)
    if count > 1:
        return Outcome(Status.ERROR, error=TWICE)
    try:
        return outcome_of(attempt, _decode(said or "{}"))
    except AnswerRefused as error:
        return failure(error)


def _together(done: Sequence[Done]) -> Done:
    if (troubled := next((each for each in done if each.trouble or each.fault), None)) is not None:
        return troubled
    counts: dict[str, int] = {}
    for each in done:
        for kind, count in each.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    return Done(staged=[staged for each in done for staged in each.staged], counts=counts)
