"""Dead letters are found by what happened to them, and sent back once, at a bearable rate, as far as there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest

from slipstream.broker import (
    Broker,
    BrokerConfig,
    BrokerError,
    DeadLetter,
    Delivery,
    Envelope,
    Meta,
    NotFound,
    Partition,
    Topic,
    TopicConfig,
    Unavailable,
)
from slipstream.broker.envelope import encode_meta
from slipstream.engine import (
    ManualClock,
    Redrive,
    Redrives,
    RedriveTask,
    Selection,
    dead_letter_topic,
    dead_letters,
    is_redriven,
    scan,
)
from slipstream.record import LogUnreadable, Record
from slipstream.store.memory import MemoryStore
from tests.store.node import LONG_MS, Running

ResultT = TypeVar("ResultT")

WAITING_MAX = 8


@pytest.fixture
def node() -> Iterator[Running]:
    topic = TopicConfig(max_waiting_messages=1_000, retention_ms=0)
    config = BrokerConfig(topic=topic, lease_ms=LONG_MS, overload_retry_after_ms=20)
    with Running(MemoryStore(), config, ManualClock()) as running:
        running.create("t", 2)
        yield running


def wait_for(node: Running, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    return node.loop.run_until_complete(asyncio.wait_for(work, 30))


def bury(node: Running, count: int, group: str = "g", error: str = "boom", key: bytes = b"user:2") -> None:
    """So many messages more, dead for this group."""
    for number in range(count):
        node.produce("t", b"%d" % number, key)

    found = node.take("t", count, group)

    def reject(broker: Broker, now_ms: int) -> None:
        for delivery in found:
            place = (delivery.partition, delivery.record.offset)
            broker.nack(now_ms, "t", group, *place, "o", error, retryable=False)

    node.perform(reject)


def redrive(node: Running, selection: Selection | None = None, **how: Any) -> Redrive:
    """Runs one to its end."""
    made = Redrive(node.engine, dead_letter_topic(node.engine, "t"), selection or Selection(), **how)
    wait_for(node, made.run())
    return made


def counts(made: Redrive) -> tuple[int, int, int, int]:
    return made.scanned, made.matched, made.redriven, made.skipped


def lengths(node: Running, topic: str = "t") -> list[int]:
    return [partition.count for partition in node.engine.broker.topic(topic).partitions]


# Which


LETTER = DeadLetter(
    original_topic="t",
    original_partition=0,
    original_offset=7,
    group="red",
    attempts=3,
    last_error="Connection REFUSED by db",
    reason="max_attempts",
    routed_at_ms=1_000,
)


@pytest.mark.parametrize(
    ("selection", "matches"),
    [
        (Selection(), True),
        (Selection(group="red"), True),
        (Selection(group="blue"), False),
        (Selection(error="refused"), True),
        (Selection(error="MAX_ATT"), True),
        (Selection(error="timeout"), False),
        (Selection(since_ms=1_000), True),
        (Selection(since_ms=1_001), False),
        (Selection(until_ms=1_001), True),
        (Selection(until_ms=1_000), False),
        (Selection(places=frozenset({(1, 5)})), True),
        (Selection(places=frozenset({(0, 5), (1, 6)})), False),
        (Selection(group="red", error="refused", since_ms=0, until_ms=2_000, places=frozenset({(1, 5)})), True),
        (Selection(group="blue", error="refused"), False),
    ],
)
def test_all_conditions_of_a_selection_must_hold(selection: Selection, matches: bool) -> None:
    record = Record(5, 0, b"", b"", encode_meta(Meta(Envelope(dlq=LETTER))))
    assert selection.matches(1, record) == matches


def test_what_is_no_dead_letter_is_never_selected() -> None:
    assert not Selection().matches(0, Record(0, 0, b"", b"", b""))


def test_the_dead_letters_of_a_topic_go_by_its_name_or_theirs(node: Running) -> None:
    assert dead_letter_topic(node.engine, "t") is None
    with pytest.raises(NotFound, match="there is no topic u"):
        dead_letter_topic(node.engine, "u")
    bury(node, 1)
    assert dead_letter_topic(node.engine, "t") is dead_letter_topic(node.engine, "dlq.t")


# Scanning


async def indexes(node: Running, partition: Partition, first: int = 0) -> list[int]:
    return [index async for index, _ in scan(node.engine, partition, first)]


def test_a_scan_comes_by_every_record_however_few_it_reads_at_a_time(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(node, 10)
    [partition] = [p for p in node.engine.broker.topic("dlq.t").partitions if p.count]
    for limit, value in (("SCAN_RECORDS", 3), ("SCAN_BYTES", 1)):
        monkeypatch.setattr(dead_letters, limit, value)
        assert wait_for(node, indexes(node, partition)) == list(range(10))
        assert wait_for(node, indexes(node, partition, 7)) == [7, 8, 9]


def test_a_scan_goes_on_behind_what_retention_removes_meanwhile(node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "SCAN_RECORDS", 2)
    bury(node, 10)
    [partition] = [p for p in node.engine.broker.topic("dlq.t").partitions if p.count]

    async def scan_while_it_goes() -> list[int]:
        found = []
        async for index, _ in scan(node.engine, partition):
            found.append(index)
            if index == 1:
                await expire(node, partition, 7)
        return found

    assert wait_for(node, scan_while_it_goes()) == [0, 1, 7, 8, 9]


async def expire(node: Running, partition: Partition, end: int) -> None:
    """Retention, up to a record."""
    log = partition.log
    await node.engine.perform(
        lambda broker, now_ms: broker.trim(now_ms, partition, end, log.bytes_before(end), log.read(end - 1).offset + 1)
    )
    node.engine.store.trim(partition.topic.id, partition.number, end)


# Sending back


def test_every_selected_dead_letter_is_sent_back_once_however_often_that_is_asked(node: Running) -> None:
    bury(node, 3, "red")
    bury(node, 2, "blue", key=b"user:1")
    assert counts(redrive(node, Selection(group="blue"))) == (5 + 3, 5, 5, 0)
    assert counts(redrive(node)) == (8, 8, 3, 5)
    assert counts(redrive(node)) == (8, 8, 0, 8)
    assert sum(lengths(node)) == 5 + 8


def test_more_than_fit_one_command_are_sent_in_several(node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "CHUNK", 4)
    bury(node, 10)
    assert counts(redrive(node)) == (10, 10, 10, 0)
    assert sum(lengths(node)) == 20


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_a_redrive_stops_at_its_limit_and_the_next_one_goes_on(
    node: Running, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(dead_letters, "CHUNK", chunk)
    bury(node, 4)
    bury(node, 4, key=b"user:1")
    assert [redrive(node, limit=3).redriven for _ in range(4)] == [3, 3, 2, 0]
    assert sum(lengths(node)) == 16


def test_a_dry_run_counts_and_sends_nothing(node: Running) -> None:
    bury(node, 5)
    before = lengths(node)
    assert redrive(node, dry_run=True).redriven == 5
    assert redrive(node, dry_run=True, limit=2).redriven == 2
    assert lengths(node) == before
    assert redrive(node).redriven == 5


def test_dead_letters_can_be_sent_to_another_topic(node: Running) -> None:
    bury(node, 3)
    node.create("u")
    assert redrive(node, to="u").redriven == 3
    assert node.values("u") == [[b"0", b"1", b"2"]]


def test_a_redrive_does_not_send_back_what_it_has_itself_killed(node: Running) -> None:
    """It ends where the log ended when it came to it, or a message that dies at once would go round for ever."""
    bury(node, 3)
    node.engine.attach("t", "g", "worker", LONG_MS, Worker(node, rejects=True))
    assert redrive(node).redriven == 3
    node.until(lambda: sum(lengths(node, "dlq.t")) == 6)


class Worker:
    """Settles whatever comes."""

    def __init__(self, node: Running, *, rejects: bool = False) -> None:
        self.node = node
        self.rejects = rejects

    def deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.node.engine.run(self, partial(self.settle, delivery))

    def settle(self, delivery: Delivery, broker: Broker, now_ms: int) -> None:
        place = (delivery.partition, delivery.record.offset)
        if self.rejects:
            broker.nack(now_ms, "t", "g", *place, "worker", retryable=False)
        else:
            broker.ack(now_ms, "t", "g", *place, "worker")

    def settled(self, error: BrokerError | None) -> None:
        assert error is None

    def ended(self) -> None: ...


# Room


def crowd(node: Running) -> Topic:
    """Only so many may wait for the group, which nobody reads for now."""
    topic = node.engine.broker.topic("t")
    topic.config = TopicConfig(max_waiting_messages=WAITING_MAX)
    return topic


def test_a_redrive_waits_while_there_is_no_room_and_loses_nothing(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "CHUNK", 5)
    bury(node, 20)
    crowd(node)
    task = start(node)
    node.until(lambda: task.redrive.redriven == WAITING_MAX)
    node.engine.attach("t", "g", "worker", LONG_MS, Worker(node))
    wait_for(node, task.finished())
    assert counts(task.redrive) == (20, 20, 20, 0)
    assert sum(lengths(node)) == 40


def start(node: Running, redrives: Redrives | None = None, **how: Any) -> RedriveTask:
    made = Redrive(node.engine, dead_letter_topic(node.engine, "t"), Selection(), **how)

    async def start_it() -> RedriveTask:
        return (redrives or Redrives(node.engine)).start(made)

    return wait_for(node, start_it())


def test_retention_that_passes_a_waiting_redrive_takes_what_it_takes(node: Running) -> None:
    bury(node, 20)
    crowd(node)
    task = start(node)
    node.until(lambda: task.redrive.redriven == WAITING_MAX)
    [dead] = [p for p in node.engine.broker.topic("dlq.t").partitions if p.count]
    wait_for(node, expire(node, dead, 18))
    for delivery in node.take("t", WAITING_MAX):
        node.ack("t", delivery)
    wait_for(node, task.finished())
    assert (task.error, task.redrive.redriven) == ("", WAITING_MAX + 2)
    assert [is_redriven(dead, index) for index in (17, 18, 19)] == [False, True, True]


# Rate


def jump_over_waiting(loop: Any) -> None:
    """Time passes at once where nothing else happens, and only there: nobody waits for a rate, however slow we are."""
    select, began, passed = loop._selector.select, loop.time(), [0.0]

    def jump(timeout: float | None) -> Any:
        events = select(timeout if timeout is None else min(timeout, 0.0005))
        if not events and timeout is not None and timeout > 0:
            passed[0] += timeout
        return events

    loop._selector.select = jump
    loop.time = lambda: began + passed[0]


@pytest.mark.parametrize(("rate", "at_once"), [(2.0, 1), (50.0, 5), (5_000.0, 100)])
def test_a_redrive_keeps_to_its_rate(node: Running, rate: float, at_once: int) -> None:
    bury(node, 200)
    jump_over_waiting(node.loop)
    began = node.loop.time()
    made = Redrive(node.engine, dead_letter_topic(node.engine, "t"), Selection(), rate=rate)
    wait_long(node, made)
    took = round(node.loop.time() - began, 6)
    least = (200 - at_once) / rate
    assert least <= took < least + 3, "the first are sent at once, and each further one has its time"
    assert made.redriven == 200


def wait_long(node: Running, made: Redrive) -> None:
    node.loop.run_until_complete(asyncio.wait_for(made.run(), 1_000))


def test_what_could_not_be_sent_for_want_of_room_does_not_count_against_the_rate(node: Running) -> None:
    bury(node, WAITING_MAX + 1)
    crowd(node)
    jump_over_waiting(node.loop)
    task = start(node, rate=1.0)
    node.loop.run_until_complete(asyncio.sleep(20))
    assert task.redrive.redriven == WAITING_MAX
    began = node.loop.time()
    for delivery in node.take("t", 1):
        node.ack("t", delivery)
    node.loop.run_until_complete(asyncio.wait_for(task.finished(), 1_000))
    assert task.redrive.redriven == WAITING_MAX + 1
    assert node.loop.time() - began < 0.5, "it looked for room all the time, and paid for none of that"


# What ends it


def test_a_redrive_that_is_cancelled_sends_nothing_more_and_can_be_repeated(node: Running) -> None:
    bury(node, 20)
    crowd(node)
    task = start(node)
    node.until(lambda: task.redrive.redriven == WAITING_MAX)
    wait_for(node, task.cancel())
    assert (task.running, task.cancelled, task.error) == (False, True, "")
    assert task.ended_ms == node.engine.now_ms()
    for delivery in node.take("t", WAITING_MAX):
        node.ack("t", delivery)
    assert sum(lengths(node)) == 20 + WAITING_MAX
    node.engine.broker.topic("t").config = TopicConfig()
    assert redrive(node).redriven == 20 - WAITING_MAX


def test_a_redrive_that_is_cancelled_before_it_began_has_ended(node: Running) -> None:
    bury(node, 1)
    redrives = Redrives(node.engine)

    async def start_and_cancel() -> RedriveTask:
        made = Redrive(node.engine, dead_letter_topic(node.engine, "t"), Selection())
        task = redrives.start(made)
        await task.cancel()
        return task

    task = wait_for(node, start_and_cancel())
    assert not task.running
    assert task.cancelled
    assert task.redrive.redriven == 0


def test_a_redrive_to_a_topic_that_is_gone_fails_and_says_so(node: Running) -> None:
    bury(node, 3)
    node.delete("t")
    task = start(node)
    wait_for(node, task.finished())
    assert not task.running
    assert "topic does not exist" in task.error
    assert task.redrive.redriven == 0


def test_a_redrive_whose_dead_letters_are_deleted_meanwhile_fails_and_says_so(node: Running) -> None:
    bury(node, 20)
    crowd(node)
    task = start(node)
    node.until(lambda: task.redrive.redriven == WAITING_MAX)
    node.delete("dlq.t")
    for delivery in node.take("t", WAITING_MAX):
        node.ack("t", delivery)
    wait_for(node, task.finished())
    assert task.error == "dlq.t was deleted meanwhile, and its dead letters with it"
    assert sum(lengths(node)) == 20 + WAITING_MAX


def test_dead_letters_that_are_deleted_before_they_are_read_are_no_internal_error(
    node: Running, caplog: pytest.LogCaptureFixture
) -> None:
    bury(node, 3)
    topic = dead_letter_topic(node.engine, "t")
    node.delete("dlq.t")
    with pytest.raises(NotFound, match="deleted meanwhile"):
        wait_for(node, Redrive(node.engine, topic, Selection()).run())


def test_what_was_sent_before_one_that_cannot_be_read_is_written_and_counted(node: Running) -> None:
    """The command that sent them must not raise for the one behind them: nobody would write what it did."""
    bury(node, 5)
    [dead] = [p for p in node.engine.broker.topic("dlq.t").partitions if p.count]
    read = dead.log.read

    def damaged(index: int) -> Record:
        if index == 3:
            raise LogUnreadable("the segment does not match its checksum")
        return read(index)

    class Damaged:
        def __getattr__(self, name: str) -> Any:
            return damaged if name == "read" else getattr(log, name)

    log, dead.log = dead.log, Damaged()
    made = Redrive(node.engine, dead.topic, Selection())
    with pytest.raises(Unavailable, match="checksum"):
        wait_for(node, made.run())
    assert made.redriven == 3
    assert not node.engine.broker.effects.changes, "all is in the journal"
    assert [is_redriven(dead, index) for index in range(5)] == [True, True, True, False, False]


def test_redrives_are_found_by_their_number_while_they_run_and_for_a_while_after(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Redrives, "KEPT", 3)
    bury(node, 20)
    crowd(node)
    redrives = Redrives(node.engine)
    running = start(node, redrives)
    ended = []
    for _ in range(5):
        ended.append(start(node, redrives, dry_run=True))
        wait_for(node, ended[-1].finished())
    assert redrives.find(running.id) is running
    assert redrives.find(ended[-1].id) is ended[-1]
    with pytest.raises(NotFound, match="can be started again"):
        redrives.find(ended[0].id)
    assert len(list(redrives.all())) == 3
    assert len({task.id for task in [running, *ended]}) == 6
    wait_for(node, redrives.close())
    assert not running.running
