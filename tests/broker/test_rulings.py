"""The rulings of the architecture, one by one, on the core alone. The number stands in each docstring."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from slipstream.broker import (
    BrokerConfig,
    Envelope,
    FailedPrecondition,
    InvalidArgument,
    Overloaded,
    RetryPolicy,
    RoutingDecision,
    TopicConfig,
    decode_meta,
)
from slipstream.broker.changes import Finished
from slipstream.record import Published
from tests.broker.simulator import Simulator, _decode_change


@pytest.fixture
def sim() -> Simulator:
    sim = Simulator()
    sim.create()
    return sim


def limited(attempts: int, backoff_ms: int = 0, **more: object) -> dict[str, object]:
    return {"retry_policy": {"max_attempts": attempts, "backoff_ms": backoff_ms}, **more}


def until(sim: Simulator, in_ms: int) -> dict[str, object]:
    return {"deadline": dt.datetime.fromtimestamp((sim.now_ms + in_ms) / 1000, dt.UTC)}


def dead_letters(sim: Simulator, topic: str = "dlq.t") -> list[Envelope]:
    letters = []
    for partition in sim.broker.topic(topic).partitions:
        for index in range(partition.count):
            envelope = decode_meta(partition.log.read(index).meta).envelope
            assert envelope is not None
            letters.append(envelope)
    return letters


def last_error(sim: Simulator) -> str:
    return sim.delivered[-1].last_error


# 1: places


def test_offsets_start_at_0_and_count_per_topic(sim: Simulator) -> None:
    """Ruling 1."""
    sim.create("u", 3)
    places = [sim.produce(topic="u", key=key) for key in (b"user:1", b"user:2", b"", b"user:1")]
    assert [(p.partition, p.offset) for p in places] == [(1, 0), (0, 1), (0, 2), (1, 3)]
    assert sim.produce().offset == 0


# 2: lossless progress


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_ack_out_of_order_is_remembered_on_its_own(sim: Simulator, checkpoint: bool) -> None:
    """Ruling 2."""
    sim.produce()
    sim.produce()
    sim.attach()
    sim.ack(1)
    if checkpoint:
        sim.checkpoint()
    sim.crash()
    sim.take()
    sim.attach("another")
    sim.advance(60_000)
    sim.advance(60_000)
    assert sim.take() == [(0, 2, "another")]
    assert sim.broker.topic("t").groups["g"].progress[0].watermark == -1


# 3: who may settle


def test_an_ack_of_what_is_done_is_taken_from_anyone(sim: Simulator) -> None:
    """Ruling 3."""
    sim.produce()
    sim.attach()
    sim.ack(0)
    sim.ack(0)
    sim.ack(0, "somebody else")
    sim.crash()
    sim.ack(0)


@pytest.mark.parametrize("command", ["ack", "nack"])
def test_only_the_holder_of_the_lease_settles(sim: Simulator, command: str) -> None:
    """Ruling 3: and the first owner no longer, once another has it."""
    sim.produce()
    consumer = sim.attach()
    with pytest.raises(FailedPrecondition, match="not owner"):
        getattr(sim, command)(0, "another")
    sim.broker.detach(sim.now_ms, consumer)
    sim.attach("another")
    sim.advance(2_000)
    sim.advance(100)
    assert sim.take()[-1] == (0, 2, "another")
    with pytest.raises(FailedPrecondition, match="not owner"):
        getattr(sim, command)(0, "o")


def test_an_expired_lease_belongs_to_its_owner_until_another_takes_it(sim: Simulator) -> None:
    """Ruling 3."""
    sim.produce()
    sim.broker.detach(sim.now_ms, sim.attach())
    sim.advance(60_000)
    with pytest.raises(FailedPrecondition, match="not owner"):
        sim.ack(0, "another")
    sim.ack(0)
    sim.attach("another")
    assert sim.take() == [(0, 1, "o")]


def test_what_was_never_delivered_cannot_be_settled(sim: Simulator) -> None:
    """Ruling 3."""
    sim.produce()
    sim.attach(credit=1)
    sim.produce()
    for offset in (1, 2, -1):
        with pytest.raises(InvalidArgument):
            sim.ack(offset)
    with pytest.raises(InvalidArgument, match="has no group"):
        sim.ack(0, group="strangers")


# 4: leases


def test_a_lease_lives_its_length_when_its_stream_closes(sim: Simulator) -> None:
    """Ruling 4."""
    sim.produce()
    sim.broker.detach(sim.now_ms, sim.attach(lease_ms=5_000))
    sim.attach("another")
    sim.advance(4_999)
    assert sim.take() == [(0, 1, "o")]
    sim.advance(1)
    sim.advance(100)
    assert sim.take() == [(0, 2, "another")]


@pytest.mark.parametrize("restart", [False, True])
def test_a_lease_can_be_extended_also_across_a_restart(sim: Simulator, restart: bool) -> None:
    """Ruling 4: without a length of its own it is 2 s."""
    sim.produce()
    sim.attach()
    sim.advance(1_999)
    assert sim.broker.extend(sim.now_ms, "t", "g", 0, 0, "o", 10_000) == sim.now_ms + 10_000
    sim.commit()
    if restart:
        sim.crash()
    sim.attach("another")
    sim.advance(5_000)
    sim.advance(4_999)
    assert sim.take() == [(0, 1, "o")]
    sim.advance(1)
    sim.advance(100)
    assert [attempts for _, attempts, _ in sim.take()] == [2]


# 5: retries


def test_the_pause_doubles_up_to_its_maximum(sim: Simulator) -> None:
    """Ruling 5: min(backoff * 2^(n-1), max)."""
    sim.produce(envelope={"retry_policy": {"max_attempts": 0, "backoff_ms": 250, "max_backoff_ms": 900}})
    sim.attach(lease_ms=3_600_000)
    sim.take()
    for attempt, pause_ms in enumerate([250, 500, 900, 900], start=2):
        sim.nack(0)
        sim.advance(pause_ms - 1)
        assert sim.take() == [], f"{pause_ms} ms have not passed"
        sim.advance(1)
        assert sim.take() == [(0, attempt, "o")]


def test_without_a_policy_the_topics_applies(sim: Simulator) -> None:
    """Ruling 5: 100 ms doubling to an hour, 25 attempts in more than eight hours."""
    began_ms = sim.now_ms
    sim.produce()
    sim.attach(lease_ms=3_600_000)
    sim.take()
    for attempt, pause_ms in enumerate([min(100 << retry, 3_600_000) for retry in range(24)], start=2):
        sim.nack(0)
        sim.advance(pause_ms - 1)
        assert sim.take() == []
        sim.advance(1)
        assert sim.take() == [(0, attempt, "o")]
    assert sim.now_ms - began_ms > 8 * 3_600_000
    sim.nack(0)
    sim.attach(topic="dlq.t")
    assert sim.take() == [(0, 1, "o")]


def test_a_policy_without_backoff_retries_at_once(sim: Simulator) -> None:
    """Ruling 5."""
    sim.produce(envelope=limited(9))
    sim.attach()
    sim.nack(0)
    assert sim.take() == [(0, 1, "o"), (0, 2, "o")]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_attempts_and_errors_survive_a_restart(sim: Simulator, checkpoint: bool) -> None:
    """Ruling 5: the errors are joined; a time-out is noted only where nothing better is known."""
    sim.produce()
    sim.attach()
    sim.advance(2_000)
    sim.advance(100)
    assert last_error(sim) == "ack_timeout"
    sim.nack(0, reason="boom")
    sim.nack(0, reason="twice is not counted")
    sim.advance(200)
    sim.advance(2_000)
    if checkpoint:
        sim.checkpoint()
    sim.crash()
    sim.take()
    sim.attach("another")
    sim.advance(60_000)
    assert last_error(sim) == "ack_timeout | boom"
    assert sim.take() == [(0, 4, "another")]


# 6: dead letters


@pytest.mark.parametrize("failure", ["nack", "time-out"])
def test_the_last_failure_moves_the_message_and_the_group_in_one_commit(sim: Simulator, failure: str) -> None:
    """Ruling 6."""
    sim.create("u", 3)
    sim.produce(
        b"v", "u", b"user:1", limited(2, tenant_id="acme", idempotency_key="k", target_topic="u", partition_override=2)
    )
    sim.attach(topic="u")
    sim.nack(0, reason="boom", topic="u", partition=2)
    written = len(sim.journal)
    if failure == "nack":
        sim.broker.nack(sim.now_ms, "u", "g", 2, 0, "o", "bang")
    else:
        sim.now_ms += 2_000
        sim.broker.tick(sim.now_ms)
    batch = [type(_decode_change(change)) for change in sim.broker.effects.changes]
    assert Published in batch
    assert Finished in batch
    sim.commit()
    assert len(sim.journal) > written
    graveyard = sim.broker.topic("dlq.u")
    assert [partition.count for partition in graveyard.partitions] == [0, 0, 1]
    [letter] = dead_letters(sim, "dlq.u")
    assert letter.dlq is not None
    assert (letter.dlq.original_topic, letter.dlq.original_partition, letter.dlq.original_offset) == ("u", 2, 0)
    assert (letter.dlq.attempts, letter.dlq.group, letter.dlq.reason) == (2, "g", "max_attempts")
    assert letter.dlq.last_error == ("boom | bang" if failure == "nack" else "boom")
    assert (letter.dlq.tenant_id, letter.dlq.idempotency_key) == ("acme", "k")
    assert letter.dlq.routed_at_ms == sim.now_ms
    assert (letter.target_topic, letter.partition_override) == ("", None), "spent: a redrive must not follow them"
    assert sim.broker.topic("u").groups["g"].progress[2].lag == 0
    sim.crash()
    assert len(dead_letters(sim, "dlq.u")) == 1
    assert sim.broker.topic("u").groups["g"].progress[2].lag == 0


def test_a_dead_letter_never_dies_again(sim: Simulator) -> None:
    """Ruling 6: neither of its attempts nor of its deadline."""
    sim.produce(envelope=limited(1) | until(sim, 30_000))
    sim.attach()
    sim.nack(0)
    sim.attach(topic="dlq.t")
    for _ in range(5):
        sim.nack(0, topic="dlq.t")
        sim.advance(60_000)
    assert "dlq.dlq.t" not in sim.broker.state.topics
    assert sim.broker.topic("dlq.t").groups["g"].progress[0].lag == 1
    sim.ack(0, topic="dlq.t")


def test_the_dead_letters_have_the_partitions_of_their_topic(sim: Simulator) -> None:
    """Ruling 6: also where a client created them before."""
    sim.create("u", 3)
    sim.create("dlq.u", 1)
    assert len(sim.broker.topic("dlq.u").partitions) == 3
    sim.create("dlq.of-nothing-yet", 2)
    assert len(sim.broker.topic("dlq.of-nothing-yet").partitions) == 2


def test_each_group_has_its_own_dead_letter(sim: Simulator) -> None:
    """Ruling 6: one group's failure does not finish the message for another."""
    sim.produce(envelope=limited(1))
    sim.attach(group="red")
    sim.attach(group="blue")
    sim.nack(0, group="red")
    assert [letter.dlq.group for letter in dead_letters(sim) if letter.dlq] == ["red"]
    sim.ack(0, group="blue")
    assert len(dead_letters(sim)) == 1


