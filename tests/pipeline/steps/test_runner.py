"""A step on a real session of Spark and a real server: each message is answered once, whatever happens."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slipstream.api import TopicConfigFields
from slipstream.client import compose
from slipstream.pipeline.steps.runner import Told
from tests.pipeline.steps import functions
from tests.pipeline.steps.site import Site
from tests.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def squares(*numbers: range) -> dict[int, int]:
    return {n: n * n for each in numbers for n in each}


class Heard(logging.Handler):
    """Sets an event when the runner logs a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.event = threading.Event()
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.event.set()


@contextlib.contextmanager
def heard(text: str) -> Iterator[Heard]:
    handler, logger = Heard(text), logging.getLogger("slipstream.pipeline.steps.runner")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


def test_every_message_is_answered_and_the_group_is_behind_them(spark: SparkSession, site: Site) -> None:
    site.put_numbers(1_000)
    site.run(spark, functions.embed)
    assert site.squares() == squares(range(1_000))
    assert site.lag == 0
    assert sum(told.messages for told in site.told) == 1_000


def test_it_goes_on_with_what_comes_and_ends_when_it_is_told_to(spark: SparkSession, site: Site) -> None:
    came, stop = threading.Event(), threading.Event()

    def told(what: Told) -> None:
        site.told.append(what)
        came.set()

    runner = site.runner(spark, functions.embed)
    runner._told = told
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(runner.run, stop)
        for first in (0, 50):
            came.clear()
            site.put_numbers(50, first)
            assert came.wait(60)
            while site.lag:
                assert not running.done()
        stop.set()
        running.result(60)
    assert site.squares() == squares(range(100))


def test_a_poisoned_row_fails_alone(spark: SparkSession, site: Site) -> None:
    site.put_numbers(1_000, poison={617: "raise"})
    site.run(spark, functions.embed, step_rows=1_000)
    assert site.squares() == squares(range(617), range(618, 1_000))
    assert site.errors() == {617: "ValueError"}


def test_a_row_that_kills_the_process_is_found_and_fails_alone(spark: SparkSession, site: Site) -> None:
    site.put_numbers(60, poison={41: "die"})
    site.run(spark, functions.embed, step_rows=60)
    assert site.squares() == squares(range(41), range(42, 60))
    assert site.errors() == {41: "worker_lost"}
    assert site.lag == 0


def test_a_function_that_kills_every_process_does_not_stop_the_step(spark: SparkSession, site: Site) -> None:
    site.put_numbers(40)
    site.run(spark, functions.always_dies, step_rows=40)
    assert site.errors() == dict.fromkeys(range(40), "worker_lost")
    assert site.lag == 0


def test_an_answer_that_is_too_large_is_a_failure_of_its_step(spark: SparkSession, site: Site) -> None:
    site.put_numbers(6)
    site.run(spark, functions.grows)
    answered = {
        event.payload["n"]: (step.status.value, step.error and step.error.code) for event, step in site.answers()
    }
    assert answered == {**dict.fromkeys(range(6), ("OK", None)), 3: ("ERROR", "unsendable")}


def test_two_runners_of_a_step_answer_each_message_once(spark: SparkSession, site: Site) -> None:
    site.put_numbers(600)
    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(site.run, spark, functions.embed) for _ in range(2)]:
            each.result(120)
    assert site.squares() == squares(range(600))
    assert site.lag == 0


def test_a_group_that_was_moved_back_answers_again(spark: SparkSession, site: Site) -> None:
    site.put_numbers(100)
    site.run(spark, functions.embed)
    site.client.seek(site.topic, "step-embed", offset=90)
    site.run(spark, functions.embed)
    counts = [event.payload["n"] for event, _ in site.answers()]
    assert sorted(counts) == sorted([*range(100), *range(90, 100)])


def test_what_a_worker_that_is_gone_has_left_is_done(spark: SparkSession, site: Site) -> None:
    site.put_numbers(30)
    taken = site.client.fetch(site.topic, "step-embed", max_messages=10, lease_ms=60_000)
    for message in taken[5:]:
        message.ack()
    for message in taken[:5]:
        message.nack("gave up", delay_ms=3_600_000)
    site.run(spark, functions.embed)
    assert {event.payload["n"] for event, _ in site.answers()} >= {int(each.key[2:]) for each in taken[:5]}
    assert site.lag == 0


def test_a_partition_that_workers_have_left_behind_is_no_hindrance(spark: SparkSession, site: Site) -> None:
    site.put_numbers(300)
    site.client.seek(site.topic, "step-embed", to="earliest")
    site.client.seek(site.topic, "step-embed", to="latest", partition=1)
    site.run(spark, functions.embed)
    assert site.lag == 0
    assert 0 < len(site.squares()) < 300


