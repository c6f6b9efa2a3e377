"""A restart finds what was commanded: whatever it was, at whatever moment the crash came, compacted or not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from slipstream.broker import Broker, BrokerConfig, Envelope, NewMessage, Partition, RetryPolicy, TopicOverrides
from slipstream.engine import ManualClock
from tests.store.node import LONG_MS, Answer, Inbox, Node, image

START_MS = 1_700_000_000_000
CONFIG = BrokerConfig(lease_ms=LONG_MS, delayed_max=3)

Step: TypeAlias = Callable[[Node], object]


class Story:
    """On a clock of its own, whatever happens to the process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ms = START_MS

    def node(self, directory: Path | None = None) -> Node:
        self.clock = ManualClock(self.now_ms)
        node = Node(directory or self.directory, broker=CONFIG, clock=self.clock)
        node.engine._flush()  # what the first turn of the loop does: the clock is set
        return node

    def state(self, node: Node) -> Any:
        """Without deadlines that have passed: they come up once more after a restart, and find nothing to do."""
        state = node.state()
        state[3] = [deadline for deadline in state[3] if deadline[0] > self.now_ms]
        return state


def batch(*keys: bytes, once: str = "", in_ms: int | None = None) -> list[NewMessage]:
    due_ms = None if in_ms is None else START_MS + in_ms
    return [NewMessage(key, b"v-" + key, Envelope(idempotency_key=once) if once else None, None, due_ms) for key in keys]


def produce(*keys: bytes, once: str = "", in_ms: int | None = None, key: str = "") -> Step:
    messages = batch(*keys, once=once, in_ms=in_ms)
    return lambda node: node.perform(lambda broker, now_ms: broker.produce_batch(now_ms, "t", messages, key))


def with_deadline(in_ms: int) -> Step:
    envelope = Envelope(deadline=dt.datetime.fromtimestamp((START_MS + in_ms) / 1000, dt.UTC))
    return lambda node: node.produce("t", b"mortal", b"d", envelope)


def settle(what: str, *offsets: int, **how: object) -> Step:
    def each(broker: Broker, now_ms: int) -> None:
        group = broker.group("t", "g")
        for offset in offsets:
            [number] = [p.partition.number for p in group.progress if offset in p.leases]
            getattr(broker, what)(now_ms, "t", "g", number, offset, "o", **how)

    return lambda node: node.perform(each)


def seek(find: Callable[[Partition], int], group: str = "g", partition: int | None = None) -> Step:
    return lambda node: node.perform(lambda broker, now_ms: broker.seek(now_ms, "t", group, find, partition))


def pause(paused: bool) -> Step:
    return lambda node: node.perform(lambda broker, now_ms: broker.pause(now_ms, "t", "g", paused=paused))


def redrive(node: Node) -> None:
    def every(broker: Broker, now_ms: int) -> None:
        for partition in broker.topic("dlq.t").partitions:
            for index in range(partition.first_index, partition.committed):
                broker.intake.redrive(now_ms, partition, index)

    node.perform(every)


def advance(node: Node, story: Story, ms: int) -> None:
    story.clock.advance(ms)
    story.now_ms += ms
    node.engine._flush(everything=True)
    node.until(lambda: not node.engine._in_journal)


STORY: dict[str, Step | int] = {
    "create": lambda node: node.create("t", 2, retry=RetryPolicy(0, LONG_MS, LONG_MS)),
    "batch": produce(b"a", b"b", b"c", b"d"),
    "batch with a key": produce(b"e", b"f", key="batch"),
    "batch again": produce(b"e", b"f", key="batch"),
    "batch with known messages": produce(b"g", b"h", once="once", key="known"),
    "delayed": produce(b"a", b"b", in_ms=60_000),
    "delayed by more": produce(b"a", b"b", b"c", b"d", in_ms=120_000),
    "deadlines": with_deadline(90_000),
    "read": lambda node: node.take("t", 7),
    "ack": settle("ack", 0, 2),
    "nack with a delay": settle("nack", 1, delay_ms=30_000),
    "reject": settle("nack", 3, reason="bad", retryable=False),
    "extend": settle("extend", 4, lease_ms=LONG_MS * 2),
    "grow": lambda node: node.perform(lambda b, _: b.change_topic("t", TopicOverrides(max_in_flight=50), 3)),
    "produce to the new": produce(*(b"user:%d" % n for n in range(9))),
    "a minute passes": 60_000,
    "read what is due": lambda node: node.take("t", 2),
    "pause": pause(True),
    "redrive": redrive,
    "redrive again": redrive,
    "a group that starts at the end": seek(lambda partition: partition.committed, "late"),
    "send it back": seek(lambda partition: partition.log.index_from(5), "late"),
    "send one partition back": seek(lambda partition: partition.first_index, partition=0),
    "resume": pause(False),
    "read again": lambda node: node.take("t", 5),
    "deadline passes": 60_000,
    "forget": lambda node: node.perform(lambda broker, _: broker.forget_group("t", "late")),
    "delete what is held and watched": lambda node: node.delete("t"),
    "an hour passes": LONG_MS,
    "create anew": lambda node: node.create("t", 1),
    "batch key of the old one": produce(b"e", b"f", key="batch"),
    "read the new": lambda node: node.take("t", 2),
    "dead letters go": lambda node: node.delete("dlq.t"),
}


