"""When things happen: what is on disk before it is answered, delivered after what, and what an end leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from slipstream.broker import (
    BrokerConfig,
    BrokerError,
    Consumer,
    Delivery,
    Envelope,
    FailedPrecondition,
    Overloaded,
    TopicConfig,
    Unavailable,
)
from slipstream.store import Disk, Durability
from slipstream.store.journal import journal_path
from tests.store.node import LONG_MS, Answer, Inbox, Node


class GatedDisk(Disk):
    """While `gate` is closed, a sync does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.syncs = 0
        self.waiting = threading.Event()

    def sync(self, fd: int) -> None:
        self.waiting.set()
        assert self.gate.wait(30), "nobody opened the gate"
        super().sync(fd)
        self.syncs += 1

    def close_gate(self) -> None:
        self.waiting.clear()
        self.gate.clear()


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


def turn(node: Node, times: int = 20) -> None:
    """Lets the loop run without waiting for anything in particular."""
    left = iter(range(times))
    node.until(lambda: next(left, None) is None)


def ordered(order: list[str], name: str) -> Answer:
    class Ordered(Answer):
        def settled(self, error: BrokerError | None) -> None:
            super().settled(error)
            order.append(name)

    return Ordered()


# Durability always


def test_nothing_is_answered_before_it_is_on_disk(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk) as node:
        node.create("t")
        node.produce("t", b"first")
        [first] = node.take("t", 1)
        disk.close_gate()
        produced, acked, created = node.send("t", b"second"), Answer(), Answer()
        node.engine.ack(acked, "t", "g", 0, first.record.offset, "o")
        node.engine.create_topic(created, "u")
        node.until(disk.waiting.is_set)
        turn(node)
        assert not (produced.done or acked.done or created.done), "answered while the sync was under way"
        disk.gate.set()
        for answer in (produced, acked, created):
            node.settle(answer)


def test_a_nack_is_not_answered_before_it_is_on_disk(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk) as node:
        node.create("t")
        node.produce("t", b"v")
        [delivery] = node.take("t", 1)
        disk.close_gate()
        answer = Answer()
        node.engine.nack(answer, "t", "g", 0, delivery.record.offset, "o", "boom")
        node.until(disk.waiting.is_set)
        turn(node)
        assert not answer.done
        disk.gate.set()
        node.settle(answer)


def test_a_second_ack_is_not_answered_before_the_first_is_on_disk(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk) as node:
        node.create("t")
        node.produce("t", b"v")
        [delivery] = node.take("t", 1)
        disk.close_gate()
        first, second = Answer(), Answer()
        node.engine.ack(first, "t", "g", 0, delivery.record.offset, "o")
        node.until(disk.waiting.is_set)
        node.engine.ack(second, "t", "g", 0, delivery.record.offset, "o")
        turn(node)
        assert not second.done, "it would be redelivered after a crash now"
        disk.gate.set()
        node.settle(second)
        assert first.done


def test_a_message_is_delivered_only_when_it_is_on_disk(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk) as node:
        node.create("t")
        inbox = Inbox()
        node.engine.attach("t", "g", "o", LONG_MS, inbox)
        turn(node)
        disk.close_gate()
        answer = node.send("t", b"v")
        node.until(disk.waiting.is_set)
        turn(node)
        assert inbox.deliveries == []
        disk.gate.set()
        node.settle(answer)
        node.until(lambda: [d.record.value for d in inbox.deliveries] == [b"v"])


def test_a_delivery_does_not_wait_for_the_disk(tmp_path: Path, disk: GatedDisk) -> None:
    """It only keeps owner and attempts across a restart; a consumer need not wait for that."""
    with Node(tmp_path, disk) as node:
        node.create("t")
        node.produce("t", b"v")
        syncs = disk.syncs
        node.take("t", 1)
        turn(node)
        assert disk.syncs == syncs


def test_answers_come_in_the_order_of_the_commands_across_batches(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk) as node:
        node.create("t")
        disk.close_gate()
        order: list[str] = []
        names = [f"{batch}.{number}" for batch in range(5) for number in range(3)]
        for name in names:
            node.engine.produce(ordered(order, name), "t", b"", name.encode())
            turn(node, 2)
        assert order == []
        disk.gate.set()
        node.until(lambda: len(order) == len(names))
        assert order == names
        assert node.values("t") == [[name.encode() for name in names]]