# 7: deadlines


def test_a_deadline_that_passes_while_it_waits_makes_a_dead_letter(sim: Simulator) -> None:
    """Ruling 7: waiting for a consumer, and waiting for a retry; not while somebody has it."""
    for in_ms in (1_000, 1_000, 1_000):
        sim.produce(envelope=until(sim, in_ms))
    sim.attach(credit=2, lease_ms=60_000)
    sim.nack(0, reason="boom")  # due again after 100 ms, and nobody takes it
    sim.advance(1_000)
    letters = {letter.dlq.original_offset: letter.dlq for letter in dead_letters(sim) if letter.dlq}
    assert sorted(letters) == [0, 2]
    assert (letters[0].reason, letters[0].last_error, letters[0].attempts) == ("deadline_exceeded", "boom", 1)
    assert (letters[2].last_error, letters[2].attempts) == ("deadline_exceeded", 0)
    sim.ack(1)
    assert sim.broker.topic("t").groups["g"].progress[0].lag == 0


def test_who_is_late_and_fails_has_failed_for_good(sim: Simulator) -> None:
    """Ruling 7."""
    sim.produce(envelope=until(sim, 1_000))
    sim.attach(lease_ms=60_000)
    sim.advance(1_000)
    sim.nack(0)
    assert len(dead_letters(sim)) == 1