def tell(node: Node, story: Story, name: str) -> None:
    step = STORY[name]
    if isinstance(step, int):
        advance(node, story, step)
    else:
        step(node)
    node.engine._flush(everything=True)
    node.until(lambda: not node.engine._in_journal)


@pytest.mark.parametrize("compact", ["never", "always", "now and then"])
def test_a_crash_after_any_command_finds_the_state_as_it_was(tmp_path: Path, compact: str) -> None:
    story = Story(tmp_path / "data")
    with story.node() as node:
        live_clock = story.clock
        for number, name in enumerate(STORY):
            story.clock = live_clock
            tell(node, story, name)
            if compact == "always" or (compact == "now and then" and number % 4 == 3):
                node.compact()
            expected = story.state(node)
            with story.node(image(node, tmp_path / f"crash-{number}")) as restarted:
                assert story.state(restarted) == expected, f"after {name!r}"


@pytest.mark.parametrize("compact", [False, True])
def test_a_restart_after_every_command_comes_to_the_same_end(tmp_path: Path, compact: bool) -> None:
    """Timers, postponed messages, pauses and keys are taken up again where they were, also by what comes next."""
    states = []
    for restarts in (False, True):
        story = Story(tmp_path / str(restarts))
        node = story.node()
        for name in STORY:
            tell(node, story, name)
            if compact:
                node.compact()
            if restarts:
                node.close()
                node = story.node()
        states.append(story.state(node))
        node.close()
    assert states[0] == states[1]


def test_a_batch_on_its_way_when_the_journal_is_rotated_is_known_after_a_restart(tmp_path: Path) -> None:
    """The snapshot has its key as being stored; whoever reads the snapshot has the messages too."""
    story = Story(tmp_path / "data")
    with story.node() as node:
        node.create("t", 2)
        placements = node.engine.produce_batch(Answer(), "t", batch(b"a", b"b"), "key")
        node.engine._flush(everything=True)
        node.engine._rotate()
        assert node.engine._in_journal, "nobody was told yet"
    with story.node() as node:
        again = node.engine.produce_batch(Answer(), "t", batch(b"a", b"b"), "key")
        assert [(p.partition, p.offset) for p in again] == [(p.partition, p.offset) for p in placements]
        assert all(placement.deduplicated for placement in again)
        assert sum(map(len, node.values("t"))) == 2


def test_a_batch_that_stored_nothing_new_may_be_sent_again(tmp_path: Path) -> None:
    """All its messages were known. Nothing of it becomes visible, and still somebody has to be told that it is done."""
    with Story(tmp_path / "data").node() as node:
        node.create("t")
        produce(b"a", once="once")(node)
        for _ in range(2):
            produce(b"a", once="once", key="key")(node)
        assert node.values("t") == [[b"v-a"]]


def test_a_topic_deleted_with_everything_outstanding_leaves_nothing_that_comes_back(tmp_path: Path) -> None:
    """Leases, retries, deadlines, delayed messages, readers and a message on its way to the journal."""
    story = Story(tmp_path / "data")
    with story.node() as node:
        node.create("t", 2, retry=RetryPolicy(0, 1_000, 1_000))
        for name in ("batch", "delayed", "deadlines"):
            tell(node, story, name)
        node.take("t", 5)
        settle("nack", 0)(node)
        settle("ack", 1)(node)
        inbox = Inbox()
        node.engine.attach("t", "g", "reader", 500, inbox)
        node.engine.produce(Answer(), "t", b"", b"on its way")
        node.delete("t")
        assert inbox.has_ended
        advance(node, story, LONG_MS)
        delivered = len(inbox.deliveries)
        node.create("t")
        node.produce("t", b"new")
        advance(node, story, LONG_MS)
        assert len(inbox.deliveries) == delivered
        assert [d.record.value for d in node.take("t", 1)] == [b"new"]
        assert list(node.engine.broker.state.topics) == ["t"]
    with story.node() as node:
        assert node.values("t") == [[b"new"]]


def test_a_group_that_is_forgotten_hears_of_it_and_starts_afresh_under_its_name(tmp_path: Path) -> None:
    story = Story(tmp_path / "data")
    with story.node() as node:
        node.create("t")
        node.produce("t", b"v")
        [delivery] = node.take("t", 1)
        node.ack("t", delivery)
        inbox = Inbox()
        node.engine.attach("t", "g", "reader", 500, inbox)
        node.perform(lambda broker, _: broker.forget_group("t", "g"))
        assert inbox.has_ended
        assert [d.record.value for d in node.take("t", 1)] == [b"v"]
