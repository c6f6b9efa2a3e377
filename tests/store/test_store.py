from __future__ import annotations

import errno
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slipstream.api import Place
from slipstream.broker import BrokerConfig, DiskLow, Envelope, NewMessage, RetryPolicy, Unavailable
from slipstream.store import Durability, builder, journal, room
from slipstream.store.journal import journal_numbers
from tests.store.failing_disk import FailingDisk
from tests.store.node import LONG_MS, Answer, Inbox, Node, content, image

NEXT_CENTURY = datetime(2100, 1, 1, tzinfo=UTC)
FOREVER = RetryPolicy(backoff_ms=LONG_MS, max_backoff_ms=LONG_MS)


# Errors of the disk (ruling 12)


@pytest.mark.parametrize(("operation", "number"), [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_after_a_disk_error_nothing_is_acknowledged_and_all_that_was_is_found_again(
    tmp_path: Path, operation: str, number: int
) -> None:
    disk = FailingDisk()
    with Node(tmp_path, disk) as node:
        node.create("orders")
        for value in (b"a", b"b"):
            node.produce("orders", value)
        delivery = node.take("orders", 2)[0]
        node.ack("orders", delivery)
        disk.fail(operation, number)
        waiting = [node.send("orders", b"lost %d" % n) for n in range(3)]
        node.until(lambda: all(answer.done for answer in waiting))
        assert all(isinstance(answer.error, Unavailable) for answer in waiting)
        disk.mend()
        assert node.engine.failure is not None
        with pytest.raises(Unavailable, match="restarted on a good disk"):
            node.produce("orders", b"after")
        with pytest.raises(Unavailable):
            node.create("more")
        with pytest.raises(Unavailable):
            node.ack("orders", delivery)
    with Node(tmp_path) as node:
        assert node.values("orders")[0][:2] == [b"a", b"b"]
        assert b"after" not in node.values("orders")[0]
        assert list(node.engine.broker.topic("orders").groups["g"].progress[0].leases) == [1]


def test_answers_on_their_way_when_the_disk_fails_are_given_once(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Node(tmp_path, disk, durability=Durability.OFF) as node:
        node.create("orders")
        disk.fail("write")
        answer = node.send("orders", b"x")
        node.until(lambda: node.engine.failure is not None)
        assert (answer.error, answer.times) == (None, 1), "off: answered before the disk was asked, and not again"
        refused = Answer()
        with pytest.raises(Unavailable):
            node.engine.produce(refused, "orders", b"", b"y")
        assert refused.times == 0


@pytest.mark.parametrize("durability", list(Durability))
def test_a_full_disk_refuses_writes_until_there_is_room_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    monkeypatch.setattr(journal, "RETRY_S", 0.001)
    disk = FailingDisk()
    with Node(tmp_path, disk, durability=durability) as node:
        node.create("orders")
        node.produce("orders", b"a")
        (delivery,) = node.take("orders", 1)
        disk.fail("half a write", errno.ENOSPC)
        waiting = [node.send("orders", b"later %d" % number) for number in range(2)]
        node.until(lambda: node.engine.trouble is not None)
        for answer in waiting:
            node.until(lambda answer=answer: answer.done)  # type: ignore[misc]
            assert answer.times == 1
            if durability is not Durability.OFF:
                assert isinstance(answer.error, Unavailable)
                assert answer.error.retry_after_ms
        with pytest.raises(Unavailable, match="without a restart"):
            node.produce("orders", b"never")
        with pytest.raises(Unavailable):
            node.ack("orders", delivery)
        with pytest.raises(Unavailable):
            node.create("more")
        disk.mend()
        node.until(lambda: node.engine.trouble is None)
        node.ack("orders", delivery)
        node.produce("orders", b"b")
        expected, values = node.state(), node.values("orders")
        assert values == [[b"a", b"later 0", b"later 1", b"b"]]
        node.compact()
    with Node(tmp_path) as node:
        assert node.values("orders") == values
        assert len(node.state()[0]) == len(expected[0])


def test_a_message_with_a_key_is_stored_once_though_the_disk_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first answer was 503, and it is stored all the same."""
    monkeypatch.setattr(journal, "RETRY_S", 0.001)
    disk = FailingDisk()
    envelope = Envelope(idempotency_key="k")
    with Node(tmp_path, disk) as node:
        node.create("orders")
        disk.fail("write", errno.ENOSPC)
        answer = node.send("orders", b"a", envelope=envelope)
        node.until(lambda: answer.done)
        assert isinstance(answer.error, Unavailable)
        disk.mend()
        node.until(lambda: node.engine.trouble is None)
        assert node.produce("orders", b"a", envelope=envelope).deduplicated
        assert node.values("orders") == [[b"a"]]


def test_leases_that_run_out_while_the_disk_is_full_are_seen_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "RETRY_S", 0.001)
    disk = FailingDisk()
    with Node(tmp_path, disk) as node:
        node.create("orders")
        node.produce("orders", b"a")
        inbox = Inbox()
        node.engine.attach("orders", "g", "o", 50, inbox)
        node.until(lambda: len(inbox.deliveries) == 1)
        disk.fail("write", errno.ENOSPC)
        node.send("orders", b"b")
        node.until(lambda: node.engine.trouble is not None)
        due_ms = node.engine.now_ms() + 60
        node.until(lambda: node.engine.now_ms() > due_ms)
        assert len(inbox.deliveries) == 1
        disk.mend()
        node.until(lambda: len(inbox.deliveries) >= 2)


def test_producers_are_refused_while_the_disk_is_nearly_full_and_acks_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LOOK_S", 0.0)
    disk = FailingDisk()
    disk.free_bytes = 1 << 30
    with Node(tmp_path, disk, disk_free_bytes=100 << 20) as node:
        node.create("orders")
        for value in (b"a", b"b"):
            node.produce("orders", value)
        first = node.take("orders", 1)[0]
        assert node.engine.conditions == []
        disk.free_bytes = 99 << 20
        node.ack("orders", first)
        node.until(lambda: bool(node.engine.conditions))
        with pytest.raises(DiskLow, match="99 MiB are free, 100 MiB are kept for acks"):
            node.produce("orders", b"c")
        with pytest.raises(DiskLow):
            node.engine.stage("w", 1, "orders", [], 0)
        assert node.engine.broker.intake.rejected["disk_low"] == 2
        (condition,) = node.engine.conditions
        assert (condition.kind, condition.level) == ("disk", "error")
        assert str(tmp_path) in condition.detail
        disk.free_bytes = 101 << 20
        node.create("more")
        assert node.engine.conditions, "a little more is needed, or every message would change it"
        disk.free_bytes = 120 << 20
        node.create("more-still")
        node.until(lambda: not node.engine.conditions)
        node.produce("orders", b"c")


@pytest.mark.parametrize(("operation", "number"), [("open", errno.EIO), ("sync_directory", errno.ENOSPC)])
def test_a_rotation_that_fails_stops_the_broker_and_loses_nothing(tmp_path: Path, operation: str, number: int) -> None:
    disk = FailingDisk()
    with Node(tmp_path, disk) as node:
        node.create("orders")
        node.produce("orders", b"a")
        disk.fail(operation, number)
        node.engine._rotate()
        answer = node.send("orders", b"b")
        node.until(lambda: answer.done)
        assert isinstance(answer.error, Unavailable)
        assert node.values("orders")[0][0] == b"a", "what was sealed for the compaction is still readable"
    with Node(tmp_path) as node:
        assert node.values("orders") == [[b"a"]]
        node.compact()
        node.produce("orders", b"b")


def test_a_start_on_a_full_disk_fails_and_lets_go_of_the_directory(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.fail("open", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        Node(tmp_path, disk)
    with Node(tmp_path) as node:
        node.create("orders")


# Group commit and durability


def test_many_commands_share_few_commits(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Node(tmp_path, disk) as node:
        node.create("orders")
        disk.calls.clear()
        answers = [node.send("orders", b"%d" % n) for n in range(500)]
        node.until(lambda: all(answer.done for answer in answers))
        assert disk.calls.count("write") < 10
        assert all(answer.times == 1 for answer in answers)


@pytest.mark.parametrize("durability", list(Durability))
def test_whatever_the_durability_a_clean_stop_keeps_everything(tmp_path: Path, durability: Durability) -> None:
    with Node(tmp_path, durability=durability) as node:
        node.create("orders")
        for number in range(20):
            node.send("orders", b"%d" % number)
        expected = 20
    with Node(tmp_path, durability=durability) as node:
        assert len(node.values("orders")[0]) == expected


@pytest.mark.parametrize("durability", [Durability.ALWAYS, Durability.INTERVAL])
def test_what_was_acknowledged_survives_the_death_of_the_process(tmp_path: Path, durability: Durability) -> None:
    with Node(tmp_path / "data", durability=durability) as node:
        node.create("orders")
        for number in range(5):
            node.produce("orders", b"%d" % number)
        copy = image(node, tmp_path / "crashed")
    with Node(copy) as node:
        assert len(node.values("orders")[0]) == 5


# Rotation


def test_changes_found_at_the_start_count_towards_the_next_rotation(tmp_path: Path) -> None:
    """Or a quiet topic's messages would never reach a segment, and retention never them, after a restart."""
    with Node(tmp_path) as node:
        node.create("orders")
        node.produce("orders", b"x")
    with Node(tmp_path, journal_age_ms=0) as node:
        node.until(lambda: journal_numbers(tmp_path)[-1] >= 2)


def test_what_lies_in_the_journal_becomes_segments_when_nothing_more_comes(tmp_path: Path) -> None:
    with Node(tmp_path, journal_changes=16 * 20, journal_idle_ms=20) as node:
        node.create("orders")
        for number in range(20):
            node.produce("orders", b"%d" % number)
        node.until(lambda: journal_numbers(tmp_path)[-1] >= 2 and node.store.compactor.backlog == 0)
        assert node.values("orders") == [[b"%d" % number for number in range(20)]]


def test_a_little_stays_in_the_journal_though_nothing_more_comes(tmp_path: Path) -> None:
    with Node(tmp_path, journal_changes=16 * 20, journal_bytes=1 << 20, journal_idle_ms=1 << 40) as node:
        node.create("orders")
        node.produce("orders", b"x")
        before = journal_numbers(tmp_path)
        for _ in range(3):
            node.engine._check_idle()
        assert journal_numbers(tmp_path) == before
        assert node.store.journal_changes > 0


def test_each_message_of_a_batch_found_at_the_start_counts(tmp_path: Path) -> None:
    """It takes as long to apply as one that came alone; what is applied at a start is limited by this number."""
    messages = [NewMessage(b"", b"v")] * 10
    with Node(tmp_path) as node:
        node.create("orders")
        node.perform(lambda broker, now_ms: broker.produce_batch(now_ms, "orders", messages))
        places = [Place(taken.partition, taken.record.offset) for taken in node.take("orders", 10)]
        node.perform(lambda broker, now_ms: broker.ack_batch(now_ms, "orders", "g", places, "o"))
        before = node.store.journal_changes
        assert before > 30
    with Node(tmp_path) as node:
        assert node.store.journal_changes == before


def test_a_deadline_on_its_way_to_the_journal_is_in_the_snapshot(tmp_path: Path) -> None:
    with Node(tmp_path, journal_bytes=200) as node:
        node.create("orders")
        node.produce("orders", b"x" * 300, envelope=Envelope(deadline=NEXT_CENTURY))
        node.until(lambda: node.store.compactor.backlog == 0)
        assert journal_numbers(tmp_path)[-1] >= 2
    with Node(tmp_path) as node:
        assert [due_ms for due_ms, *_ in node.engine.broker.state.deadlines] == [NEXT_CENTURY.timestamp() * 1000]


# Retention (ruling 17)


@pytest.fixture
def unmerged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MERGE_BELOW_BYTES", 0)


def in_segments(node: Node, count: int = 4, **config: Any) -> None:
    """`count` segments of ten messages of ten bytes; the group has the first fifteen and finished the first five."""
    node.create("orders", max_in_flight=15, **config)
    for segment in range(count):
        for number in range(10):
            node.produce("orders", b"%08d.%d" % (segment, number))
        node.compact()
    for delivery in node.take("orders", 15)[:5]:
        node.ack("orders", delivery)


def segment_files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "segments").glob("*/*/*"))


def later(node: Node, monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    now_ms = node.engine.now_ms() + ms
    monkeypatch.setattr(node.engine, "now_ms", lambda: now_ms)


@pytest.mark.usefixtures("unmerged")
def test_retention_by_time_drops_whole_segments_and_counts_what_groups_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Node(tmp_path) as node:
        in_segments(node, retention_ms=60_000)
        node.trim("orders")
        assert len(segment_files(tmp_path)) == 4, "nothing is old yet"
        later(node, monkeypatch, 61_000)
        node.produce("orders", b"young")
        node.trim("orders")
        group = node.engine.broker.topic("orders").groups["g"]
        assert group.lost == 35
        assert group.progress[0].position == 40
        assert node.values("orders") == [[b"young"]]
        expected = node.state()
    assert segment_files(tmp_path) == []
    with Node(tmp_path) as node:
        assert node.state() == expected
        assert node.values("orders") == [[b"young"]]


@pytest.mark.usefixtures("unmerged")
def test_retention_by_size_keeps_at_least_what_it_should(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        in_segments(node, retention_bytes=250, retention_ms=0)
        node.trim("orders")
        assert len(node.values("orders")[0]) == 30, "three segments: two would be less than 250 bytes"
        assert len(segment_files(tmp_path)) == 3
        assert node.engine.broker.topic("orders").groups["g"].lost == 5


def test_retention_by_size_leaves_empty_messages_where_there_is_no_limit(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders", retention_ms=0)
        node.produce("orders", b"")
        node.compact()
        assert len(segment_files(tmp_path)) == 1
        node.trim("orders")
        assert node.values("orders") == [[b""]]


@pytest.mark.usefixtures("unmerged")
def test_a_topic_can_hold_what_a_group_has_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Node(tmp_path) as node:
        in_segments(node, retention_ms=1000, hold_unfinished=True)
        later(node, monkeypatch, 2000)
        node.trim("orders")
        assert len(node.values("orders")[0]) == 40
        for delivery in node.take("orders", 0, owner="o"):
            node.ack("orders", delivery)
        for offset in range(5, 10):
            answer = Answer()
            node.engine.ack(answer, "orders", "g", 0, offset, "o")
            node.settle(answer)
        node.trim("orders")
        assert len(node.values("orders")[0]) == 30
        assert node.engine.broker.topic("orders").groups["g"].lost == 0


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("left", range(5))
def test_a_crash_while_retention_removes_files_changes_nothing(tmp_path: Path, left: int) -> None:
    """The journal says so; of the four files `left` are still there."""
    directory = tmp_path / "data"
    with Node(directory) as node:
        in_segments(node, retention_bytes=1, retention_ms=0)
        node.produce("orders", b"tail")
        before = content(directory)
        node.trim("orders")
        expected, values = node.state(), node.values("orders")
        copy = image(node, tmp_path / "crashed")
    for name in [name for name in before if name.startswith("segments/")][4 - left :]:
        (copy / name).write_bytes(before[name])
    with Node(copy) as node:
        assert node.state() == expected
        assert node.values("orders") == values
        node.until(lambda: segment_files(copy) == [])
        node.compact()
    with Node(copy) as node:
        assert node.values("orders") == values


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("durability", list(Durability))
def test_files_are_removed_only_when_the_journal_that_says_so_is_synced(tmp_path: Path, durability: Durability) -> None:
    disk = FailingDisk()
    with Node(tmp_path, disk, durability=durability, sync_interval_ms=LONG_MS) as node:
        in_segments(node, retention_bytes=1, retention_ms=0)
        disk.calls.clear()
        node.trim("orders")
        node.until(lambda: any(call.startswith("remove") for call in disk.calls))
        first_removal = next(n for n, call in enumerate(disk.calls) if call.startswith("remove"))
        last_write = max(n for n, call in enumerate(disk.calls[:first_removal]) if call == "write")
        assert "sync" in disk.calls[last_write:first_removal]


@pytest.mark.parametrize("trim_first", [False, True])
def test_trimming_and_merging_do_not_get_in_each_others_way(tmp_path: Path, trim_first: bool) -> None:
    with Node(tmp_path) as node:
        node.create("orders", retention_bytes=1, retention_ms=0)
        for _ in range(3):
            for number in range(10):
                node.produce("orders", b"%d" % number)
            if trim_first:
                node.trim("orders")
            node.compact()
            node.produce("orders", b"more")
            node.trim("orders")
        expected, values = node.state(), node.values("orders")
    for _ in range(2):
        with Node(tmp_path) as node:
            assert node.state() == expected
            assert node.values("orders") == values


# Everything together


@pytest.mark.parametrize("seed", range(6))
def test_what_is_recovered_is_what_was_there(tmp_path: Path, seed: int) -> None:
    """A few hundred random commands, with rotations, compactions and restarts all the time."""
    chance = random.Random(seed)
    directory = tmp_path / "data"
    config = BrokerConfig(lease_ms=LONG_MS)
    node = Node(directory, broker=config, journal_bytes=3000)
    try:
        node.create("orders", partitions=3, retry=FOREVER)
        node.create("jobs", retry=RetryPolicy(max_attempts=1), retention_bytes=2000, retention_ms=0)
        held: list[tuple[str, str, Any]] = []
        for step in range(400):
            topic = chance.choice(["orders", "jobs"])
            action = chance.random()
            if action < 0.55:
                envelope = None
                if chance.random() < 0.3:
                    deadline = NEXT_CENTURY if chance.random() < 0.5 else None
                    envelope = Envelope(idempotency_key=f"k{chance.randrange(30)}", deadline=deadline)
                answer = Answer()
                try:
                    key, value = b"u%d" % chance.randrange(9), chance.randbytes(chance.randrange(80))
                    node.engine.produce(answer, topic, key, value, envelope)
                except Exception as error:  # noqa: BLE001 - a key under way, or the compactor behind: wait for it
                    assert type(error).__name__ in {"InProgress", "Overloaded"}
                    _quiet(node)
                    continue
                if chance.random() < 0.5:
                    node.settle(answer)
            elif action < 0.7:
                group = chance.choice(["g", "h"])
                held += [(topic, group, delivery) for delivery in node.take(topic, 0, group)]
            elif action < 0.93 and held:
                topic, group, delivery = held.pop(chance.randrange(len(held)))
                arguments = (topic, group, delivery.partition, delivery.record.offset, "o")
                answer = Answer()
                try:
                    if chance.random() < 0.7:
                        node.engine.ack(answer, *arguments)
                    else:
                        node.engine.nack(answer, *arguments, "no")
                except Exception as error:  # noqa: BLE001 - retention may have taken it
                    assert type(error).__name__ in {"InvalidArgument", "FailedPrecondition"}, error
            elif action < 0.96:
                node.trim("jobs")
            elif step:
                expected = _restart_state(node)
                node = Node(directory, broker=config, journal_bytes=3000)
                assert node.state() == expected, f"after step {step}"
        values = {name: node.values(name) for name in node.engine.broker.state.topics}
        expected = _restart_state(node)
        node = Node(directory, broker=config)
        assert node.state() == expected
        assert {name: node.values(name) for name in node.engine.broker.state.topics} == values
        assert journal_numbers(directory)[-1] > 5, "it rotated"
    finally:
        node.close()


def _restart_state(node: Node) -> Any:
    _quiet(node)
    state = node.state()
    node.close()
    return state


def _quiet(node: Node) -> None:
    node.engine._flush()
    node.until(lambda: node.store.compactor.backlog == 0 and not node.engine._in_journal)
