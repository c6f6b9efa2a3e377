from __future__ import annotations

import math
import random
import shutil
from collections import namedtuple
from pathlib import Path
from typing import TypeVar

import pytest

from slipstream.broker import Broker, BrokerError, Delivery, Progress
from slipstream.engine.salvage import SalvagedState
from slipstream.store import Damaged, DirectoryInUse, builder
from slipstream.store import doctor as module
from slipstream.store.checkpoint import checkpoint_numbers, checkpoint_path, read_checkpoint
from slipstream.store.doctor import CannotRepair, Contents, Diagnosis, Doctor, Severity
from slipstream.store.frame import FILE_HEADER_SIZE, FileHeader, scan_frames
from slipstream.store.journal import journal_path
from tests.chance import chance
from tests.store.node import LONG_MS, Node, content, cut, flip, journals
from tests.store.story import STORY, Story, advance, redrive, tell

LostT = TypeVar("LostT")


def examine(directory: Path) -> Diagnosis:
    before = content(directory)
    with Doctor(directory, SalvagedState) as doctor:
        diagnosis = doctor.examine()
    assert content(directory) == before, "an examination changed the directory"
    return diagnosis


def repair(directory: Path) -> tuple[Diagnosis, Path]:
    before = content(directory)
    with Doctor(directory, SalvagedState) as doctor:
        diagnosis, copy = doctor.repair()
    assert content(copy) == before, "the copy is the directory as it was"
    after = examine(directory)
    assert (after.exit_code, after.findings) == (0, [])
    return diagnosis, copy


def found(diagnosis: Diagnosis, severity: Severity = Severity.DAMAGE) -> list[tuple[str, int]]:
    return [(Path(f.path).name, f.position) for f in diagnosis.findings if f.severity is severity]


def frame_positions(path: Path) -> list[int]:
    data = path.read_bytes()
    return [frame.position for frame in scan_frames(data, FileHeader.decode(path, data).seed)]


def values_of(directory: Path, topic: str = "orders") -> list[list[bytes]]:
    with Node(directory) as node:
        values = node.values(topic)
        node.produce(topic, b"the broker goes on")
        node.compact()
    with Node(directory) as node:
        assert sum(map(len, node.values(topic))) == sum(map(len, values)) + 1
    return values


@pytest.fixture
def journal_only(tmp_path: Path) -> Path:
    """orders 0 … 9, one commit each; then a group reads all of it and finishes 0 … 4."""
    directory = tmp_path / "data"
    with Node(directory) as node:
        node.create("orders")
        for number in range(10):
            node.produce("orders", b"%d" % number)
        for delivery in node.take("orders", 10)[:5]:
            node.ack("orders", delivery)
    return directory