def test_what_a_router_that_is_behind_can_never_take_at_once_is_sent_in_less(spark: SparkSession, site: Site) -> None:
    site.client.change_topic(site.router, config=TopicConfigFields(max_waiting_messages=40))
    site.put_numbers(400)
    stop = threading.Event()
    runner = site.runner(spark, functions.embed, step_rows=400)

    def told(what: Told) -> None:
        """The router reads them."""
        site.client.seek(site.router, "router", to="latest")

    runner._told = told
    runner.run(stop, once=True)
    assert site.squares() == squares(range(400))


def test_what_is_no_event_goes_back_to_the_router_as_it_came(spark: SparkSession, site: Site) -> None:
    site.client.produce(site.topic, b"\xff no event", key="odd")
    site.put_numbers(3)
    site.run(spark, functions.embed)
    values = [m.value for p in range(3) for m in site.client.scan(site.router, p)]
    assert b"\xff no event" in values
    assert len(values) == 4


def test_a_frame_is_answered_by_row(spark: SparkSession, site: Site) -> None:
    site.put_numbers(50, poison={7: "drop", 9: "double"})
    site.run(spark, functions.frame)
    assert site.squares() == squares(range(7), range(8, 9), range(10, 50))
    assert site.errors() == {7: "no_answer", 9: "bad_answer"}
    assert site.lag == 0


def test_a_row_that_fails_a_frame_is_found_and_fails_alone(spark: SparkSession, site: Site) -> None:
    site.put_numbers(12, poison={5: "raise"})
    site.run(spark, functions.frame)
    assert site.squares() == squares(range(5), range(6, 12))
    assert set(site.errors()) == {5}


def test_a_function_that_asks_for_a_pause_is_left_alone_and_nothing_is_lost(spark: SparkSession, site: Site) -> None:
    class Pauses:
        """Notes what is asked for, and ends the run."""

        def __init__(self) -> None:
            self.asked: list[tuple[str, str, float]] = []
            self.stop = threading.Event()

        def reason(self, step_id: str) -> str | None:
            return None

        def hold(self, step_id: str, reason: str, seconds: float) -> None:
            self.asked.append((step_id, reason, seconds))
            self.stop.set()

    site.put_numbers(10, poison={3: "pause"})
    runner, pauses = site.runner(spark, functions.embed), Pauses()
    runner._held = pauses
    runner.run(pauses.stop)
    assert pauses.asked == [("embed", "the model is away", 3600)]
    assert list(site.answers()) == []
    with pytest.raises(Exception, match="no group"):
        assert site.lag


def test_a_topic_that_was_created_again_loses_nothing(spark: SparkSession, site: Site) -> None:
    site.put_numbers(100)
    runner = site.runner(spark, functions.embed)
    first = threading.Event()

    def told(what: Told) -> None:
        """After the first window, the topic is another."""
        if not first.is_set():
            first.set()
            site.client.delete_topic(site.topic)
            site.client.create_topic(site.topic, 3)
            site.put_numbers(150, first=1_000)

    runner._told = told
    runner.run(threading.Event(), once=True)
    assert {n: n * n for n in range(1_000, 1_150)}.items() <= site.squares().items()
    assert site.lag == 0


def test_a_group_that_is_paused_is_not_gone_on_with(spark: SparkSession, site: Site) -> None:
    site.put_numbers(100)
    site.run(spark, functions.embed)
    stop = threading.Event()
    runner = site.runner(spark, functions.embed)
    with heard("waits for") as waits, ThreadPoolExecutor(1) as thread:
        running = thread.submit(runner.run, stop)
        site.client.pause(site.topic, "step-embed")
        site.put_numbers(50, first=100)
        assert waits.event.wait(60)
        assert site.lag == 50
        site.client.resume(site.topic, "step-embed")
        while site.lag:
            assert not running.done()
        stop.set()
        running.result(60)
    assert site.squares() == squares(range(150))


def test_who_has_little_room_for_what_is_staged_is_given_less_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", "--max-staged-bytes", "200000")
    server.start()
    try:
        site = Site(server.base, "small.")
        with site.client:
            site.put_numbers(2_000)
            site.run(spark, functions.embed, step_rows=10_000)
            assert site.squares() == squares(range(2_000))
    finally:
        server.kill()


def test_a_step_that_was_done_long_ago_is_not_looked_for_in_all_history(spark: SparkSession, site: Site) -> None:
    site.put_numbers(30)
    site.client.produce_batch(site.topic, [compose(b"no event", key="one")] * 2_000)
    site.run(spark, functions.embed, step_rows=10_000)
    before = len(site.told)
    site.run(spark, functions.embed)
    assert len(site.told) == before, "there is nothing to read"


def test_a_payload_that_quotes_our_own_words_stops_nobody(spark: SparkSession, site: Site) -> None:
    site.put([{"n": 0, "text": "StepTrouble: StepTrouble"}, {"n": 1, "text": "17"}])
    site.run(spark, functions.quotes)
    assert {event.payload["n"]: step.status.value for event, step in site.answers()} == {0: "ERROR", 1: "OK"}
    (error,) = [step.error for _, step in site.answers() if step.error is not None]
    assert error.code == "CAST_INVALID_INPUT"
    assert "java" not in (error.message or "")