def test_a_deadline_survives_a_restart(sim: Simulator) -> None:
    """Ruling 7."""
    sim.produce(envelope=until(sim, 1_000))
    sim.attach(credit=0)
    sim.crash()
    sim.advance(1_000)
    assert len(dead_letters(sim)) == 1


def test_what_has_expired_already_is_refused(sim: Simulator) -> None:
    """Ruling 7."""
    with pytest.raises(InvalidArgument, match="deadline exceeded"):
        sim.produce(envelope=until(sim, 0))
    assert sim.broker.topic("t").partitions[0].count == 0


# 8: idempotency


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_known_key_enqueues_nothing_for_ten_minutes_also_after_a_restart(sim: Simulator, checkpoint: bool) -> None:
    """Ruling 8."""
    key = {"idempotency_key": "k", "tenant_id": "acme"}
    first = sim.produce(envelope=key)
    if checkpoint:
        sim.checkpoint()
    sim.crash()
    sim.advance(599_999)
    again = sim.produce(envelope=key)
    assert again == msgspec.structs.replace(first, deduplicated=True)
    assert sim.broker.topic("t").partitions[0].count == 1
    sim.advance(1)
    assert not sim.produce(envelope=key).deduplicated


def test_a_key_counts_per_tenant_and_final_topic(sim: Simulator) -> None:
    """Ruling 8."""
    sim.create("u")
    sim.produce(envelope={"idempotency_key": "k"})
    assert not sim.produce(envelope={"idempotency_key": "k", "tenant_id": "acme"}).deduplicated
    assert not sim.produce(envelope={"idempotency_key": "k", "target_topic": "u"}).deduplicated
    assert sim.produce(topic="u", envelope={"idempotency_key": "k"}).deduplicated