@pytest.fixture
def in_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five segments of ten, the last of them in the journal files too, and five messages in the journal only.

    The group has read 35 messages and finished all but 5, 15, 25 and 34.
    """
    monkeypatch.setattr(builder, "MERGE_BELOW_BYTES", 0)
    directory = tmp_path / "data"
    with Node(directory) as node:
        node.create("orders", max_in_flight=35)
        for number in range(50):
            node.produce("orders", b"%d" % number)
            if number % 10 == 9:
                if number == 39:
                    for delivery in node.take("orders", 35)[:35]:
                        if delivery.record.offset not in {5, 15, 25, 34}:
                            node.ack("orders", delivery)
                node.compact()
        for number in range(50, 55):
            node.produce("orders", b"%d" % number)
    return directory


def segment(directory: Path, first: int) -> Path:
    return directory / f"segments/1-orders/0/{first:016d}-10.arrow"


def numbers(*ranges: range) -> list[list[bytes]]:
    return [[b"%d" % number for part in ranges for number in part]]


def test_a_healthy_directory_is_counted(in_segments: Path) -> None:
    diagnosis = examine(in_segments)
    assert diagnosis.exit_code == 0
    assert diagnosis.contents == Contents(topics=1, groups=1, messages=55)
    assert (diagnosis.journals, diagnosis.checkpoints, diagnosis.segments) == (2, 2, 5)
    assert diagnosis.losses == []


def test_an_empty_directory_is_healthy(tmp_path: Path) -> None:
    assert examine(tmp_path).exit_code == 0


def test_a_directory_in_use_is_left_alone(journal_only: Path) -> None:
    with Node(journal_only), pytest.raises(DirectoryInUse), Doctor(journal_only, SalvagedState):
        pass


def test_a_healthy_directory_is_not_repaired(journal_only: Path) -> None:
    with Doctor(journal_only, SalvagedState) as doctor, pytest.raises(CannotRepair, match="apply every good commit"):
        doctor.repair()
    assert not list(journal_only.parent.glob("*before-repair*"))


def test_a_torn_tail_is_no_damage(journal_only: Path) -> None:
    path = journals(journal_only)[0]
    last = frame_positions(path)[-1]
    cut(path, path.stat().st_size - 1)
    diagnosis = examine(journal_only)
    assert diagnosis.exit_code == 1
    assert found(diagnosis, Severity.TORN) == [(path.name, last)]
    assert diagnosis.losses == []
    repair(journal_only)
    assert values_of(journal_only) == numbers(range(10))


def test_a_file_that_was_being_started_is_no_damage(journal_only: Path) -> None:
    journal_path(journal_only, 2).write_bytes(b"SLIP")
    assert examine(journal_only).exit_code == 1
    repair(journal_only)
    assert values_of(journal_only) == numbers(range(10))


def test_a_damaged_commit_costs_its_own_messages_and_nothing_behind_it(journal_only: Path) -> None:
    path = journals(journal_only)[0]
    position = frame_positions(path)[4]  # the topic, then 0, 1, 2, and this is 3
    flip(path, position + 25)
    diagnosis = examine(journal_only)
    assert diagnosis.exit_code == 2
    assert found(diagnosis) == [(path.name, position)]
    assert "does not match its checksum" in diagnosis.findings[0].reason
    assert "good commits with" in diagnosis.findings[0].reason
    assert [(loss.topic, loss.first_offset, loss.last_offset, loss.messages) for loss in diagnosis.losses][:1] == [
        ("orders", 3, 3, 1)
    ]
    assert repair(journal_only)[0] == diagnosis
    with Node(journal_only) as node:
        assert node.values("orders") == numbers(range(3), range(4, 10))
        progress = node.engine.broker.topic("orders").groups["g"].progress[0]
        assert {offset: lease.index for offset, lease in progress.leases.items()} == {5: 4, 6: 5, 7: 6, 8: 7, 9: 8}
        assert progress.position == 9
        assert node.produce("orders", b"next").offset == 10
        assert [delivery.record.offset for delivery in node.take("orders", 1)] == [10]


def test_messages_whose_delivery_was_lost_are_delivered_again(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Node(directory) as node:
        node.create("orders", max_in_flight=2)
        for number in range(6):
            node.produce("orders", b"%d" % number)
        first = node.take("orders", 2)
        node.engine._flush()
        node.until(lambda: not node.engine._in_journal)
        (path,) = journals(directory)
        before = path.stat().st_size
        for delivery in first:
            node.ack("orders", delivery)
        second = node.take("orders", 2)
        node.engine._flush()
        node.until(lambda: not node.engine._in_journal)
        after = path.stat().st_size
        node.ack("orders", second[0])
        node.take("orders", 1)
    # Everything between the first deliveries and the third ack: acks of 0 and 1, deliveries of 2 and 3.
    path.write_bytes(path.read_bytes()[:before] + bytes(after - before) + path.read_bytes()[after:])
    diagnosis, _ = repair(directory)
    assert diagnosis.exit_code == 2
    with Node(directory) as node:
        assert node.values("orders") == numbers(range(6))
        progress = node.engine.broker.topic("orders").groups["g"].progress[0]
        finished = set(range(progress.position)) - {lease.index for lease in progress.leases.values()}
        assert finished == {2}, "the ack that is left counts; 3 was delivered, never finished, and must come again"
        assert set(progress.leases) == {0, 1, 3, 4}


def test_what_depends_on_a_lost_commit_is_left_out_and_said(journal_only: Path) -> None:
    path = journals(journal_only)[0]
    flip(path, frame_positions(path)[0] + 16)
    diagnosis, _ = repair(journal_only)
    assert diagnosis.contents.topics == 0
    lost = {loss.what: loss.messages for loss in diagnosis.losses}
    assert lost["10 messages of the topic with id 1, whose creation is lost"] == 10
    with Node(journal_only) as node:
        node.create("orders")


def test_a_damaged_newest_checkpoint_costs_nothing(in_segments: Path, tmp_path: Path) -> None:
    with Node(Path(shutil.copytree(in_segments, tmp_path / "whole"))) as node:
        expected = node.state()
    path = checkpoint_path(in_segments, checkpoint_numbers(in_segments)[-1])
    flip(path, 40)
    diagnosis, _ = repair(in_segments)
    assert found(diagnosis) == [(path.name, 20)]
    assert diagnosis.losses == []
    with Node(in_segments) as node:
        assert node.state() == expected
    assert values_of(in_segments) == numbers(range(55))


def test_a_damaged_older_checkpoint_is_only_noted(in_segments: Path) -> None:
    path = checkpoint_path(in_segments, checkpoint_numbers(in_segments)[0])
    flip(path, 40)
    diagnosis = examine(in_segments)
    assert diagnosis.exit_code == 0
    assert found(diagnosis, Severity.NOTE) == [(path.name, 20)]


@pytest.mark.parametrize("missing", [True, False])
def test_a_segment_whose_journal_is_still_there_is_built_again(in_segments: Path, missing: bool) -> None:
    path = segment(in_segments, 40)
    if missing:
        path.unlink()
    else:
        flip(path, 100)
    diagnosis, _ = repair(in_segments)
    assert [name for name, _ in found(diagnosis)] == [path.name]
    assert diagnosis.losses == []
    assert values_of(in_segments) == numbers(range(55))


@pytest.mark.parametrize("missing", [True, False])
def test_a_segment_that_is_gone_costs_its_own_messages_only(in_segments: Path, missing: bool) -> None:
    path = segment(in_segments, 10)
    if missing:
        path.unlink()
    else:
        cut(path, 50)
    diagnosis, _ = repair(in_segments)
    (loss,) = diagnosis.losses
    assert (loss.topic, loss.partition, loss.first_offset, loss.last_offset, loss.messages) == ("orders", 0, 10, 19, 10)
    with Node(in_segments) as node:
        group = node.engine.broker.topic("orders").groups["g"]
        progress = group.progress[0]
        assert group.lost == 1, "15 was not finished"
        assert {offset: lease.index for offset, lease in progress.leases.items()} == {5: 5, 25: 15, 34: 24}
        assert progress.position == 25
        assert progress.done_bytes == sum(len(b"%d" % n) for n in {*range(10), *range(20, 35)} - {5, 25, 34})
    assert values_of(in_segments) == numbers(range(10), range(20, 55))


def test_a_group_in_the_middle_of_a_lost_segment_goes_on_behind_it(in_segments: Path) -> None:
    segment(in_segments, 30).unlink()
    repair(in_segments)
    with Node(in_segments) as node:
        group = node.engine.broker.topic("orders").groups["g"]
        assert group.lost == 6, "34 was on lease; 35 to 39 were not read"
        assert group.progress[0].done_bytes == sum(len(b"%d" % n) for n in set(range(30)) - {5, 15, 25})
        assert node.take("orders", 1)[0].record.offset == 40


def test_several_lost_segments_cost_their_own_messages_only(in_segments: Path) -> None:
    for first in (0, 20):
        segment(in_segments, first).unlink()
    diagnosis, _ = repair(in_segments)
    assert sorted(loss.first_offset or 0 for loss in diagnosis.losses) == [0, 20]
    (number,) = checkpoint_numbers(in_segments)
    for info in read_checkpoint(checkpoint_path(in_segments, number)).segments:
        name = Path(info.path).name
        assert name.startswith(f"{info.first_index:016d}-{info.count}"), "or a later segment takes its name, and place"
    assert values_of(in_segments) == numbers(range(10, 20), range(30, 55))


def test_a_missing_journal_file_costs_what_was_only_there(in_segments: Path) -> None:
    path = journals(in_segments)[-1]
    path.unlink()
    diagnosis, _ = repair(in_segments)
    assert found(diagnosis)[0] == (path.name, 0)
    assert values_of(in_segments) == numbers(range(50))


@pytest.mark.parametrize("position", [2, 9, 14, 22, 38])
def test_a_bad_file_header_costs_nothing(journal_only: Path, position: int) -> None:
    """In turn: magic, version, number, salt, checksum."""
    path = journals(journal_only)[0]
    flip(path, position, 3)
    diagnosis, _ = repair(journal_only)
    assert found(diagnosis) == [(path.name, 0)]
    assert diagnosis.losses == []
    assert values_of(journal_only) == numbers(range(10))


def test_a_closed_file_cut_at_a_commit_is_found(in_segments: Path) -> None:
    checkpoint_path(in_segments, checkpoint_numbers(in_segments)[-1]).unlink()
    path = journals(in_segments)[0]
    last = frame_positions(path)[-1]
    cut(path, last)
    diagnosis, _ = repair(in_segments)
    assert found(diagnosis) == [(path.name, last)]
    assert values_of(in_segments) == numbers(range(49), range(50, 55))
    assert [(loss.first_offset, loss.last_offset) for loss in diagnosis.losses] == [(49, 49)]


def test_what_cannot_be_repaired_is_said_and_left_alone(in_segments: Path) -> None:
    for number in checkpoint_numbers(in_segments):
        flip(checkpoint_path(in_segments, number), 40)
    before = content(in_segments)
    with Doctor(in_segments, SalvagedState) as doctor:
        assert not doctor.examine().repairable
        with pytest.raises(CannotRepair, match="any Arrow reader opens"):
            doctor.repair()
    assert content(in_segments) == before


def test_a_repair_without_room_for_the_copy_is_refused(journal_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(journals(journal_only)[0], FILE_HEADER_SIZE + 20)
    before = content(journal_only)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 99, 1))
    with Doctor(journal_only, SalvagedState) as doctor, pytest.raises(CannotRepair, match="1 are free"):
        doctor.repair()
    assert content(journal_only) == before


def test_a_copy_never_overwrites_another(journal_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(journals(journal_only)[0], FILE_HEADER_SIZE + 20)
    before = content(journal_only)
    monkeypatch.setattr(module, "_copy_path", lambda directory: directory)
    with Doctor(journal_only, SalvagedState) as doctor, pytest.raises(CannotRepair, match="is already there"):
        doctor.repair()
    assert content(journal_only) == before


def test_a_repair_that_was_cut_short_can_be_made_again(in_segments: Path) -> None:
    segment(in_segments, 10).unlink()
    copied = Path(shutil.copytree(in_segments, in_segments.parent / "cut-short"))
    with Doctor(in_segments, SalvagedState) as doctor:
        doctor.repair()
    # Everything but the new checkpoint was written, and nothing removed.
    for path in in_segments.rglob("*"):
        target = copied / path.relative_to(in_segments)
        if path.is_file() and not target.exists() and not path.name.startswith("checkpoint"):
            shutil.copyfile(path, target)
    repair(copied)
    assert values_of(copied) == numbers(range(10), range(20, 55))


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 100))])
def test_whatever_is_damaged_the_broker_starts_after_a_repair_and_nothing_is_made_up(
    in_segments: Path, seed: int
) -> None:
    dice = random.Random(seed)
    for _ in range(dice.choice([1, 1, 2, 4])):
        files = [path for path in in_segments.rglob("*") if path.is_file() and path.name != "LOCK"]
        path = dice.choice(sorted(files))
        how = dice.random()
        if how < 0.6:
            flip(path, dice.randrange(path.stat().st_size), dice.randrange(8))
        elif how < 0.8:
            cut(path, dice.randrange(1, path.stat().st_size))
        else:
            path.unlink()
    diagnosis = examine(in_segments)
    if not diagnosis.exit_code:
        with Node(in_segments) as node:
            assert node.values("orders")[0][:50] == numbers(range(50))[0]
        return
    if diagnosis.exit_code == 1:
        with Node(Path(shutil.copytree(in_segments, in_segments.parent / "started"))):
            pass
    elif not any("does not match its checksum; it holds" in finding.reason for finding in diagnosis.findings):
        with pytest.raises(Damaged):
            Node(in_segments)
    if not diagnosis.repairable:
        return
    repair(in_segments)
    with Node(in_segments) as node:
        if "orders" not in node.engine.broker.state.topics:
            return
        kept = node.values("orders")[0]
        assert kept == sorted(set(kept), key=int), "in order, none twice"
        assert len(kept) == diagnosis.contents.messages
        node.take("orders", 0, group="fresh")


# Everything that can be commanded, with any one commit or segment of it lost


@pytest.fixture(scope="module", params=["forget", "dead letters go"])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, set[bytes]]:
    """Told until a topic is full of everything, or until it is deleted and made anew; and all values ever stored."""
    told = Story(tmp_path_factory.mktemp("story") / "data")
    values: set[bytes] = set()
    with told.node() as node:
        for name in STORY:
            tell(node, told, name)
            for topic in node.engine.broker.state.topics:
                values |= {value for partition in node.values(topic) for value in partition}
            if name == request.param:
                break
    return told, values


def check_and_use(story: Story, directory: Path, values: set[bytes]) -> None:
    """What is left fits together, and all of it can be read, finished, found again and sent back."""
    with story.node(directory) as node:
        for topic in list(node.engine.broker.state.topics.values()):
            for group in topic.groups.values():
                for progress in group.progress:
                    check_progress(progress)
            assert {value for partition in node.values(topic.name) for value in partition} <= values
            for partition in topic.partitions:
                marked = partition.redriven.ranges() if partition.redriven is not None else []
                assert all(end <= partition.count for _, end in marked), "a mark on no dead letter"
        if "t" in node.engine.broker.state.topics:
            if "dlq.t" in node.engine.broker.state.topics:
                redrive(node)
            node.perform(resume_all)
            for name in ("g", "late", "new"):
                finish_all(story, node, name)
        state = story.state(node)
    with story.node(directory) as node:
        assert story.state(node) == state


def resume_all(broker: Broker, now_ms: int) -> None:
    for name in broker.topic("t").groups:
        broker.pause(now_ms, "t", name, paused=False)


def finish_all(story: Story, node: Node, group: str) -> None:
    worker = Worker(node, group)
    node.engine.attach("t", group, "worker", LONG_MS, worker)
    for _ in range(10):
        advance(node, story, LONG_MS)  # leases run out, retries and delayed messages come due
        if not worker.lag:
            return
    pytest.fail(f"{group} is never through: {worker.lag} left")


class Worker:
    """Acks whatever comes."""

    def __init__(self, node: Node, group: str) -> None:
        self.node = node
        self.group = group

    @property
    def lag(self) -> int:
        return sum(progress.lag for progress in self.node.engine.broker.group("t", self.group).progress)

    def deliver(self, deliveries: list[Delivery]) -> None:
        for each in deliveries:
            self.node.engine.ack(self, "t", self.group, each.partition, each.record.offset, "worker")

    def settled(self, error: BrokerError | None) -> None:
        assert error is None

    def ended(self) -> None: ...


def check_progress(progress: Progress) -> None:
    partition, log = progress.partition, progress.partition.log
    held = [*progress.leases.values(), *progress.postponed.values()]
    for lease in held:
        record = log.read(lease.index)
        assert (record.offset, record.size) == (lease.offset, lease.size), "a lease on another message"
        assert partition.first_index <= lease.index < progress.position
    for offset, (index, size) in progress.finished_ahead.items():
        assert (log.read(index).offset, log.read(index).size) == (offset, size)
        assert index >= progress.position
    assert partition.first_index <= progress.position <= partition.count
    ahead = sum(size for _, size in progress.finished_ahead.values())
    assert progress.done_bytes == log.bytes_before(progress.position) - sum(lease.size for lease in held) + ahead


def commits(directory: Path) -> list[tuple[str, int]]:
    """(journal file, position) of all but the last, whose loss would be a torn tail."""
    found = [(path.name, position) for path in journals(directory) for position in frame_positions(path)]
    return found[:-1]


def some_of(found: list[LostT], share: float) -> list[LostT]:
    return chance().sample(found, math.ceil(share * len(found)))


SHARE = pytest.mark.parametrize("share", [0.25, pytest.param(1, marks=pytest.mark.long)])


@SHARE
def test_any_lost_commit_leaves_a_state_that_fits_together(
    story: tuple[Story, set[bytes]], tmp_path: Path, share: float
) -> None:
    told, values = story
    for number, (name, position) in enumerate(some_of(commits(told.directory), share)):
        directory = Path(shutil.copytree(told.directory, tmp_path / str(number)))
        flip(directory / name, position + 16)
        repair(directory)
        check_and_use(Story.at(told, directory), directory, values)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 30))])
def test_several_lost_commits_leave_a_state_that_fits_together(
    story: tuple[Story, set[bytes]], tmp_path: Path, seed: int
) -> None:
    told, values = story
    dice = random.Random(seed)
    directory = Path(shutil.copytree(told.directory, tmp_path / "copy"))
    for name, position in dice.sample(commits(directory), 6):
        flip(directory / name, position + dice.choice([0, 4, 16, 20]))
    repair(directory)
    check_and_use(Story.at(told, directory), directory, values)


@SHARE
@pytest.mark.parametrize("until", ["read again", "forget", "dead letters go"])
def test_any_lost_segment_leaves_a_state_that_fits_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: str, share: float
) -> None:
    monkeypatch.setattr(builder, "MERGE_BELOW_BYTES", 0)
    told = Story(tmp_path / "data")
    values: set[bytes] = set()
    with told.node() as node:
        for name in STORY:
            tell(node, told, name)
            for topic in node.engine.broker.state.topics:
                values |= {value for partition in node.values(topic) for value in partition}
            node.compact()
            if name == until:
                break
        node.compact()
    segments = sorted(name for name in content(told.directory) if name.endswith(".arrow"))
    assert segments
    for number, name in enumerate(some_of(segments, share)):
        directory = Path(shutil.copytree(told.directory, tmp_path / str(number)))
        flip(directory / name, 100)
        repair(directory)
        check_and_use(Story.at(told, directory), directory, values)
