"""What comes in: batches, their keys, the room they need, and dead letters that come back."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.broker import (
    BrokerConfig,
    Envelope,
    FailedPrecondition,
    InvalidArgument,
    NewMessage,
    NotFound,
    Overloaded,
    Partition,
    Placement,
    RetryPolicy,
    RoutingDecision,
    TopicConfig,
    TopicOverrides,
    decode_meta,
)
from slipstream.broker.changes import decode_changes
from tests.broker.simulator import Simulator

TTL_MS = BrokerConfig().idempotency_ttl_ms


def messages(*values: bytes, once: str = "") -> list[NewMessage]:
    return [NewMessage(value, value, Envelope(idempotency_key=once) if once else None) for value in values]


def send(sim: Simulator, batch: list[NewMessage], key: str = "") -> list[Placement]:
    placements = sim.broker.produce_batch(sim.now_ms, "t", batch, key)
    sim.commit()
    return placements


def stored(sim: Simulator, topic: str = "t") -> list[bytes]:
    """In the order of offsets."""
    partitions = sim.broker.topic(topic).partitions
    records = [p.log.read(index) for p in partitions for index in range(p.first_index, p.count)]
    return [record.value for record in sorted(records, key=lambda record: record.offset)]


def places(placements: list[Placement]) -> list[tuple[str, int, int]]:
    return [(placement.topic, placement.partition, placement.offset) for placement in placements]


# Batches


def test_a_batch_is_stored_in_its_order_each_message_where_its_key_belongs() -> None:
    sim = Simulator()
    sim.create(partitions=3)
    placements = send(sim, messages(b"user:1", b"user:2", b"user:1"))
    assert places(placements) == [("t", 1, 0), ("t", 0, 1), ("t", 1, 2)]
    assert stored(sim) == [b"user:1", b"user:2", b"user:1"]


def test_nothing_of_a_batch_is_shown_before_it_is_in_the_journal() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.broker.produce_batch(sim.now_ms, "t", messages(b"a", b"b"), "key")
    assert sim.collect() == []
    sim.commit()
    assert len(sim.take()) == 2


@pytest.mark.parametrize(
    "bad",
    [
        NewMessage(b"", b"bad", Envelope(target_topic="nowhere")),
        NewMessage(b"", b"bad", Envelope(partition_override=9)),
        NewMessage(b"", b"bad", deliver_at_ms=1 << 50),
        NewMessage(b"", b"bad", Envelope(target_topic="dlq.t")),
    ],
)
def test_a_batch_with_one_bad_message_stores_none_and_says_which_it_was(bad: NewMessage) -> None:
    sim = Simulator()
    sim.create()
    sim.create("dlq.t")
    with pytest.raises(InvalidArgument, match=r"^message 2 of the batch \(nothing was stored\): "):
        sim.broker.produce_batch(sim.now_ms, "t", [*messages(b"a", b"b", once="k"), bad, *messages(b"c")], "key")
    assert not sim.broker.effects.changes
    assert stored(sim) == []
    assert len(send(sim, messages(b"a", b"b", b"c"), "key")) == 3, "the key was not used up"
    assert not send(sim, messages(b"a", once="k"))[0].deduplicated


def test_a_message_whose_key_is_under_way_elsewhere_is_named_by_its_number() -> None:
    sim = Simulator()
    sim.create()
    sim.broker.produce(sim.now_ms, "t", b"", b"first", Envelope(idempotency_key="k"))
    with pytest.raises(FailedPrecondition, match=r"^message 1 of the batch"):
        sim.broker.produce_batch(sim.now_ms, "t", [*messages(b"a"), *messages(b"b", once="k")])


def test_messages_of_a_batch_that_were_stored_before_keep_their_place() -> None:
    sim = Simulator()
    sim.create()
    send(sim, messages(b"first", once="k"))
    placements = send(sim, [*messages(b"new"), *messages(b"again", once="k"), *messages(b"x", b"y", once="j")])
    assert [(p.offset, p.deduplicated) for p in placements] == [(1, False), (0, True), (2, False), (2, True)]
    assert stored(sim) == [b"first", b"new", b"x"]


@pytest.mark.parametrize("restart", ["", "journal", "snapshot"])
def test_the_repeat_of_a_batch_is_answered_like_the_first_and_stores_nothing(restart: str) -> None:
    sim = Simulator()
    sim.create(partitions=3)
    sim.create("other")
    batch = [
        *messages(b"user:1", b"user:2"),
        NewMessage(b"", b"routed", None, decision=RoutingDecision(target_topic="other")),
        *messages(b"again", once="k"),
        *messages(b"again", once="k"),
    ]
    first = send(sim, batch, "key")
    if restart == "snapshot":
        sim.checkpoint()
    if restart:
        sim.crash()
    second = send(sim, batch, "key")
    assert places(second) == places(first)
    assert all(placement.deduplicated for placement in second)
    assert len(stored(sim)) == 3
    assert stored(sim, "other") == [b"routed"]


def test_the_repeat_of_a_batch_names_the_partitions_it_went_to_after_the_topic_has_grown() -> None:
    sim = Simulator()
    sim.create(partitions=2)
    batch = messages(*(b"user:%d" % n for n in range(20)))
    first = send(sim, batch, "key")
    sim.broker.change_topic(sim.now_ms, "t", TopicOverrides(), 3)
    sim.commit()
    assert places(send(sim, batch, "key")) == places(first)
    assert {placement.partition for placement in send(sim, batch)} == {0, 1, 2}


@pytest.mark.parametrize(
    "message",
    [
        NewMessage(b"user:1", b"v", Envelope(partition_override=2)),
        NewMessage(b"user:1", b"v", None, decision=RoutingDecision(partition_override=0)),
        NewMessage(b"user:1", b"v", None, decision=RoutingDecision(partition_override=99)),
        NewMessage(b"user:1", b"v", None, decision=RoutingDecision(target_topic="nowhere")),
    ],
)
def test_the_repeat_of_a_batch_goes_by_where_it_went_not_by_what_a_router_says_now(message: NewMessage) -> None:
    sim = Simulator()
    sim.create(partitions=3)
    first = send(sim, [message], "key")
    assert places(send(sim, [message], "key")) == places(first)
    assert places(send(sim, [NewMessage(b"user:1", b"v", message.envelope)], "key")) == places(first)


def test_a_batch_key_counts_for_its_topic_and_for_its_time() -> None:
    sim = Simulator()
    sim.create()
    sim.create("u")
    batch = messages(b"a")
    send(sim, batch, "key")
    assert not sim.broker.produce_batch(sim.now_ms, "u", batch, "key")[0].deduplicated
    sim.commit()
    sim.now_ms += TTL_MS - 1
    assert send(sim, batch, "key")[0].deduplicated
    sim.now_ms += 1
    assert not send(sim, batch, "key")[0].deduplicated
    sim.crash()
    assert places(send(sim, batch, "key")) == [("t", 0, 1)]


def test_a_batch_key_does_not_stand_for_another_number_of_messages() -> None:
    sim = Simulator()
    sim.create()
    send(sim, messages(b"a", b"b"), "key")
    with pytest.raises(FailedPrecondition, match="a batch of 2 messages; this one has 3"):
        send(sim, messages(b"a", b"b", b"c"), "key")


def test_a_batch_that_is_being_stored_is_not_stored_again() -> None:
    sim = Simulator()
    sim.create()
    sim.broker.produce_batch(sim.now_ms, "t", messages(b"a"), "key")
    with pytest.raises(FailedPrecondition, match="being stored"):
        sim.broker.produce_batch(sim.now_ms, "t", messages(b"a"), "key")
    sim.commit()
    assert send(sim, messages(b"a"), "key")[0].deduplicated


def test_a_batch_under_way_when_the_snapshot_was_taken_is_done_when_the_snapshot_is_used() -> None:
    sim = Simulator()
    sim.create()
    first = sim.broker.produce_batch(sim.now_ms, "t", messages(b"a", b"b"), "key")
    sim.write()
    sim.rotate()
    sim.crash()
    assert places(send(sim, messages(b"a", b"b"), "key")) == places(first)
    assert stored(sim) == [b"a", b"b"]


def test_a_batch_that_found_everything_stored_before_has_something_to_be_told_of() -> None:
    """Its key is under way until it is: whoever writes the journal looks whether anybody is to be told."""
    sim = Simulator()
    sim.create()
    send(sim, messages(b"a", once="k"))
    sim.broker.produce_batch(sim.now_ms, "t", messages(b"a", once="k"), "key")
    assert sim.broker.effects.publications
    sim.commit()
    assert send(sim, messages(b"a", once="k"), "key")[0].deduplicated


def test_a_batch_and_its_key_are_in_one_frame() -> None:
    sim = Simulator()
    sim.create()
    sim.broker.produce_batch(sim.now_ms, "t", messages(b"a", b"b"), "key")
    changes = decode_changes(b"\x92" + b"".join(sim.broker.effects.changes))
    assert [type(change).__name__ for change in changes] == ["PublishedBatch", "BatchCommitted"]
    assert changes[-1].places == [], "they follow from the first offset"  # type: ignore[union-attr]


# Room


def small(**config: int) -> Simulator:
    return Simulator(BrokerConfig(topic=msgspec.convert(config, TopicConfig)))


def test_a_batch_fits_whole_or_not_at_all() -> None:
    sim = small(max_waiting_messages=4)
    sim.create()
    sim.attach(credit=0)
    send(sim, messages(b"a", b"b"))
    with pytest.raises(Overloaded):
        send(sim, messages(b"c", b"d", b"e"))
    assert stored(sim) == [b"a", b"b"]
    send(sim, messages(b"c", b"d"))
    assert len(stored(sim)) == 4


@pytest.mark.parametrize("limit", [{"max_waiting_messages": 2}, {"max_waiting_bytes": 6}])
def test_a_batch_that_can_never_fit_is_not_told_to_wait(limit: dict[str, int]) -> None:
    sim = small(**limit)
    sim.create()
    with pytest.raises(InvalidArgument, match="send smaller batches"):
        send(sim, messages(b"a", b"b", b"c"))
    assert len(send(sim, messages(b"a", b"b"))) == 2


def test_what_was_stored_before_needs_no_room() -> None:
    sim = small(max_waiting_messages=2)
    sim.create()
    sim.attach(credit=0)
    batch = [*messages(b"a", once="j"), *messages(b"b", once="k"), *messages(b"b", once="k")]
    first = send(sim, batch)
    assert places(send(sim, batch)) == places(first), "a producer who tries again must hear that all is well"


def test_delayed_messages_wait_as_others_do() -> None:
    sim = small(max_waiting_messages=2)
    sim.create()
    sim.attach()
    sim.produce(delay_ms=1_000)
    sim.produce(delay_ms=1_000)
    with pytest.raises(Overloaded):
        sim.produce()
    sim.advance(1_000)
    sim.ack(0)
    sim.produce()


def test_a_group_that_is_sent_back_holds_producers_back_again() -> None:
    sim = small(max_waiting_messages=2)
    sim.create()
    sim.attach()
    for offset in range(4):
        sim.produce()
        sim.ack(offset)
    sim.broker.pause(sim.now_ms, "t", "g", paused=True)
    sim.broker.seek(sim.now_ms, "t", "g", lambda partition: partition.first_index)
    sim.commit()
    with pytest.raises(Overloaded):
        sim.produce()
    sim.broker.seek(sim.now_ms, "t", "g", lambda partition: partition.committed)
    sim.produce()


def test_a_group_that_is_forgotten_holds_nobody_back() -> None:
    sim = small(max_waiting_messages=2)
    sim.create()
    sim.attach(credit=0)
    sim.produce()
    sim.produce()
    with pytest.raises(Overloaded):
        sim.produce()
    sim.broker.forget_group("t", "g")
    sim.produce()
    sim.attach(credit=0)
    with pytest.raises(Overloaded):
        sim.produce()


def test_a_group_that_is_used_again_after_a_long_time_counts_again() -> None:
    """Whatever it does: its consumers may still hold messages that they settle without reading on."""
    sim = small(max_waiting_messages=2)
    sim.create()
    consumer = sim.attach(lease_ms=12 * 3_600_000)
    sim.produce()
    sim.produce()
    sim.broker.detach(sim.now_ms, consumer)
    sim.now_ms += sim.config.group_absent_ms + 1
    for _ in range(3):
        sim.produce()
    sim.ack(0)
    with pytest.raises(Overloaded):
        sim.produce()


TO_X = RoutingDecision(target_topic="x", label="x")


def with_full_target() -> tuple[Simulator, list[str]]:
    """A router sends messages to the topic `x`, which takes one more; what it is told is in the list."""
    sim = small(max_waiting_messages=3)
    sim.create(partitions=2)
    sim.create("x")
    for topic in ("t", "x"):
        sim.attach(topic=topic, credit=0)
    for _ in range(2):
        sim.produce(topic="x")
    told: list[str] = []
    sim.broker.intake.on_routed = told.append
    return sim, told


def test_a_message_goes_its_normal_way_where_its_router_has_chosen_a_topic_that_is_full() -> None:
    sim, told = with_full_target()
    first, second = (sim.broker.produce(sim.now_ms, "t", b"", value, decision=TO_X) for value in (b"a", b"b"))
    assert places([first, second]) == [("x", 0, 2), ("t", 0, 0)]
    assert decode_meta(sim.broker.topic("t").partitions[0].log.read(0).meta).routing is None
    assert told == ["", "x/0 is full"]
    assert sim.broker.intake.router_misses_total == 1
    assert sim.broker.intake.rejected["partition_buffer_full"] == 0


def test_a_message_that_was_stored_in_a_topic_that_is_full_now_is_not_stored_again() -> None:
    sim, told = with_full_target()
    message = [NewMessage(b"", b"a", Envelope(idempotency_key="k"), decision=TO_X)]
    for _ in range(2):
        assert places(send(sim, message)) == [("x", 0, 2)]
        sim.broker.produce(sim.now_ms, "t", b"", b"a", Envelope(idempotency_key="k"), TO_X)
    assert len(stored(sim, "x")) == 3
    assert set(told) == {""}


def test_of_a_batch_what_does_not_fit_where_its_router_sends_it_goes_its_normal_way() -> None:
    sim, told = with_full_target()
    batch = [
        NewMessage(b"", b"a", decision=TO_X),
        NewMessage(b"", b"b", decision=RoutingDecision(partition_override=1)),
        NewMessage(b"", b"c", decision=TO_X),
    ]
    assert places(send(sim, batch)) == [("t", 0, 0), ("t", 1, 1), ("t", 0, 2)]
    assert told == ["x/0 is full", "x/0 is full", ""]
    assert places(send(sim, batch[:1])) == [("x", 0, 2)]
    assert sim.broker.intake.router_misses_total == 2


def test_where_the_normal_way_is_full_or_leads_nowhere_the_producer_has_to_wait() -> None:
    sim, told = with_full_target()
    for topic in ("x", "t", "t", "t"):
        sim.produce(topic=topic)
    for name in ("not-there", "t"):
        with pytest.raises(Overloaded):
            sim.broker.produce(sim.now_ms, name, b"", b"a", decision=TO_X)
        with pytest.raises(Overloaded):
            sim.broker.produce_batch(sim.now_ms, name, [NewMessage(b"", b"a", decision=TO_X)])
    assert told == []
    assert sim.broker.intake.router_misses_total == 0


# Delays


def test_a_delay_beyond_the_deadline_or_the_retention_is_refused() -> None:
    sim = small(retention_ms=1_000)
    sim.create()
    with pytest.raises(InvalidArgument, match="keeps messages for 1000 ms"):
        sim.produce(delay_ms=1_001)
    sim.produce(delay_ms=1_000)
    sim.create("held", hold_unfinished=True)
    sim.produce(topic="held", delay_ms=1_000_000)


# Dead letters that come back


def dead_letter(sim: Simulator, value: bytes = b"v", key: bytes = b"", **envelope: object) -> Partition:
    """Of one that is rejected at once; the partition it is in."""
    placement = sim.produce(value, key=key, envelope=envelope)
    consumer = sim.attach()
    sim.nack(placement.offset, partition=placement.partition, retryable=False)
    sim.broker.detach(sim.now_ms, consumer)
    sim.take()
    return sim.broker.topic("dlq.t").partitions[placement.partition]


def redrive(
    sim: Simulator, dead: Partition, index: int = 0, to: str = "", *, all_groups: bool = False
) -> Placement | None:
    placement = sim.broker.intake.redrive(sim.now_ms, dead, index, to, all_groups=all_groups)
    sim.commit()
    return placement


def test_a_dead_letter_goes_back_to_where_it_came_from_as_it_was() -> None:
    sim = Simulator()
    sim.create(partitions=3)
    policy = {"max_attempts": 3}
    dead = dead_letter(sim, b"v", b"user:1", retry_policy=policy, tenant_id="x", labels={"a": "b"})
    assert redrive(sim, dead) == Placement("t", 1, 1)
    record = sim.broker.topic("t").partitions[1].log.read(1)
    meta = decode_meta(record.meta)
    assert (record.key, record.value) == (b"user:1", b"v")
    assert meta.envelope == Envelope(retry_policy=RetryPolicy(3), tenant_id="x", labels={"a": "b"})
    assert meta.redriven_from == "dlq.t/1/0"


@pytest.mark.parametrize("restart", ["", "journal", "snapshot"])
def test_a_dead_letter_is_sent_back_once(restart: str) -> None:
    sim = Simulator()
    sim.create()
    dead = dead_letter(sim)
    assert redrive(sim, dead) is not None
    if restart == "snapshot":
        sim.checkpoint()
    if restart:
        sim.crash()
    assert redrive(sim, sim.broker.topic("dlq.t").partitions[0]) is None
    assert len(stored(sim)) == 2


def test_a_redriven_message_is_not_held_back_by_its_own_idempotency_key() -> None:
    sim = Simulator()
    sim.create()
    dead = dead_letter(sim, idempotency_key="k")
    sim.now_ms += TTL_MS
    assert redrive(sim, dead) == Placement("t", 0, 1)
    for _ in range(2):
        assert not sim.broker.state.produced.find(("", 1, "k"), sim.now_ms), "nor does it use the key again"
        sim.crash()


def test_a_deadline_that_has_passed_is_not_sent_back() -> None:
    sim = Simulator()
    sim.create()
    deadline_ms = sim.now_ms + 1_000
    dead = dead_letter(sim, deadline=f"1970-01-01T00:{deadline_ms // 60_000:02}:{deadline_ms / 1000 % 60:06.3f}Z")
    sim.advance(2_000)
    redrive(sim, dead)
    sim.attach()
    assert sim.take() == [(1, 1, "o")]


def test_a_message_that_dies_again_is_another_dead_letter() -> None:
    sim = Simulator()
    sim.create()
    dead = dead_letter(sim)
    redrive(sim, dead)
    sim.attach()
    sim.nack(1, retryable=False)
    assert redrive(sim, dead, 0) is None
    assert redrive(sim, dead, 1) == Placement("t", 0, 2)


def test_a_redrive_needs_room_and_changes_nothing_without() -> None:
    sim = small(max_waiting_messages=1)
    sim.create()
    dead = dead_letter(sim)
    sim.produce()
    with pytest.raises(Overloaded):
        redrive(sim, dead)
    assert not sim.broker.effects.changes
    sim.attach()
    sim.ack(1)
    assert redrive(sim, dead) is not None


def test_a_redrive_to_another_topic_goes_by_the_key() -> None:
    sim = Simulator()
    sim.create()
    sim.create("u", partitions=3)
    dead = dead_letter(sim, key=b"user:1")
    assert redrive(sim, dead, to="u") == Placement("u", 1, 0)
    with pytest.raises(InvalidArgument, match="ordinary topic"):
        redrive(sim, dead_letter(sim), 1, to="dlq.t")


def test_a_redrive_for_a_group_that_is_gone_is_refused_and_changes_nothing() -> None:
    sim = Simulator()
    sim.create()
    dead = dead_letter(sim)
    sim.broker.forget_group("t", "g")
    sim.commit()
    with pytest.raises(FailedPrecondition, match="no group 'g' any more"):
        redrive(sim, dead)
    assert not sim.broker.effects.changes
    assert redrive(sim, dead, all_groups=True) is not None


def test_a_dead_letter_of_a_deleted_topic_can_only_go_elsewhere() -> None:
    sim = Simulator()
    sim.create()
    sim.create("u")
    dead = dead_letter(sim)
    sim.broker.delete_topic("t")
    with pytest.raises(NotFound):
        redrive(sim, dead)
    assert redrive(sim, dead, to="u") is not None


def test_a_redrive_out_of_a_topic_deleted_meanwhile_leaves_a_journal_that_can_be_read() -> None:
    sim = Simulator()
    sim.create()
    dead = dead_letter(sim)
    sim.broker.delete_topic("dlq.t")
    with pytest.raises(NotFound, match="deleted meanwhile"):
        redrive(sim, dead)
    sim.commit()
    sim.crash()
    assert stored(sim) == [b"v"]
