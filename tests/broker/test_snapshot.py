"""What a snapshot holds, and snapshots of earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from slipstream.broker import FailedPrecondition
from tests.broker.simulator import Simulator


def altered(sim: Simulator, alter: Callable[[list[Any]], object]) -> None:
    """Start again from a snapshot that is changed before."""
    sim.checkpoint()
    assert sim.snapshot is not None
    image = msgspec.msgpack.decode(sim.snapshot, strict=False)
    alter(image)
    sim.snapshot = msgspec.msgpack.encode(image)
    sim.crash()


def dead_letters_over_partitions(count: int = 60) -> Simulator:
    """All messages of a topic with three partitions are dead-lettered, but for the last."""
    sim = Simulator()
    sim.create(partitions=3)
    for number in range(count):
        sim.produce(key=b"%d" % number)
    sim.attach()
    for delivery in sim.delivered:  # more come while these are settled
        if delivery.record.offset < count - 1:
            sim.nack(delivery.record.offset, partition=delivery.partition, retryable=False)
    return sim


def late_acks(sim: Simulator) -> list[int]:
    """Ack every message; return the offsets of those that were refused because they are dead-lettered."""
    refused = []
    for partition in sim.broker.topic("t").partitions:
        for index in range(partition.count):
            offset = partition.log.read(index).offset
            try:
                sim.ack(offset, partition=partition.number)
            except FailedPrecondition as error:
                assert "already dead-lettered" in error.message
                refused.append(offset)
    return sorted(refused)


def test_dead_letters_in_a_row_take_one_range_of_a_snapshot_however_many_partitions_there_are() -> None:
    """Offsets count per topic: in a partition those of neighbours are rarely next to each other."""
    sim = dead_letters_over_partitions()
    dead: list[list[Any]] = []
    altered(sim, lambda image: dead.extend(progress[-1] for progress in image[0][0][6][0][4]))
    assert [len(ranges) for ranges in dead] == [1, 1, 1]
    assert late_acks(sim) == list(range(59))


def test_a_group_that_is_sent_back_may_ack_what_was_dead_lettered_behind_that_place() -> None:
    sim = dead_letters_over_partitions()
    sim.broker.seek(sim.now_ms, "t", "g", lambda partition: partition.log.index_from(30))
    sim.commit()
    assert late_acks(sim) == list(range(30))


def test_a_snapshot_with_offsets_of_dead_letters_opens() -> None:
    sim = dead_letters_over_partitions()

    def alter(image: list[Any]) -> None:
        for progress, partition in zip(image[0][0][6][0][4], sim.broker.topic("t").partitions, strict=True):
            [(start, end)] = progress.pop()
            offsets = [partition.log.read(index).offset for index in range(start, end)]
            progress[-1] = [(offset, offset + 1) for offset in offsets]

    altered(sim, alter)
    assert late_acks(sim) == list(range(59))


@pytest.mark.parametrize("is_held", [False, True])
def test_a_snapshot_with_deadlines_without_offsets_opens(is_held: bool) -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    for _ in range(2):
        sim.produce(envelope={"deadline": "1970-01-01T00:30:00Z"})
    sim.attach(credit=3 if is_held else 0)
    if is_held:
        sim.ack(1)
        sim.nack(2, delay_ms=3_600_000)

    def alter(image: list[Any]) -> None:
        assert [deadline.pop() for deadline in image[3]] == [1, 2]

    altered(sim, alter)
    sim.advance(1_000_000)
    assert sim.broker.state.dead_lettered == {("t", "deadline_exceeded"): 1 if is_held else 2}
