from __future__ import annotations

import random
from pathlib import Path

import pytest

from slipstream.broker import BrokerConfig, Envelope
from slipstream.engine import ManualClock, Storage
from slipstream.record import Record
from slipstream.store import Durability, MemoryLog, MemoryStore, Store, StoreConfig, StoredLog
from slipstream.store.segment import PageCache, to_records
from tests.store.node import LONG_MS, Inbox, Running

# An engine on it, beside one on a disk: whatever it stands on, it behaves the same.


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return MemoryStore() if request.param == "memory" else Store(tmp_path, StoreConfig())


def test_messages_go_in_and_come_out_and_are_done(store: Storage) -> None:
    with Running(store) as node:
        node.create("t", partitions=2)
        placed = [node.produce("t", b"%d" % number, b"k%d" % number) for number in range(6)]
        assert [place.offset for place in placed] == list(range(6))
        taken = node.take("t", 6)
        assert sorted(delivery.record.value for delivery in taken) == [b"%d" % number for number in range(6)]
        for delivery in taken:
            node.ack("t", delivery)
        assert not any(progress.leases for progress in node.engine.broker.topic("t").groups["g"].progress)


def test_nothing_is_answered_before_the_loop_has_turned(store: Storage) -> None:
    with Running(store) as node:
        node.create("t")
        answer = node.send("t", b"v")
        assert not answer.done
        node.settle(answer)
        assert answer.times == 1


def test_a_key_is_taken_once(store: Storage) -> None:
    with Running(store) as node:
        node.create("t")
        first, second = (node.produce("t", b"v", envelope=Envelope(idempotency_key="k")) for _ in range(2))
        assert (first.offset, second.offset) == (0, 0)
        assert node.values("t") == [[b"v"]]


def test_a_lease_ends_when_the_clock_says_so(store: Storage) -> None:
    clock = ManualClock()
    with Running(store, BrokerConfig(lease_ms=2_000), clock) as node:
        node.create("t")
        node.produce("t", b"v")
        inbox = Inbox()
        node.engine.attach("t", "g", "o", 2_000, inbox)
        node.until(lambda: len(inbox.deliveries) == 1)
        clock.advance(1_999)
        assert len(inbox.deliveries) == 1
        clock.advance(10_000)
        assert len(inbox.deliveries) > 1
        assert inbox.deliveries[1].attempts == 2


@pytest.mark.parametrize("durability", list(Durability))
def test_a_close_answers_everything(durability: Durability) -> None:
    node = Running(MemoryStore(StoreConfig(durability=durability)))
    node.create("t")
    answers = [node.send("t", b"%d" % number) for number in range(5)]
    node.close()
    assert [(answer.times, answer.error) for answer in answers] == [(1, None)] * 5


# Retention and deletion, which give back memory


def test_retention_by_time_takes_each_message_at_its_time() -> None:
    clock, store = ManualClock(), MemoryStore()
    with Running(store, clock=clock) as node:
        node.create("t", retention_ms=LONG_MS // 2)
        node.produce("t", b"old")
        clock.advance(LONG_MS * 3 // 4)
        node.produce("t", b"young")
        clock.advance(LONG_MS // 4)  # every hour is a look at what is past its time
        node.until(lambda: len(store.log(1, 0).records) == 1)
        assert node.values("t") == [[b"young"]]
        partition = node.engine.broker.topic("t").partitions[0]
        assert (partition.first_index, partition.first_bytes) == (1, 3)
        assert [delivery.record.value for delivery in node.take("t", 1)] == [b"young"]


def test_retention_by_size_keeps_at_least_what_it_should() -> None:
    clock, store = ManualClock(), MemoryStore()
    with Running(store, clock=clock) as node:
        node.create("t", retention_bytes=25, retention_ms=0)
        for number in range(10):
            node.produce("t", b"%010d" % number)
        clock.advance(LONG_MS)
        node.until(lambda: len(store.log(1, 0).records) == 3)
        assert node.values("t") == [[b"%010d" % number for number in (7, 8, 9)]]


def test_retention_by_size_leaves_empty_messages_where_there_is_no_limit() -> None:
    clock, store = ManualClock(), MemoryStore()
    with Running(store, clock=clock) as node:
        node.create("t", retention_ms=0)
        node.create("u", retention_ms=0, retention_bytes=1)
        node.produce("t", b"")
        node.produce("u", b"")
        node.produce("u", b"12")
        clock.advance(LONG_MS)
        node.until(lambda: node.values("u") == [[b"12"]])  # of both at once
        assert node.values("t") == [[b""]]


def test_what_a_group_has_not_finished_can_be_held() -> None:
    clock, store = ManualClock(), MemoryStore()
    with Running(store, clock=clock) as node:
        node.create("t", retention_bytes=1, retention_ms=0, hold_unfinished=True)
        for number in range(3):
            node.produce("t", b"%d" % number)
        node.ack("t", node.take("t", 3)[0])
        clock.advance(LONG_MS)
        node.until(lambda: len(store.log(1, 0).records) == 2)
        assert node.values("t") == [[b"1", b"2"]]


def test_a_deleted_topic_leaves_nothing() -> None:
    store = MemoryStore()
    with Running(store) as node:
        for name in ("gone", "stays"):
            node.create(name, partitions=2)
            node.produce(name, b"v")
        store.delete_topic(1)
        with pytest.raises(KeyError):
            store.log(1, 1)
        assert node.values("stays") == [[b"v"], []]
        store.keep_topics({7})
        with pytest.raises(KeyError):
            store.log(2, 0)


# The log


@pytest.mark.parametrize("seed", range(5))
def test_its_log_answers_as_one_on_disk_does(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    memory, stored = MemoryLog(), StoredLog(1, "t", 0, [], PageCache(tmp_path, 8))
    for log in (memory, stored):
        log.start_at(5, 50)
    stored.drop_below(5)
    offset, time_ms = 0, 1_000
    for _ in range(200):
        offset += chance.randrange(1, 4)
        time_ms += chance.choice([-30, 0, 0, 1, 5])
        record = Record(offset, time_ms, b"k" * chance.randrange(3), b"v" * chance.randrange(9))
        memory.append(record)
        stored.append(record)
    for first_index in (5, 6, 100, 205):
        memory.drop_below(first_index)
        stored.drop_below(first_index)
        for offset in range(-1, record.offset + 3):
            assert memory.index_from(offset) == stored.index_from(offset)
            if memory.index_of(offset) is not None:
                assert memory.index_of(offset) == stored.index_of(offset)
        for time_ms in range(0, 1_500, 7):
            assert memory.index_at(time_ms) == stored.index_at(time_ms)
        for index in range(first_index, 206):
            assert memory.bytes_before(index) == stored.bytes_before(index)
        for _ in range(30):
            start, end, limit = chance.randrange(first_index, 206), chance.randrange(0, 220), chance.randrange(-1, 99)
            records = memory.slice(start, end, limit).records()
            assert records == stored.slice(start, end, limit).records()
            assert [r for b in memory.slice(start, end, limit).batches() for r in to_records(b)] == records
    assert memory.records == []
