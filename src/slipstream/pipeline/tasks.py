"""Work that runs as Spark tasks: a function of ours for each of some orders, wherever the executors are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from slipstream.pipeline.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ANSWER = "task long, answer binary"


def run_tasks(spark: SparkSession, function: Callable[[bytes], bytes], orders: Sequence[bytes]) -> list[bytes]:
    """What the function makes of each order, in a task of its own; answers come in the order of the orders.

    Orders travel with the function, and not as rows: a plan is shown to everybody and logged, and orders may hold what
    is secret. The function is one of a module that executors can import.

    Example:
        answers = run_tasks(spark, measure, [b"a", b"b"])
    """
    if not orders:
        return []
    count, held = len(orders), list(orders)
    try:
        found = answers_of(spark, function, held).toArrow()
    finally:
        # Frames are garbage that Python finds late, and would keep the orders of hundreds of jobs until then.
        held.clear()
    answers = dict(zip(found.column("task").to_pylist(), found.column("answer").to_pylist(), strict=True))
    assert len(answers) == count, f"{len(answers)} of {count} tasks have answered"
    return [answers[number] for number in range(count)]


def answers_of(spark: SparkSession, function: Callable[[bytes], bytes], orders: list[bytes]) -> DataFrame:
    """The same as a frame, for those who do not want all answers at once. The list is to stay as it is until they have
    them."""

    def apply(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - in the task

        for batch in numbers:
            for number in batch.column("id").to_pylist():
                answer = function(orders[number])
                yield pa.record_batch(
                    {"task": pa.array([number], pa.int64()), "answer": pa.array([answer], pa.binary())}
                )

    count = len(orders)
    return spark.range(0, count, 1, count).mapInArrow(apply, ANSWER)


CONNECT_PARALLELISM = 4


def parallelism_of(spark: SparkSession) -> int:
    """How many tasks run at a time. Over Spark Connect nobody says."""
    from pyspark.sql import is_remote  # noqa: PLC0415

    return CONNECT_PARALLELISM if is_remote() else max(1, spark.sparkContext.defaultParallelism)


NEEDED = ("msgspec", "pyarrow", "aiohttp", "google_crc32c", "fnv_hash_fast")
"""What our package itself stands on: on a cluster it is sent along, and these are not."""


def check_executors(spark: SparkSession, needed: Sequence[str] = NEEDED) -> None:
    """Raises PipelineError where a Python of the cluster lacks what tasks need: said now, and in words, and not by the
    first of them that fails."""
    from pyspark.errors import PythonException  # noqa: PLC0415

    try:
        lacking = run_tasks(spark, _lacking, [" ".join(needed).encode()])[0].decode()
    except PythonException as error:
        # Without Arrow, Spark itself cannot call any function of ours.
        found = re.search(r"No module named '([\w.]+)'", str(error))
        if found is None:
            raise
        lacking = found[1]
    if lacking:
        raise PipelineError(
            f"the Python of Spark's executors cannot import {lacking}: install them there, name another Python with "
            "PYSPARK_PYTHON, or send an environment along with --conf spark.archives=environment.tar.gz#environment"
        )


def _lacking(names: bytes) -> bytes:
    import importlib.util  # noqa: PLC0415 - in the task

    return ", ".join(name for name in names.decode().split() if importlib.util.find_spec(name) is None).encode()
