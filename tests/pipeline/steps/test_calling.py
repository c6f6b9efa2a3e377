"""The function is called for all rows, and where it fails for halves of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from slipstream.outcome import Reject, Retry
from slipstream.pipeline.steps.attempt import Outcome
from slipstream.pipeline.steps.calling import ALONE_MAX, Calls
from slipstream.slip.errors import Pause, Skip, StepFailed
from slipstream.slip.event import Status, StepError
from tests.pipeline.steps.events import attempt


def numbers(batch: pa.RecordBatch) -> list[int]:
    return [int(each.removeprefix("c-")) for each in batch.column("correlation_id").to_pylist()]


class Counting:
    """Fails where one of these is in the batch."""

    def __init__(self, guilty: set[int], raises: Callable[[], Exception] = lambda: ValueError("boom")) -> None:
        self.guilty, self.raises = guilty, raises
        self.calls: list[int] = []

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.calls.append(batch.num_rows)
        if self.guilty & set(numbers(batch)):
            raise self.raises()
        return batch


def outcomes_of(function: Callable[[Any], object], count: int, **how: Any) -> list[Outcome]:
    return Calls(function, **how).outcomes([attempt(number) for number in range(count)])


def test_all_rows_are_one_call() -> None:
    function = Counting(set())
    assert outcomes_of(function, 100) == [Outcome()] * 100
    assert function.calls == [100]


@pytest.mark.parametrize("guilty", [{0}, {999}, {1, 500, 501}])
def test_only_the_guilty_fail_and_are_found_in_few_calls(guilty: set[int]) -> None:
    function = Counting(guilty)
    found = outcomes_of(function, 1_000)
    failed = {number for number, outcome in enumerate(found) if outcome.status is Status.ERROR}
    assert failed == guilty
    assert found[min(guilty)].error == StepError("ValueError", "boom", retryable=True)
    assert len(function.calls) <= 1 + 2 * 10 * len(guilty)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), RecursionError("deep")])
def test_whatever_it_raises_one_row_has_failed(error: BaseException) -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 2 in numbers(batch):
            raise error
        return batch

    found = outcomes_of(function, 4)
    assert [outcome.status for outcome in found] == [Status.OK, Status.OK, Status.ERROR, Status.OK]
    assert found[2].error is not None
    assert found[2].error.code == type(error).__name__


@pytest.mark.parametrize(
    "error",
    [
        ValueError("half \ud800 of a pair"),
        StepFailed("x", ValueError("no text")),  # type: ignore[arg-type]
        StepFailed(404, "not found"),  # type: ignore[arg-type]
        StepFailed("x", retryable="no"),  # type: ignore[arg-type]
    ],
)
def test_what_it_says_can_be_sent_whatever_it_is(error: Exception) -> None:
    (outcome,) = outcomes_of(Counting({0}, lambda: error), 1)
    assert msgspec.json.decode(msgspec.json.encode(outcome.error), type=StepError) == outcome.error


def test_what_is_said_of_rows_for_good_is_said_of_no_others() -> None:
    function = Counting({*range(40), *range(40, 1_000, 20)}, lambda: Skip("not wanted"))
    found = outcomes_of(function, 1_000)
    assert {number for number, outcome in enumerate(found) if outcome.status is Status.SKIP} == function.guilty


def test_a_function_that_fails_for_all_is_not_called_for_each() -> None:
    function = Counting(set(range(1_000)))
    found = outcomes_of(function, 1_000)
    assert {outcome.status for outcome in found} == {Status.ERROR}
    assert len(function.calls) < 10 * ALONE_MAX


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Skip("nothing to do"), Outcome(Status.SKIP, notes="nothing to do")),
        (Reject("never"), Outcome(Status.ERROR, error=StepError("rejected", "never", retryable=False))),
        (Retry("later"), Outcome(Status.ERROR, error=StepError("retry", "later", retryable=True))),
        (
            StepFailed("gone", "it is", retryable=False),
            Outcome(Status.ERROR, error=StepError("gone", "it is", retryable=False)),
        ),
    ],
)
def test_what_it_raises_for_one_row_means_what_it_means_in_a_worker(error: Exception, outcome: Outcome) -> None:
    found = outcomes_of(Counting({2}, lambda: error), 4)
    assert found == [Outcome(), Outcome(), outcome, Outcome()]


def test_a_pause_is_about_no_row() -> None:
    with pytest.raises(Pause):
        outcomes_of(Counting({1}, lambda: Pause("away")), 4)


def test_a_row_without_an_answer_has_failed() -> None:
    found = outcomes_of(lambda batch: batch.filter(pa.array([n != 1 for n in numbers(batch)])), 3)
    assert [outcome.error and outcome.error.code for outcome in found] == [None, "no_answer", None]


def test_a_row_that_takes_too_long_is_found() -> None:
    def stuck(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 3 in numbers(batch):
            threading.Event().wait(60)
        return batch

    found = outcomes_of(stuck, 4, timeout_s=1)
    assert found[:3] == [Outcome()] * 3
    assert found[3].error is not None
    assert found[3].error.code == "step_timeout"


def test_a_payload_that_is_no_text_fails_alone() -> None:
    from slipstream.pipeline.steps.attempt import Attempt, judge
    from slipstream.slip.event import encode
    from tests.pipeline.steps.events import NOW, came, event

    broken = judge(came(encode(event(1, {"text": "ä"})).replace("ä".encode(), b"\xff")), "embed", NOW)
    assert isinstance(broken, Attempt)
    found = Calls(Counting(set())).outcomes([attempt(0), broken, attempt(2)])
    assert [outcome.status for outcome in found] == [Status.OK, Status.ERROR, Status.OK]
