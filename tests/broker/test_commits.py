"""Commits of staged parts, step by step on a clock of their own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from slipstream.broker import (
    Broker,
    BrokerConfig,
    BrokerFull,
    FailedPrecondition,
    InvalidArgument,
    NewMessage,
    Overloaded,
    TopicOverrides,
)
from slipstream.broker.changes import WriterCommitted, decode_changes
from slipstream.record import PublishedBatch
from slipstream.store import MemoryLog

NOW_MS = 1_700_000_000_000
CONFIG = BrokerConfig(staged_ttl_ms=1_000, staged_bytes_max=100, writer_ttl_ms=10_000, writers_max=3)


def broker(config: BrokerConfig = CONFIG) -> Broker:
    made = Broker(config, lambda *_: MemoryLog())
    made.create_topic(NOW_MS, "t", 2)
    made.create_topic(NOW_MS, "u")
    made.effects.changes.clear()
    return made


def messages(*values: bytes) -> list[NewMessage]:
    return [NewMessage(b"", value) for value in values]


def stage(broker: Broker, part_id: str, *values: bytes, at_ms: int = NOW_MS, topic: str = "t", size: int = 1) -> None:
    broker.commits.stage(at_ms, part_id, "w", 1, topic, messages(*values), size)


def values(broker: Broker, topic: str) -> list[bytes]:
    return [p.log.read(index).value for p in broker.topic(topic).partitions for index in range(p.count)]


def changes(broker: Broker) -> Sequence[object]:
    taken, broker.effects.changes = broker.effects.changes, []
    return decode_changes(b"\xdd" + len(taken).to_bytes(4, "big") + b"".join(taken))


def test_a_commit_is_one_batch_for_each_topic_and_the_sequence_behind_them() -> None:
    b = broker()
    stage(b, "1", b"a", b"b")
    stage(b, "2", b"c", topic="u")
    stage(b, "3", b"d")
    assert changes(b) == [], "what is staged is nobody's business"
    assert b.commits.commit(NOW_MS, "w", 1, ["1", "2", "3"])
    first, second, third = changes(b)
    assert isinstance(first, PublishedBatch)
    assert [record.value for _, record in first.messages] == [b"a", b"b", b"d"]
    assert isinstance(second, PublishedBatch)
    assert [record.value for _, record in second.messages] == [b"c"]
    assert third == WriterCommitted("w", 1, NOW_MS)
    assert not b.commits.commit(NOW_MS, "w", 1, ["1"])
    assert changes(b) == []


def test_what_is_committed_becomes_visible_when_it_is_safe() -> None:
    b = broker()
    stage(b, "1", b"a", b"b")
    b.commits.commit(NOW_MS, "w", 1, ["1"])
    assert b.topic("t").partitions[0].committed == 0
    b.committed(b.effects.publications, NOW_MS)
    assert b.topic("t").partitions[0].committed == 2


def test_a_refused_commit_changes_nothing() -> None:
    b = broker(BrokerConfig(backpressure_without_groups=True))
    b.change_topic(NOW_MS, "u", TopicOverrides(max_waiting_messages=2))
    b.effects.changes.clear()
    stage(b, "1", b"a")
    stage(b, "2", b"b", b"c", topic="u")
    stage(b, "3", b"d", topic="u")
    with pytest.raises(InvalidArgument, match="smaller batches"):
        b.commits.commit(NOW_MS, "w", 1, ["1", "2", "3"])
    b.produce(NOW_MS, "u", b"", b"x")
    b.effects.changes.clear()
    with pytest.raises(Overloaded):
        b.commits.commit(NOW_MS, "w", 1, ["1", "2"])
    assert (changes(b), values(b, "t"), values(b, "u")) == ([], [], [b"x"])
    assert b.commits.last(NOW_MS, "w") is None
    assert b.commits.commit(NOW_MS, "w", 1, ["1", "3"])


def test_parts_are_forgotten_after_their_time_and_their_room_is_free() -> None:
    b = broker()
    stage(b, "1", b"a", size=60)
    with pytest.raises(Overloaded):
        stage(b, "2", b"b", size=60, at_ms=NOW_MS + 999)
    stage(b, "2", b"b", size=60, at_ms=NOW_MS + 1_000)
    with pytest.raises(FailedPrecondition):
        b.commits.commit(NOW_MS + 1_000, "w", 1, ["1"])
    assert b.commits.commit(NOW_MS + 1_999, "w", 1, ["2"])
    assert b.commits.parts.bytes == 0


def test_a_writer_is_forgotten_when_it_has_not_committed_for_long() -> None:
    b = broker()
    b.commits.commit(NOW_MS, "w", 7, [])
    b.commits.commit(NOW_MS + 5_000, "v", 1, [])
    assert b.commits.last(NOW_MS + 9_999, "w") == 7
    assert b.commits.last(NOW_MS + 10_000, "w") is None
    assert b.commits.commit(NOW_MS + 10_000, "w", 1, []), "it begins anew"
    assert (b.commits.last(NOW_MS + 10_000, "w"), b.commits.last(NOW_MS + 10_000, "v")) == (1, 1)


def test_only_so_many_writers_are_remembered() -> None:
    b = broker()
    for number in range(3):
        b.commits.commit(NOW_MS + number, f"w{number}", 1, [])
    with pytest.raises(BrokerFull, match="max_writers"):
        b.commits.commit(NOW_MS + 3, "w3", 1, [])
    assert b.commits.commit(NOW_MS + 3, "w2", 2, []), "those that are known go on"
    assert b.commits.commit(NOW_MS + 10_000, "w3", 1, []), "one has been forgotten"


def test_snapshot_and_journal_both_know_how_far_writers_have_come() -> None:
    b = broker(BrokerConfig())
    log: list[bytes] = []
    stage(b, "1", b"a")
    for sequence, parts in ((1, ["1"]), (2, [])):
        b.commits.commit(NOW_MS, "w", sequence, parts)
    log += b.effects.changes
    created = Broker(BrokerConfig(), lambda *_: MemoryLog())
    created.create_topic(NOW_MS, "t", 2)
    created.create_topic(NOW_MS, "u")
    created.replay(decode_changes(b"\xdd" + len(log).to_bytes(4, "big") + b"".join(log)))
    restored = Broker(BrokerConfig(), lambda *_: MemoryLog())
    restored.restore(created.snapshot())
    for each in (created, restored):
        assert each.commits.last(NOW_MS, "w") == 2
        assert not each.commits.commit(NOW_MS, "w", 2, ["1"])
    assert values(created, "t") == [b"a"]


def test_a_snapshot_from_before_there_were_writers_still_reads() -> None:
    *before, writers = msgspec.msgpack.decode(broker().snapshot())
    assert writers == []
    restored = Broker(CONFIG, lambda *_: MemoryLog())
    restored.restore(msgspec.msgpack.encode(before))
    assert list(restored.state.topics) == ["t", "u"]
    assert restored.commits.last(NOW_MS, "w") is None


def test_what_is_taken_back_makes_room() -> None:
    b = broker()
    for part_id in ("1", "2", "3"):
        stage(b, part_id, b"a", size=30)
    b.commits.stage(NOW_MS, "of another commit", "w", 2, "t", messages(b"b"), 5)
    b.commits.stage(NOW_MS, "of another writer", "v", 1, "t", messages(b"c"), 5)
    assert [part.id for part in b.commits.unstage(NOW_MS, "w", 1, ["2", "nothing", "of another commit"])] == ["2"]
    assert b.commits.parts.bytes == 70
    assert [part.id for part in b.commits.unstage(NOW_MS, "w", 1)] == ["1", "3"]
    assert b.commits.unstage(NOW_MS, "w", 1) == []
    assert b.commits.parts.bytes == 10
    with pytest.raises(FailedPrecondition, match="nothing is staged as '1'"):
        b.commits.commit(NOW_MS, "w", 1, ["1"])
    assert b.commits.commit(NOW_MS, "w", 2, ["of another commit"])
    assert b.commits.commit(NOW_MS, "v", 1, ["of another writer"])
    assert b.commits.parts.bytes == 0


def test_another_attempt_takes_the_room_of_those_before_it() -> None:
    b = broker()

    def attempt(name: str, part_id: str, sequence: int = 1) -> None:
        b.commits.stage(NOW_MS, part_id, "w", sequence, "t", messages(part_id.encode()), 40, name)

    attempt("", "0")
    attempt("first", "1")
    attempt("first", "2")
    assert b.commits.parts.bytes == 80, "what counts no attempts is of one before"
    attempt("second", "3")
    attempt("second", "4")
    with pytest.raises(Overloaded):
        attempt("second", "5")
    with pytest.raises(Overloaded):
        attempt("second", "6", sequence=2)
    with pytest.raises(FailedPrecondition, match="another attempt"):
        b.commits.commit(NOW_MS, "w", 1, ["2", "3"])
    assert b.commits.commit(NOW_MS, "w", 1, ["3", "4"])
    assert values(b, "t") == [b"3", b"4"]
    assert b.commits.parts.bytes == 0
    with pytest.raises(InvalidArgument, match="attempt must be"):
        attempt("a b", "7", sequence=2)
