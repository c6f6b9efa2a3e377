"""The declaration of a step that is a function of many messages at a time."""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, get_type_hints

from slipstream.bus.names import check_name
from slipstream.pipeline.steps.errors import InvalidStep
from slipstream.pipeline.steps.names import RESERVED
from slipstream.slip.routes.duration import seconds
from slipstream.slip.slip import ROUTER, UNDO_ID
from slipstream.slip.topics import default_topic

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["arrow", "frame"]

ROWS = 5_000
FRAME_ROWS = 10_000


class SparkStep(Generic[P, R]):
    """A function and the step it does. It can still be called, which is how it is tested."""

    def __init__(
        self,
        function: Callable[P, R],
        step_id: str,
        topic: str,
        kind: Kind,
        rows: int,
        schema: pa.Schema | None,
        timeout_s: float | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.step_id = step_id
        self.topic = topic
        self.kind = kind
        self.rows = rows
        """How many messages the function is given at a time, at the most."""
        self.schema = schema
        """Of the payload, where its fields are to be columns."""
        self.timeout_s = timeout_s

    @property
    def group(self) -> str:
        """The one that ordinary workers of the step have, too: the step is done by either."""
        return f"step-{self.step_id}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By its name, where it has one: executors then import its module, once, with all that the function needs
        beside itself, a model most of all."""
        module, name = self.function.__module__, self.function.__qualname__
        if module != "__main__" and "<" not in name and _found(module, name) is self:
            return _found, (module, name)
        return SparkStep, (
            self.function,
            self.step_id,
            self.topic,
            self.kind,
            self.rows,
            self.schema,
            self.timeout_s,
        )

    def __repr__(self) -> str:
        return f"SparkStep({self.step_id!r}, topic={self.topic!r})"


def _found(module: str, name: str) -> object:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def spark_step(
    step_id: str,
    *,
    topic: str | None = None,
    schema: pa.Schema | None = None,
    rows: int | None = None,
    timeout: float | str | dt.timedelta | None = None,
    kind: Kind | None = None,
) -> Callable[[Callable[P, R]], SparkStep[P, R]]:
    """The function does this step, for many messages at a time, on Spark.

    It takes and returns a `pyarrow.RecordBatch` (or a `Table`), or a `pyspark.sql.DataFrame`, as its annotations say,
    or `kind`. A row is a message: `row`, `correlation_id`, `type`, `attempt` and `payload`, which is JSON; or, with a
    `schema`, the fields of the payload in place of it. `rows` is how many it is given at a time, at the most, and
    `timeout` how long it may take for them.

    What it returns are answers: a column `payload` replaces the payload, `status`, `notes` and `error` are those of the
    step, and any other column is a field that is put into the payload, where it is not null.

    Example:
        @spark_step("embed", topic="internal.embed.v1")
        def embed(batch: pa.RecordBatch) -> pa.RecordBatch:
            vectors = model.encode(batch.column("payload").to_pylist())
            return pa.record_batch({"row": batch.column("row"), "vector": pa.array(vectors.tolist())})
    """
    _check(step_id, rows)
    found_topic = topic or default_topic(step_id)
    check_name("topic", found_topic)
    check_name("group", f"step-{step_id}")
    timeout_s = None if timeout is None else seconds("timeout", timeout)

    check_schema(schema)

    def declare(function: Callable[P, R]) -> SparkStep[P, R]:
        said = kind or _kind_of(function)
        if said == "frame" and timeout_s is not None:
            raise InvalidStep(
                f"{step_id}: a timeout is for functions of Arrow batches; Spark itself times no frame out"
            )
        return SparkStep(
            function, step_id, found_topic, said, rows or (FRAME_ROWS if said == "frame" else ROWS), schema, timeout_s
        )

    return declare


def check_schema(schema: pa.Schema | None) -> None:
    """Raises InvalidStep for a field that could not be told from what every row has."""
    taken = sorted(RESERVED & set(schema.names if schema is not None else ()))
    if taken:
        raise InvalidStep(
            f"the schema has {', '.join(taken)}, which every row has with another meaning: leave the schema out and "
            "read them from the column payload"
        )


def _check(step_id: object, rows: int | None) -> None:
    if not isinstance(step_id, str) or not step_id:
        raise InvalidStep(f"which step does it do? Write @spark_step(…) with the id of the step, and not {step_id!r}")
    if step_id == ROUTER or step_id.startswith(UNDO_ID):
        raise InvalidStep(f"the step {step_id} is the router's")
    if rows is not None and rows < 1:
        raise InvalidStep(f"rows={rows}: a function is given at least one message")


def _kind_of(function: Callable[..., Any]) -> Kind:
    """By the annotation of what it takes, or of what it returns."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidStep(f"{function!r} is a plain function of a batch, with neither await nor yield")
    try:
        hints: dict[str, Any] = get_type_hints(function)
    except Exception:  # noqa: BLE001 - what stands there may be imported for type checkers only; its text is enough
        hints = dict(getattr(function, "__annotations__", {}))
    names = {getattr(hint, "__name__", str(hint)).rpartition(".")[2] for hint in hints.values()}
    if names & {"RecordBatch", "Table"}:
        return "arrow"
    if "DataFrame" in names:
        return "frame"
    raise InvalidStep(
        f"does {getattr(function, '__name__', function)!r} take Arrow batches or DataFrames? Annotate it with "
        "pa.RecordBatch or DataFrame, or write @spark_step(…, kind='arrow') or 'frame'"
    )
