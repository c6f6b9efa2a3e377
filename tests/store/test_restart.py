"""A restart finds what was commanded: whatever it was, at whatever moment the crash came, compacted or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.broker import RetryPolicy
from tests.store.node import LONG_MS, Answer, Inbox, image
from tests.store.story import STORY, Story, advance, batch, produce, settle, tell


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