def test_a_key_is_pending_until_its_message_is_committed(sim: Simulator) -> None:
    """Ruling 8."""
    envelope = Envelope(idempotency_key="k")
    sim.broker.produce(sim.now_ms, "t", b"", b"v", envelope)
    with pytest.raises(FailedPrecondition):
        sim.broker.produce(sim.now_ms, "t", b"", b"v", envelope)
    sim.commit()
    assert sim.broker.produce(sim.now_ms, "t", b"", b"v", envelope).deduplicated


def test_a_produce_that_was_refused_leaves_its_key_free() -> None:
    """Ruling 8."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_waiting_messages=1)))
    sim.create()
    sim.attach()
    sim.produce()
    with pytest.raises(Overloaded):
        sim.produce(envelope={"idempotency_key": "k"})
    sim.ack(0)
    assert not sim.produce(envelope={"idempotency_key": "k"}).deduplicated


def test_an_effect_is_done_once(sim: Simulator) -> None:
    """Ruling 8: (tenant, topic, group, key); failed may begin again, and so may what its worker let lapse."""
    sim.attach()
    broker = sim.broker
    assert broker.begin_once(sim.now_ms, "t", "g", "k", "a", 1_000)
    with pytest.raises(FailedPrecondition):
        broker.begin_once(sim.now_ms, "t", "g", "k", "b", 1_000)
    with pytest.raises(FailedPrecondition, match="not owner"):
        broker.settle_once(sim.now_ms, "t", "g", "k", "b")
    broker.settle_once(sim.now_ms, "t", "g", "k", "a", error="boom")
    assert broker.begin_once(sim.now_ms, "t", "g", "k", "b", 1_000), "it failed"
    sim.advance(1_000)
    assert broker.begin_once(sim.now_ms, "t", "g", "k", "c", 1_000), "it lapsed"
    broker.settle_once(sim.now_ms, "t", "g", "k", "c")
    sim.commit()
    sim.crash()
    assert not sim.broker.begin_once(sim.now_ms, "t", "g", "k", "a"), "it is done, and that survives"
    assert sim.broker.begin_once(sim.now_ms, "t", "g", "k", "a", tenant="acme")


# 9: topics


def test_a_topic_survives_with_its_partitions_and_is_not_changed_by_creating_it_again(sim: Simulator) -> None:
    """Ruling 9."""
    sim.create("empty", 3)
    written = len(sim.journal)
    sim.create("empty", 5)
    assert len(sim.journal) == written
    sim.crash()
    assert len(sim.broker.topic("empty").partitions) == 3


# 10: backpressure


def test_the_slowest_group_holds_back_producers() -> None:
    """Ruling 10: and the answer says when to come again."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_waiting_messages=3)))
    sim.create()
    sim.attach(group="fast")
    sim.attach(group="slow")
    for offset in range(3):
        sim.produce()
        sim.ack(offset, group="fast")
    with pytest.raises(Overloaded) as refused:
        sim.produce()
    assert refused.value.retry_after_ms == 1_000
    sim.ack(2, group="slow")
    sim.produce()
    with pytest.raises(Overloaded):
        sim.produce()


