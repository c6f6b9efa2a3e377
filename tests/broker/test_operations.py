"""Messages that an operator helps: retried, rejected, discarded, extended and released, whichever owner holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slipstream.broker import DeadLetter, FailedPrecondition, Group, InvalidArgument, NotFound, decode_meta
from slipstream.broker.evidence import Attempt, Evidence
from slipstream.broker.operations import Operations
from tests.broker.simulator import Simulator

HOUR_MS = 3_600_000


def started(messages: int = 1, **config: Any) -> Simulator:
    """Group `g` has the messages on lease, for an hour, with owner `o`."""
    sim = Simulator()
    sim.create(**config)
    sim.attach(lease_ms=HOUR_MS)
    for number in range(messages):
        sim.produce(b"m%d" % number)
    sim.take()
    return sim


def operate(sim: Simulator, operation: Callable[..., object], offset: int = 0, *more: object) -> None:
    operation(sim.now_ms, group(sim), 0, offset, *more)
    sim.commit()


def group(sim: Simulator) -> Group:
    return sim.broker.group("t", "g")


def operations(sim: Simulator) -> Operations:
    return sim.broker.operations


def letter(sim: Simulator, index: int = 0) -> DeadLetter:
    envelope = decode_meta(sim.broker.topic("dlq.t").partitions[0].log.read(index).meta).envelope
    assert envelope is not None
    assert envelope.dlq is not None
    return envelope.dlq


def evidence(sim: Simulator) -> Evidence:
    return decode_meta(sim.broker.topic("dlq.t").partitions[0].log.read(0).meta).evidence


RESTARTS = pytest.mark.parametrize("restart", ["", "journal", "snapshot"])


def restarted(sim: Simulator, restart: str) -> Simulator:
    if restart == "snapshot":
        sim.checkpoint()
    if restart:
        sim.crash()
        sim.attach("later", lease_ms=HOUR_MS)
    return sim


# Retry


def test_a_waiting_message_is_retried_now_with_its_attempts_and_errors() -> None:
    sim = started()
    sim.nack(0, reason="boom", delay_ms=HOUR_MS)
    operate(sim, operations(sim).retry)
    assert sim.take() == [(0, 2, "o")]
    assert group(sim).progress[0].leases[0].last_error == "boom"
    assert group(sim).progress[0].leases[0].failures == 2


@RESTARTS
def test_a_retry_without_a_consumer_is_remembered(restart: str) -> None:
    sim = started()
    sim.nack(0, delay_ms=HOUR_MS)
    sim.broker.detach(sim.now_ms, group(sim).consumers[0])
    operate(sim, operations(sim).retry)
    restarted(sim, restart)
    if not restart:
        sim.attach("later")
    assert sim.take() == [(0, 2, "later")]


def test_a_delayed_message_is_delivered_now() -> None:
    sim = started(0)
    sim.produce(b"first", delay_ms=HOUR_MS)
    sim.produce(b"second")
    assert sim.take() == [(1, 1, "o")]
    operate(sim, operations(sim).retry)
    assert sim.take() == [(0, 1, "o")]
    sim.ack(0)
    sim.advance(2 * HOUR_MS)
    assert all(offset != 0 for offset, _, _ in sim.take()), "and not once more when it would have been due"


def test_a_message_on_lease_is_not_retried() -> None:
    sim = started()
    with pytest.raises(FailedPrecondition, match="on lease to o: release it"):
        operate(sim, operations(sim).retry)
    assert not sim.broker.effects.changes


def test_a_message_that_was_never_delivered_needs_no_retry() -> None:
    sim = started()
    sim.broker.pause(sim.now_ms, "t", "g", paused=True)
    sim.produce()
    with pytest.raises(FailedPrecondition, match="its first attempt is next"):
        operate(sim, operations(sim).retry, 1)


# Reject and discard


@RESTARTS
def test_a_rejected_message_is_a_dead_letter_with_the_reason_of_the_operator(restart: str) -> None:
    sim = started(2)
    sim.nack(0, reason="boom", delay_ms=HOUR_MS)
    operate(sim, operations(sim).reject, 0, "customer is gone")
    restarted(sim, restart)
    assert [each.error for each in evidence(sim)] == ["boom"], "no worker held it when it was rejected"
    died = letter(sim)
    assert died.last_error == "boom | rejected by an operator: customer is gone"
    assert (died.reason, died.attempts, died.group) == ("rejected_by_operator", 1, "g")
    assert sim.broker.state.dead_lettered == {("t", "rejected_by_operator"): 1}
    assert group(sim).progress[0].lag == 1


def test_the_worker_that_held_a_rejected_message_is_in_the_evidence() -> None:
    sim = started()
    delivered_ms = sim.now_ms
    sim.advance(700)
    operate(sim, operations(sim).reject, 0, "customer is gone")
    said = "rejected by an operator: customer is gone"
    assert evidence(sim) == (Attempt(1, delivered_ms, delivered_ms + 700, "o", said),)


def test_a_message_that_was_never_delivered_can_be_rejected() -> None:
    sim = started()
    sim.broker.pause(sim.now_ms, "t", "g", paused=True)
    sim.produce()
    operate(sim, operations(sim).reject, 1)
    assert (letter(sim).last_error, letter(sim).attempts) == ("rejected by an operator", 0)
    assert evidence(sim) == ()
    sim.broker.pause(sim.now_ms, "t", "g", paused=False)
    sim.commit()
    assert sim.take() == []


def test_what_could_leave_no_dead_letter_is_not_rejected() -> None:
    sim = started(dead_letters=False)
    with pytest.raises(FailedPrecondition, match="discard the message instead"):
        operate(sim, operations(sim).reject)
    sim = started()
    operate(sim, operations(sim).reject)
    sim.attach(group="x", topic="dlq.t")
    with pytest.raises(InvalidArgument, match="never dead-lettered again"):
        operations(sim).reject(sim.now_ms, sim.broker.group("dlq.t", "x"), 0, 0)
    operations(sim).discard(sim.now_ms, sim.broker.group("dlq.t", "x"), 0, 0)
    assert sim.broker.group("dlq.t", "x").progress[0].lag == 0


@RESTARTS
def test_a_discarded_message_is_finished_for_its_group_and_leaves_nothing(restart: str) -> None:
    sim = started(2)
    sim.broker.detach(sim.now_ms, sim.attach(group="other", credit=0))
    operate(sim, operations(sim).discard)
    restarted(sim, restart)
    progress = group(sim).progress[0]
    assert (progress.lag, progress.watermark, list(progress.leases)) == (1, 0, [1])
    assert "dlq.t" not in sim.broker.state.topics
    assert sim.broker.state.dead_lettered == {}
    assert sim.broker.group("t", "other").progress[0].lag == 2


def test_room_that_a_discarded_message_leaves_is_used() -> None:
    sim = started(max_in_flight=1)
    sim.produce(b"next")
    assert sim.take() == []
    operate(sim, operations(sim).discard)
    assert sim.take() == [(1, 1, "o")]


# Leases


@RESTARTS
def test_a_released_message_comes_again_without_a_counted_attempt(restart: str) -> None:
    sim = started()
    if restart:
        sim.broker.detach(sim.now_ms, group(sim).consumers[0])
    operate(sim, operations(sim).release)
    restarted(sim, restart)
    assert sim.take() == [(0, 2, "later" if restart else "o")]
    lease = group(sim).progress[0].leases[0]
    assert (lease.attempts, lease.failures, lease.evidence) == (2, 1, ()), "the second delivery is the first attempt"


def test_the_owner_of_a_released_message_may_finish_it_until_it_is_delivered_again() -> None:
    sim = started()
    sim.broker.detach(sim.now_ms, group(sim).consumers[0])
    operate(sim, operations(sim).release)
    with pytest.raises(FailedPrecondition, match="no longer leased"):
        sim.broker.extend(sim.now_ms, "t", "g", 0, 0, "o")
    sim.ack(0)
    assert group(sim).progress[0].lag == 0


@RESTARTS
def test_a_lease_is_extended_for_its_owner(restart: str) -> None:
    sim = started()
    sim.broker.detach(sim.now_ms, group(sim).consumers[0])
    operate(sim, operations(sim).extend, 0, 3 * HOUR_MS)
    until_ms = sim.now_ms + 3 * HOUR_MS
    restarted(sim, restart)
    sim.advance(2 * HOUR_MS)
    lease = group(sim).progress[0].leases[0]
    assert (lease.owner, lease.until_ms) == ("o", until_ms)
    with pytest.raises(InvalidArgument, match="lease_ms_max"):
        operate(sim, operations(sim).extend, 0, 10**12)


@pytest.mark.parametrize("operation", ["extend", "release"])
def test_what_is_on_lease_to_no_one_cannot_be_extended_or_released(operation: str) -> None:
    sim = started()
    sim.nack(0, delay_ms=HOUR_MS)
    with pytest.raises(FailedPrecondition, match="not on lease in group g"):
        operate(sim, getattr(operations(sim), operation))


def test_all_leases_of_an_owner_are_released_at_once() -> None:
    sim = started(3)
    sim.create("u")
    for topic, name in (("t", "h"), ("u", "g")):
        sim.attach("o", group=name, topic=topic, lease_ms=HOUR_MS)
    sim.produce(topic="u")
    sim.attach("another", group="i", lease_ms=HOUR_MS)
    for each in list(sim.broker.state.groups_by_id.values()):
        for consumer in list(each.consumers):
            sim.broker.detach(sim.now_ms, consumer)
    sim.take()
    counted = operations(sim).release_owner(sim.now_ms, "o", "t", "g")
    assert {(each.topic.name, each.name): count for each, count in counted.items()} == {("t", "g"): 3}
    counted = operations(sim).release_owner(sim.now_ms, "o")
    assert {(each.topic.name, each.name): count for each, count in counted.items()} == {("t", "h"): 3, ("u", "g"): 1}
    assert operations(sim).release_owner(sim.now_ms, "o") == {}
    sim.commit()
    sim.attach("later")
    assert sim.take() == [(0, 2, "later"), (1, 2, "later"), (2, 2, "later")]
    assert operations(sim).totals == {"release": 7}
    with pytest.raises(NotFound):
        operations(sim).release_owner(sim.now_ms, "o", "t", "nowhere")
    with pytest.raises(InvalidArgument, match="name the topic too"):
        operations(sim).release_owner(sim.now_ms, "o", "", "g")


def test_an_owner_that_is_still_connected_has_nothing_released_twice() -> None:
    sim = Simulator()
    sim.create(partitions=2)
    for partition in (0, 1):
        for _ in range(20):
            sim.produce(envelope={"partition_override": partition})
    sim.attach("o", lease_ms=HOUR_MS)
    held = len(sim.take())
    counted = operations(sim).release_owner(sim.now_ms, "o")
    sim.commit()
    assert list(counted.values()) == [held]
    again = sim.take()
    assert len({offset for offset, _, _ in again}) == len(again) == held


def test_a_retry_at_once_does_not_make_an_attempt_of_a_delivery_that_was_none() -> None:
    sim = started()
    sim.nack(0, delay_ms=HOUR_MS, counted=False)
    operate(sim, operations(sim).retry)
    assert [attempts for _, attempts, _ in sim.take()] == [1]


# What there is to help


@pytest.mark.parametrize("operation", ["retry", "reject", "discard", "extend", "release"])
def test_what_is_finished_or_not_there_is_refused(operation: str) -> None:
    sim = started(2)
    sim.ack(0)
    operate_on = getattr(operations(sim), operation)
    with pytest.raises(FailedPrecondition, match="has finished t/0/0"):
        operate(sim, operate_on, 0)
    operations(sim).reject(sim.now_ms, group(sim), 0, 1)
    sim.commit()
    with pytest.raises(FailedPrecondition, match=r"has finished t/0/1: it is a dead letter in dlq\.t"):
        operate(sim, operate_on, 1)
    with pytest.raises(NotFound, match="there is no message t/0/99"):
        operate(sim, operate_on, 99)
    with pytest.raises(NotFound, match="partition out of range"):
        operate_on(sim.now_ms, group(sim), 7, 0)
    assert not sim.broker.effects.changes
