"""What is kept of the attempts at a message: within its bounds, through restarts, and into its dead letter."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.broker import decode_meta
from slipstream.broker.evidence import (
    ATTEMPTS_KEPT,
    ERROR_CHARS_MAX,
    LEAN_ERROR_CHARS,
    MESSAGE_CHARS_MAX,
    NO_EVIDENCE,
    RECOUNT_EVERY,
    TRACEBACK_CHARS_MAX,
    Attempt,
    Evidence,
    EvidenceBudget,
    attempt_of,
    with_attempt,
)
from tests.broker.simulator import Simulator

NO_LIMIT = EvidenceBudget(list)


def attempt(number: int, error: str = "boom", traceback: str = "File …", budget: EvidenceBudget = NO_LIMIT) -> Attempt:
    return attempt_of(number, number * 1_000, number * 1_000 + 250, "w", error, traceback, budget)


def story(attempts: int, error: str = "boom", traceback: str = "File …") -> Evidence:
    kept = NO_EVIDENCE
    for number in range(1, attempts + 1):
        kept = with_attempt(kept, attempt(number, error, traceback))
    return kept


def test_the_first_and_the_newest_attempts_are_kept() -> None:
    kept = story(ATTEMPTS_KEPT + 10)
    assert [each.number for each in kept] == [1, *range(12, ATTEMPTS_KEPT + 11)]


def test_the_first_and_the_newest_traceback_are_kept() -> None:
    assert [bool(each.traceback) for each in story(4)] == [True, False, False, True]


def test_texts_are_bounded_one_by_one_and_together() -> None:
    kept = story(ATTEMPTS_KEPT, error="e" * 9_999, traceback="t" * 99_999)
    assert {len(each.error) for each in kept} == {ERROR_CHARS_MAX}
    assert {len(each.traceback) for each in kept} == {0, TRACEBACK_CHARS_MAX}
    assert sum(each.chars for each in kept) <= MESSAGE_CHARS_MAX
    assert (kept[0].number, kept[-1].number) == (1, ATTEMPTS_KEPT)


def test_past_the_limit_of_the_broker_texts_are_left_out_until_others_are_finished() -> None:
    held = [story(1, error="e" * 90, traceback="")]
    measured = []

    def measure() -> list[Evidence]:
        measured.append(1)
        return held

    budget = EvidenceBudget(measure, chars_max=1_000)
    budget.recount()
    full = attempt(1, error="e" * 500, traceback="t" * 500, budget=budget)
    assert (len(full.error), full.traceback) == (LEAN_ERROR_CHARS, "")
    assert attempt(2, error="e" * 400, traceback="t" * 400, budget=budget).traceback, "there is room for this one"
    held.clear()
    while len(measured) == 1:
        refused = attempt(3, error="e" * 500, traceback="t" * 500, budget=budget)
        attempt(4, error="", traceback="", budget=budget)  # there is always room for this one
    assert refused.traceback, "it has counted again"


def test_at_the_limit_of_the_broker_all_messages_in_flight_are_read_rarely() -> None:
    """Each reading takes as long as there are messages, also where small texts still fit between large ones."""
    full, measured = [story(1, error="e" * 1_000, traceback="")], []

    def measure() -> list[Evidence]:
        measured.append(1)
        return full

    budget = EvidenceBudget(measure, chars_max=1_000)
    budget.recount()
    for _ in range(RECOUNT_EVERY):
        assert not budget.take(1)
        assert budget.take(0)
    assert len(measured) == 1 + 1


def failing(restart: str = "", *, restart_after: int = 1) -> Evidence:
    """What the dead letter of a message has that failed three times: by a nack, a lease that ran out, a nack."""
    sim = Simulator()
    sim.create(retry={"max_attempts": 3, "backoff_ms": 500})
    sim.produce()
    began_ms = sim.now_ms
    for number in (1, 2, 3):
        consumer = sim.attach(f"w{number}", lease_ms=2_000)
        if number == 2:
            sim.advance(2_000)
        else:
            sim.advance(70)
            at = (sim.now_ms, "t", "g", 0, 0, f"w{number}")
            sim.broker.nack(*at, f"error {number}", traceback=f"Traceback {number}")
            sim.commit()
        sim.broker.detach(sim.now_ms, consumer)
        if number == restart_after and restart:
            if restart == "snapshot":
                sim.checkpoint()
            sim.crash()
        sim.advance(2_000)
    record = sim.broker.topic("dlq.t").partitions[0].log.read(0)
    meta = decode_meta(record.meta)
    assert meta.envelope is not None
    assert b"Traceback" not in msgspec.json.encode(meta.envelope), "the envelope is DriftQ's, and shown in /v1"
    return tuple(
        msgspec.structs.replace(each, started_ms=each.started_ms - began_ms, ended_ms=each.ended_ms - began_ms)
        for each in meta.evidence
    )


@pytest.mark.parametrize("restart", ["", "journal", "snapshot"])
@pytest.mark.parametrize("restart_after", [1, 2])
def test_a_dead_letter_has_time_worker_duration_error_and_traceback_of_each_attempt(
    restart: str, restart_after: int
) -> None:
    second, third = 2_070, 6_070
    assert failing(restart, restart_after=restart_after) == (
        Attempt(1, 0, 70, "w1", "error 1", "Traceback 1"),
        Attempt(2, second, second + 2_000, "w2", "ack_timeout"),
        Attempt(3, third, third + 70, "w3", "error 3", "Traceback 3"),
    )


def test_a_redriven_message_starts_without_the_attempts_of_its_dead_letter() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    sim.nack(0, reason="first life", retryable=False)
    sim.broker.intake.redrive(sim.now_ms, sim.broker.topic("dlq.t").partitions[0], 0)
    sim.commit()
    sim.nack(1, reason="second life", retryable=False)
    record = sim.broker.topic("dlq.t").partitions[0].log.read(1)
    assert [(each.number, each.error) for each in decode_meta(record.meta).evidence] == [(1, "second life")]


def test_a_message_that_nobody_was_handed_has_no_attempts() -> None:
    sim = Simulator()
    sim.create()
    sim.broker.detach(sim.now_ms, sim.attach())
    sim.produce(envelope={"deadline": "1970-01-01T00:30:00Z"})
    sim.advance(3_600_000)
    record = sim.broker.topic("dlq.t").partitions[0].log.read(0)
    assert decode_meta(record.meta).evidence == NO_EVIDENCE