def test_bytes_count_too() -> None:
    """Ruling 10."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_waiting_bytes=20)))
    sim.create()
    sim.attach()
    sim.produce(b"1234567890", key=b"12345")
    with pytest.raises(Overloaded):
        sim.produce(b"12345")
    sim.produce(b"1234")
    with pytest.raises(InvalidArgument, match="never fits"):
        sim.produce(b"1" * 20)


def test_a_group_that_vanished_does_not_hold_back_producers_for_ever() -> None:
    """Ruling 10: and it counts again when it comes back."""
    sim = Simulator(BrokerConfig(group_absent_ms=5_000, topic=TopicConfig(max_waiting_messages=2)))
    sim.create()
    sim.broker.detach(sim.now_ms, sim.attach(group="gone"))
    sim.produce()
    sim.produce()
    sim.advance(5_000)
    with pytest.raises(Overloaded):
        sim.produce()
    sim.advance(1)
    sim.produce()
    sim.attach(group="gone", credit=0)
    with pytest.raises(Overloaded):
        sim.produce()


def test_a_new_group_counts_from_the_oldest_message() -> None:
    """Ruling 10."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_waiting_messages=2)))
    sim.create()
    sim.attach()
    for offset in range(4):
        sim.produce()
        sim.ack(offset)
    sim.attach(group="new", credit=0)
    with pytest.raises(Overloaded):
        sim.produce()