def test_what_comes_while_the_disk_is_busy_shares_one_sync(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk) as node:
        node.create("t")
        turn(node)
        disk.close_gate()
        syncs = disk.syncs
        answers = []
        for _ in range(50):
            answers.append(node.send("t", b"v"))
            turn(node, 1)
        disk.gate.set()
        for answer in answers:
            node.settle(answer)
        assert disk.syncs - syncs <= 3, "one under way, one to go on with, one for all the rest"


def test_a_key_is_pending_until_its_message_is_on_disk(tmp_path: Path, disk: GatedDisk) -> None:
    """Ruling 8: a duplicate is not told that a message is stored which a crash may still lose."""
    with Node(tmp_path, disk) as node:
        node.create("t")
        disk.close_gate()
        first = node.send("t", b"v", envelope=Envelope(idempotency_key="k"))
        node.until(disk.waiting.is_set)
        with pytest.raises(FailedPrecondition):
            node.send("t", b"v", envelope=Envelope(idempotency_key="k"))
        disk.gate.set()
        node.settle(first)
        assert node.produce("t", b"v", envelope=Envelope(idempotency_key="k")).deduplicated
        assert node.values("t") == [[b"v"]]


# The other durabilities


def test_interval_answers_when_it_is_written_and_syncs_later(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk, durability=Durability.INTERVAL, sync_interval_ms=LONG_MS) as node:
        node.create("t")  # the first write is past the interval since the beginning of time
        syncs = disk.syncs
        disk.close_gate()
        node.produce("t", b"value in the file")
        assert b"value in the file" in journal_path(tmp_path, 1).read_bytes(), "it survives the death of the process"
        assert disk.syncs == syncs
        disk.gate.set()


def test_interval_syncs_even_when_nothing_more_comes(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk, durability=Durability.INTERVAL, sync_interval_ms=50) as node:
        node.create("t")
        node.produce("t", b"v")
        node.until(lambda: not node.store.journal._unsynced)


def test_off_answers_at_once_and_writes_soon(tmp_path: Path, disk: GatedDisk) -> None:
    with Node(tmp_path, disk, durability=Durability.OFF) as node:
        node.create("t")
        syncs = disk.syncs
        answer = node.send("t", b"value in the file")
        node.engine._flush()
        assert answer.done, "nobody waits for the journal"
        node.until(lambda: b"value in the file" in journal_path(tmp_path, 1).read_bytes())
        assert disk.syncs == syncs


# Faults of one


def test_an_answer_that_fails_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    class Broken(Answer):
        def settled(self, error: BrokerError | None) -> None:
            raise RuntimeError("the connection is in a bad way")

    with Node(tmp_path) as node:
        node.create("t")
        node.engine.produce(Broken(), "t", b"", b"1")
        node.settle(node.send("t", b"2"))
        node.settle(node.send("t", b"3"))
        assert node.values("t") == [[b"1", b"2", b"3"]]


def test_a_consumer_that_fails_keeps_nothing_from_the_others(tmp_path: Path) -> None:
    class Broken(Inbox):
        def deliver(self, deliveries: list[Delivery]) -> None:
            raise RuntimeError("the stream is in a bad way")

    with Node(tmp_path) as node:
        node.create("t")
        node.engine.attach("t", "broken", "o", LONG_MS, Broken())
        inbox = Inbox()
        node.engine.attach("t", "whole", "o", LONG_MS, inbox)
        node.produce("t", b"1")
        node.produce("t", b"2")
        node.until(lambda: [d.record.value for d in inbox.deliveries] == [b"1", b"2"])


# Flow control


def test_a_stream_that_does_not_read_is_given_one_window_and_no_more(tmp_path: Path) -> None:
    class Full(Inbox):
        """As a connection does whose buffer is full: it closes the consumer while it is being served."""

        consumer: Consumer

        def deliver(self, deliveries: list[Delivery]) -> None:
            super().deliver(deliveries)
            self.consumer.open = False

    config = BrokerConfig(stream_window_bytes=1_000, topic=TopicConfig(max_in_flight=0), pace_streams=False)
    with Node(tmp_path, broker=config) as node:
        node.create("t")
        for _ in range(50):
            node.produce("t", b"x" * 100)
        full = Full()
        full.consumer = node.engine.attach("t", "g", "o", LONG_MS, full)
        turn(node)
        assert len(full.deliveries) == 10
        node.engine.reopen(full.consumer)
        turn(node)
        assert len(full.deliveries) == 20


