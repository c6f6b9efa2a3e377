"""Messages for one group, kept as runs, against a plain dictionary; and what groups see of them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from slipstream.broker.addressed import AddressedMessages
from slipstream.broker.changes import Finished, Outcome
from slipstream.broker.group import Progress
from tests.broker.simulator import Simulator

STEPS = st.lists(st.tuples(st.sampled_from(["red", "blue", "", "", "drop", "cut"]), st.integers(0, 20)))


@given(STEPS)
def test_it_holds_what_a_plain_dictionary_holds(steps: list[tuple[str, int]]) -> None:
    runs, plain, end = AddressedMessages(), dict[int, str](), 0
    for what, index in steps:
        if what == "drop":
            runs.drop_below(index)
            plain = {each: group for each, group in plain.items() if each >= index}
        elif what == "cut":
            last = min(index + 3, end)
            if index >= last:
                continue
            runs.cut_out(index, last)
            gone = last - index
            plain = {
                each if each < index else each - gone: group
                for each, group in plain.items()
                if not index <= each < last
            }
            end -= gone
        else:
            if what:
                runs.add(end, what)
                plain[end] = what
            end += 1
        assert {at: group for start, stop, group in runs.runs() for at in range(start, stop)} == plain
        assert bool(runs) == bool(plain)
        assert AddressedMessages(runs.runs()).runs() == runs.runs()
        for group in ("red", "green"):
            others = [each for each in range(end + 2) if plain.get(each, group) != group]
            assert [each for each in range(end + 2) if not runs.is_for(each, group)] == others
            for start in range(end + 2):
                assert runs.for_others(start, end, group) == len([each for each in others if start <= each < end])
                assert runs.first_for(start, group) == next(at for at in range(start, end + 3) if at not in others)


# What groups see


def redriven_for_bad(behind: tuple[str, ...] = ()) -> Simulator:
    """Three groups were sent message 0; `bad` rejected it and got it again as message 1. Those `behind` have not begun
    with message 0; all others have finished it."""
    sim = Simulator()
    sim.create()
    consumers = [sim.attach(group=group, credit=0) for group in ("bad", "good", "idle")]
    sim.produce(b"invoice")
    for consumer in consumers:
        if consumer.group.name not in behind:
            consumer.credit = 1
            sim.broker.dispatch(consumer.group, sim.now_ms)
        sim.commit()
        sim.broker.detach(sim.now_ms, consumer)
    sim.nack(0, group="bad", reason="boom", retryable=False)
    for group in {"good", "idle"} - set(behind):
        sim.ack(0, group=group)
    sim.take()
    sim.broker.intake.redrive(sim.now_ms, sim.broker.topic("dlq.t").partitions[0], 0)
    sim.commit()
    return sim


def progress(sim: Simulator, group: str) -> Progress:
    return sim.broker.group("t", group).progress[0]


def delivered_to(sim: Simulator, group: str) -> list[int]:
    sim.attach(group=group)
    return [offset for offset, _, _ in sim.take()]


RESTARTS = pytest.mark.parametrize("restart", ["", "journal", "snapshot"])


def restarted(sim: Simulator, restart: str) -> Simulator:
    if restart == "snapshot":
        sim.checkpoint()
    if restart:
        sim.crash()
    return sim


@RESTARTS
def test_only_the_group_it_failed_for_gets_it_again(restart: str) -> None:
    sim = restarted(redriven_for_bad(), restart)
    assert delivered_to(sim, "good") == []
    assert delivered_to(sim, "bad") == [1]
    assert sim.delivered == []


@RESTARTS
def test_a_group_that_has_nothing_else_to_do_is_up_to_date_without_a_consumer(restart: str) -> None:
    sim = restarted(redriven_for_bad(), restart)
    idle = progress(sim, "idle")
    assert (idle.lag, idle.watermark, idle.oldest_unfinished, len(idle.leases)) == (0, 1, 2, 0)
    assert progress(sim, "bad").lag == 1


@RESTARTS
def test_a_group_that_is_behind_does_not_count_it(restart: str) -> None:
    sim = restarted(redriven_for_bad(behind=("idle",)), restart)
    assert progress(sim, "idle").lag == 1, "the original, which it has yet to get"
    assert delivered_to(sim, "idle") == [0]
    sim.ack(0, group="idle")
    assert (progress(sim, "idle").lag, progress(sim, "idle").watermark) == (0, 1)


@RESTARTS
def test_a_group_that_comes_later_does_not_get_it(restart: str) -> None:
    sim = restarted(redriven_for_bad(), restart)
    assert delivered_to(sim, "new") == [0], "the original only"
    sim.ack(0, group="new")
    sim.produce(b"next")
    assert [offset for offset, _, _ in sim.take()] == [2]
    assert progress(sim, "new").lag == 1


def test_a_group_that_is_sent_back_passes_over_it_once_more() -> None:
    sim = redriven_for_bad()
    sim.broker.seek(sim.now_ms, "t", "idle", lambda partition: 0)
    assert progress(sim, "idle").lag == 1
    sim.broker.seek(sim.now_ms, "t", "idle", lambda partition: 1)
    assert (progress(sim, "idle").lag, progress(sim, "idle").position) == (0, 2)


def test_a_paused_group_passes_over_it() -> None:
    sim = redriven_for_bad(behind=("idle",))
    sim.broker.pause(sim.now_ms, "t", "good", paused=True)
    assert progress(sim, "good").lag == 0
    sim.broker.pause(sim.now_ms, "t", "good", paused=False)
    assert delivered_to(sim, "good") == []


def test_all_groups_get_it_where_that_is_asked_for() -> None:
    sim = redriven_for_bad()
    sim.attach(group="bad")
    sim.nack(1, group="bad", reason="again", retryable=False)
    sim.take()
    sim.broker.intake.redrive(sim.now_ms, sim.broker.topic("dlq.t").partitions[0], 1, all_groups=True)
    sim.commit()
    taken = [offset for offset, _, _ in sim.take()]
    assert taken == [2], "bad is still there"
    assert [delivered_to(sim, group) for group in ("good", "idle")] == [[2], [2]]


def test_every_group_of_another_topic_gets_it() -> None:
    sim = redriven_for_bad()
    sim.create("u")
    sim.attach(group="bad")
    sim.nack(1, group="bad", retryable=False)
    sim.take()
    sim.broker.intake.redrive(sim.now_ms, sim.broker.topic("dlq.t").partitions[0], 1, "u")
    sim.attach(group="any", topic="u")
    sim.commit()
    assert sim.take() == [(0, 1, "o")]


def test_a_deadline_makes_no_dead_letter_for_groups_that_do_not_get_it() -> None:
    sim = Simulator()
    sim.create()
    for group in ("bad", "idle"):
        sim.broker.detach(sim.now_ms, sim.attach(group=group))
    deadline = "1970-01-01T00:30:00Z"
    sim.produce(envelope={"deadline": deadline})
    sim.broker.detach(sim.now_ms, sim.attach(group="bad"))
    sim.nack(0, group="bad", retryable=False)
    sim.broker.seek(sim.now_ms, "t", "idle", lambda partition: 1)
    sim.broker.intake.redrive(sim.now_ms, sim.broker.topic("dlq.t").partitions[0], 0)
    sim.commit()
    sim.advance(3_600_000)
    outcomes = [change.outcome for change in sim.written(0, Finished) if isinstance(change, Finished)]
    assert outcomes.count(Outcome.DEADLINE_EXCEEDED) == 1
    assert progress(sim, "idle").lag == 0


def test_retention_does_not_count_it_as_lost_for_others() -> None:
    sim = redriven_for_bad(behind=("idle",))
    partition = sim.broker.topic("t").partitions[0]
    sim.broker.trim(sim.now_ms, partition, 2, 14, 2)
    sim.commit()
    lost = {name: group.lost for name, group in sim.broker.topic("t").groups.items()}
    assert lost == {"bad": 1, "good": 0, "idle": 1}
    assert partition.addressed is not None
    assert not partition.addressed, "and forgets it"


def test_what_other_groups_pass_over_is_finished_for_them_in_the_journal() -> None:
    sim = redriven_for_bad()
    passed = [each for each in sim.written(0, Finished) if isinstance(each, Finished) and each.outcome]
    assert [each.outcome for each in passed] == [Outcome.REJECTED, Outcome.NOT_ADDRESSED, Outcome.NOT_ADDRESSED]
    assert sim.broker.state.dead_lettered == {("t", "rejected"): 1}