def test_in_flight_is_limited_per_group_and_partition() -> None:
    """Ruling 10."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=2)))
    sim.create(partitions=2)
    for _ in range(3):
        sim.produce(envelope={"partition_override": 0})
        sim.produce(envelope={"partition_override": 1})
    sim.attach()
    assert [offset for offset, _, _ in sim.take()] == [0, 1, 2, 3]
    sim.ack(2)
    assert sim.take() == [(4, 1, "o")]


# 11: order


def test_first_deliveries_of_a_partition_are_in_offset_order_whoever_gets_them(sim: Simulator) -> None:
    """Ruling 11: also with retries and other consumers in between."""
    sim.attach("a", credit=3)
    sim.attach("b", credit=3)
    for _ in range(8):
        sim.produce(envelope=limited(0))
    sim.nack(0, "a")
    sim.attach("c")
    sim.advance(60_000)
    first = [offset for offset, attempts, _ in sim.take() if attempts == 1]
    assert first == list(range(8))


# 13: the router


def test_what_the_router_sets_wins_and_shows(sim: Simulator) -> None:
    """Ruling 13."""
    sim.create("u", 3)
    decision = RoutingDecision("label", "u", 2, {"k": "v"})
    envelope = Envelope(run_id="r", target_topic="t", partition_override=0)
    placement = sim.broker.produce(sim.now_ms, "t", b"", b"v", envelope, decision)
    assert (placement.topic, placement.partition) == ("u", 2)
    sim.commit()
    meta = decode_meta(sim.broker.topic("u").partitions[2].log.read(0).meta)
    assert meta.routing is not None
    assert (meta.routing.label, meta.routing.meta) == ("label", {"k": "v"})
    assert meta.envelope == Envelope(run_id="r", target_topic="u", partition_override=2)


@pytest.mark.parametrize(
    "decision",
    [RoutingDecision("x", "nowhere"), RoutingDecision("x", None, 7), RoutingDecision("x", "dlq.u")],
)
def test_a_router_that_points_at_nothing_is_not_followed(sim: Simulator, decision: RoutingDecision) -> None:
    """Ruling 13: counted, and the message goes its normal way."""
    sim.create("dlq.u")
    placement = sim.broker.produce(sim.now_ms, "t", b"", b"v", None, decision)
    assert placement.topic == "t"
    assert sim.broker.intake.router_misses_total == 1
    assert sim.broker.topic("t").partitions[0].log.read(0).meta == b""


# 15: names


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a\n", "x" * 201, "../x"])
def test_names_are_plain(sim: Simulator, name: str) -> None:
    """Ruling 15."""
    with pytest.raises(InvalidArgument):
        sim.create(name)
    with pytest.raises(InvalidArgument):
        sim.attach(owner=name)
    with pytest.raises(InvalidArgument):
        sim.attach(group=name)
    assert list(sim.broker.state.topics) == ["t"]
    assert not sim.broker.state.groups_by_id
    assert not sim.broker.effects.changes


def test_dead_letters_are_written_by_the_broker_only(sim: Simulator) -> None:
    """Ruling 15: neither directly nor by way of another topic."""
    sim.create("dlq.t")
    with pytest.raises(InvalidArgument):
        sim.produce(topic="dlq.t")
    with pytest.raises(InvalidArgument):
        sim.produce(envelope={"target_topic": "dlq.t"})


# 17: retention


@pytest.mark.parametrize("restart", ["journal", "checkpoint"])
def test_what_retention_takes_from_a_group_is_counted(sim: Simulator, restart: str) -> None:
    """Ruling 17: finished messages are not lost, unfinished ones are, leased or never delivered."""
    for _ in range(6):
        sim.produce(b"12345")
    sim.attach(credit=3)
    sim.ack(1)
    assert sim.broker.trim(sim.now_ms, sim.broker.topic("t").partitions[0], 5, 25) == 4
    sim.commit()
    if restart == "checkpoint":
        sim.checkpoint()
    sim.crash()
    group = sim.broker.topic("t").groups["g"]
    assert (group.lost, group.progress[0].lag, group.progress[0].done_bytes) == (4, 1, 25)
    sim.take()
    sim.attach()
    assert sim.take() == [(5, 1, "o")]


def test_a_topic_can_hold_on_to_what_is_unfinished(sim: Simulator) -> None:
    """Ruling 17: retention asks up to where everybody is through."""
    partition = sim.broker.topic("t").partitions[0]
    for _ in range(4):
        sim.produce()
    assert sim.broker.unfinished_from(partition) == 4, "nobody waits for anything"
    sim.attach(credit=3)
    sim.attach(group="behind", credit=0)
    assert sim.broker.unfinished_from(partition) == 0
    sim.attach("quick", "behind")
    for offset in range(4):
        sim.ack(offset, "quick", "behind")
    sim.ack(0)
    sim.ack(2)
    assert sim.broker.unfinished_from(partition) == 1


def test_a_policy_of_a_topic_can_have_a_limit() -> None:
    """Ruling 5 and 6."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(2, 0))))
    sim.create()
    sim.produce()
    sim.attach()
    sim.nack(0)
    sim.nack(0)
    assert len(dead_letters(sim)) == 1