def test_a_stream_that_reads_gets_everything_window_by_window(tmp_path: Path) -> None:
    config = BrokerConfig(stream_window_bytes=1_000, topic=TopicConfig(max_in_flight=0), pace_streams=False)
    with Node(tmp_path, broker=config) as node:
        node.create("t", max_in_flight=0)
        for number in range(55):
            node.produce("t", b"%0100d" % number)
        taken = node.take("t", 55)
        assert [d.record.offset for d in taken] == list(range(55))


# Rotation by age


def test_a_rotation_while_the_journal_is_busy_writes_nothing_twice(tmp_path: Path, disk: GatedDisk) -> None:
    """What waits for its turn is in the snapshot already; written behind it, a restart would apply it again."""
    with Node(tmp_path, disk, journal_age_ms=0) as node:
        node.create("t")
        disk.close_gate()
        answers = []
        for number in range(10):
            answers.append(node.send("t", b"%d" % number))
            turn(node, 2)
        node.engine._check_retention()
        disk.gate.set()
        for answer in answers:
            node.settle(answer)
        node.until(lambda: node.store.compactor.backlog == 0 or node.store.compactor.error is not None)
        assert node.store.compactor.error is None
        expected = node.values("t")
    with Node(tmp_path) as node:
        assert node.values("t") == expected == [[b"%d" % number for number in range(10)]]


# The end


@pytest.mark.parametrize("durability", list(Durability))
def test_a_close_answers_everything_once(tmp_path: Path, durability: Durability) -> None:
    node = Node(tmp_path, durability=durability)
    node.create("t")
    answers = []
    for number in range(30):
        answers.append(node.send("t", b"%d" % number))
        if number % 3 == 0:
            turn(node, 1)
    node.close()
    assert [(answer.times, answer.error) for answer in answers] == [(1, None)] * 30
    with Node(tmp_path) as again:
        assert again.values("t") == [[b"%d" % number for number in range(30)]]


def test_a_request_that_starts_when_the_last_one_is_answered_is_refused_not_forgotten(tmp_path: Path) -> None:
    """As a pipelined request does."""
    node = Node(tmp_path)
    node.create("t")
    refused: list[BrokerError] = []

    class Pipelined(Answer):
        def settled(self, error: BrokerError | None) -> None:
            super().settled(error)
            try:
                node.engine.produce(Answer(), "t", b"", b"next")
            except BrokerError as refusal:
                refused.append(refusal)

    node.engine.produce(Pipelined(), "t", b"", b"last")
    node.close()
    assert isinstance(refused[0], Unavailable)
    with Node(tmp_path) as again:
        assert again.values("t") == [[b"last"]]


def test_nothing_is_delivered_that_a_close_did_not_write(tmp_path: Path, disk: GatedDisk) -> None:
    node = Node(tmp_path, disk)
    node.create("t")
    inbox = Inbox()
    node.engine.attach("t", "g", "o", LONG_MS, inbox)
    node.send("t", b"v")
    node.close()
    held = [d.record.offset for d in inbox.deliveries]
    with Node(tmp_path) as again:
        leases = again.engine.broker.topic("t").groups["g"].progress[0].leases
        assert sorted(leases) == held, "a lease on what nobody was sent, or none on what was sent"


def test_with_durability_off_a_disk_that_does_not_keep_up_makes_producers_wait(
    tmp_path: Path, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would: the queue before the journal would grow for as long as there is memory."""
    written = threading.Event()

    def write(fd: int, parts: Sequence[bytes]) -> None:
        assert written.wait(30)
        Disk.write(disk, fd, parts)

    with Node(tmp_path, disk, durability=Durability.OFF, journal_queue_bytes=10_000) as node:
        node.create("t")
        monkeypatch.setattr(disk, "write", write)
        with pytest.raises(Overloaded, match="the disk does not keep up"):
            for _ in range(100):
                node.send("t", b"x" * 1_000)
                node.engine._submit_now()
                turn(node)
        written.set()
        node.until(lambda: not node.store.behind)
        node.produce("t", b"again")
