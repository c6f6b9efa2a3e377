"""What a task does with its window, on a server in memory and without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from slipstream.client import Client
from slipstream.pipeline.steps import SparkStep, spark_step, task
from slipstream.pipeline.steps.attempt import Attempt, Came, Sent, judge
from slipstream.pipeline.steps.task import Done, Order, do
from slipstream.pipeline.steps.window import Window
from slipstream.slip.event import StepError, encode
from slipstream.slip.incoming import receive
from slipstream.slip.slip import find
from slipstream.slip.topics import DEAD_LETTERS, ROUTER
from slipstream.testing import MemoryBroker
from tests.pipeline.steps.events import TOPIC, event


@spark_step("embed")
def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.fixture
def client() -> Iterator[Client]:
    with MemoryBroker(max_batch_bytes=600_000) as broker, broker.client() as found:
        for topic in (TOPIC, ROUTER, DEAD_LETTERS):
            found.create_topic(topic)
        yield found


def order(client: Client, error: StepError | None = None) -> Order:
    (standing,) = client.offsets([TOPIC]).topics
    window = Window({0: 0}, standing.partitions[0].end_offset)
    return Order(
        url=client._client._transport.shown,
        prefix="",
        ranges=window.ranges(TOPIC, standing.incarnation),
        writer="w",
        sequence=1,
        attempt="a",
        error=error,
    )


def sent(client: Client, done: Done, topic: str = ROUTER) -> list[bytes]:
    assert client.commit("w", 1, done.staged)
    return [message.value for message in client.scan(topic, 0)]


def put(client: Client, *values: bytes) -> None:
    client.produce_batch(TOPIC, list(values))


def test_answers_come_in_the_order_of_their_messages(client: Client) -> None:
    put(client, encode(event(0)), b"no event", encode(event(2)), b"neither")
    done = do(same, order(client))
    assert done.counts == {"OK": 2, "returned": 2}
    shown = [value if b"correlationId" not in value else receive(value).payload["n"] for value in sent(client, done)]
    assert shown == [0, b"no event", 2, b"neither"]


def test_a_window_of_nothing_is_done(client: Client) -> None:
    assert do(same, order(client)) == Done()


def test_an_error_that_is_known_is_answered_without_the_function(client: Client) -> None:
    @spark_step("embed")
    def deadly(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise AssertionError("it is not to be called")

    put(client, encode(event(0)))
    (value,) = sent(client, do(deadly, order(client, StepError("worker_lost", retryable=True))))
    step = find(receive(value), "embed")
    assert step is not None
    assert step.error == StepError("worker_lost", retryable=True)


def test_a_fault_of_our_own_is_told_and_nothing_is_left_behind(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message is known that we would fail of; if there is one, it must be found, and stop nobody."""

    def faulty(came: Came, step_id: str, now: object) -> Attempt | Sent:
        if came.offset == 1:
            raise ZeroDivisionError("ours")
        return judge(came, step_id, now)  # type: ignore[arg-type]

    monkeypatch.setattr(task, "judge", faulty)
    put(client, encode(event(0)), encode(event(1)))
    done = do(same, order(client))
    assert done.fault == "ZeroDivisionError: ours"
    assert client.unstage("w", 1).parts == 0
    found = do(same, order(client, StepError("fault", done.fault, retryable=True)))
    assert found.counts == {"ERROR": 1, "returned": 1}


def test_a_server_that_is_away_is_trouble(client: Client) -> None:
    put(client, encode(event(0)))
    asked = order(client)
    client.delete_topic(ROUTER)
    assert ROUTER in do(same, asked).trouble


def test_an_envelope_that_is_too_large_for_any_answer_is_a_dead_letter(client: Client) -> None:
    """It came in, and with what we have to say of it does not go out."""
    slip = event(1, payload={"n": 1})
    padding = "x" * (600_000 - len(encode(slip)) - 50)
    large = encode(slip).replace(b'"source":"test"', f'"source":"{padding}"'.encode())
    put(client, large)
    put(client, encode(event(2)))
    done = do(same, order(client))
    assert done.trouble == ""
    assert len(sent(client, done)) == 1
    (letter,) = [message.value for message in client.scan(DEAD_LETTERS, 0)]
    assert b"unsendable" in letter
    assert TOPIC.encode() in letter


def test_a_function_is_given_no_more_at_a_time_than_it_wants(client: Client) -> None:
    sizes: list[int] = []

    def counting(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch

    put(client, *(encode(event(number)) for number in range(25)))
    step: SparkStep[[pa.RecordBatch], pa.RecordBatch] = spark_step("embed", rows=10)(counting)
    assert do(step, order(client)).counts == {"OK": 25}
    assert sizes == [10, 10, 5]
