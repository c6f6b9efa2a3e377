"""The registry of keys on its own: what it forgets, and when."""

from __future__ import annotations

from slipstream.broker import Broker
from slipstream.broker.changes import Change, decode_changes
from slipstream.broker.idempotency import PAGE, Identity, Registry, Status
from tests.broker.simulator import ListLog, Simulator


def key(name: str) -> Identity:
    return ("", 1, name)


def test_a_registry_comes_back_from_its_pages_as_it_was() -> None:
    registry = Registry(1_000_000, 10_000)
    for n in range(3 * PAGE + 7):
        operation = registry.put(key(str(n % 700)), Status.COMMITTED, n)
        operation.partition, operation.offset = n % 3, n
    again = Registry(1_000_000, 10_000)
    again.restore(registry.pages())
    assert again.operations == registry.operations
    assert again.find(key("5"), 1_000_699) == registry.find(key("5"), 1_000_699)


def test_pages_of_keys_that_have_expired_are_given_back() -> None:
    registry = Registry(1_000, 10_000_000)
    for n in range(100 * PAGE):
        registry.put(key(str(n)), Status.COMMITTED, n)
        registry.find(key("x"), n)
    assert len(registry.pages()) < 1_000 // PAGE + 3


def test_after_a_rush_nobody_waits_until_all_keys_are_forgotten_and_none_of_them_counts() -> None:
    registry = Registry(1_000, 10_000)
    for n in range(5_000):
        registry.put(key(str(n)), Status.COMMITTED, n // 5_000)
    assert registry.find(key("4999"), 1_000) is None
    assert len(registry.operations) > 4_900, "it was not the business of one who asks for another"
    registry.forget_expired(1_000, at_most=4_000)
    assert 0 < len(registry.operations) <= 1_000
    registry.forget_expired(1_000, at_most=4_000)
    assert not registry.operations
    assert not registry._expiry


def test_a_broker_that_nobody_asks_forgets_them_too() -> None:
    sim = Simulator()
    sim.create()
    sim.produce(envelope={"idempotency_key": "once"})
    sim.commit()
    assert sim.broker.state.produced.operations
    sim.broker.forget_expired(sim.now_ms + sim.broker.config.idempotency_ttl_ms)
    assert not sim.broker.state.produced.operations


def test_a_key_that_begins_again_and_again_takes_no_more_room_each_time() -> None:
    registry = Registry(1_000, 100)
    registry.begin(key("held by someone for hours"), 0, "worker", 3_600_000)
    for n in range(10_000):
        registry.begin(key("k"), n, "worker", 1_000)
        registry.put(key("k"), Status.FAILED, n)
    assert len(registry._expiry) < 3_000
    assert len(registry.pages()) * PAGE < 3_000


def test_what_is_remembered_is_the_same_after_the_queue_was_made_anew() -> None:
    registry = Registry(1_000, 100)
    registry.put(key("old"), Status.COMMITTED, 0)
    registry.put(key("new"), Status.COMMITTED, 500)
    for _ in range(5_000):
        registry.put(key("busy"), Status.FAILED, 600)
    assert registry.find(key("old"), 999) is not None
    assert registry.find(key("old"), 1_000) is None
    assert list(registry.operations) == [key("new"), key("busy")]


def test_past_its_limit_the_oldest_keys_are_forgotten_and_counted() -> None:
    registry = Registry(1_000, 10)
    for n in range(15):
        registry.put(key(str(n)), Status.COMMITTED, n)
    assert list(registry.operations) == [key(str(n)) for n in range(5, 15)]
    assert registry.evicted == 5


def test_keys_of_a_megabyte_are_told_apart_and_not_kept() -> None:
    """The number of keys is limited: a million of them must not be a terabyte."""
    sim = Simulator()
    sim.create()
    long = {"tenant_id": "t" * 100_000, "idempotency_key": "k" * 1_000_000}
    sim.produce(envelope=long)
    assert sim.produce(envelope=long).deduplicated
    assert not sim.produce(envelope=long | {"idempotency_key": "k" * 999_999 + "x"}).deduplicated
    assert not sim.produce(envelope=long | {"tenant_id": "t" * 99_999}).deduplicated
    assert len(sim.broker.snapshot()) < 2_000
    sim.crash()
    assert sim.produce(envelope=long).deduplicated


def test_a_workers_key_of_a_megabyte_survives_a_restart_without_being_kept() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    key = "k" * 1_000_000
    assert sim.broker.begin_once(sim.now_ms, "t", "g", key, "o")
    sim.broker.settle_once(sim.now_ms, "t", "g", key, "o")
    sim.commit()
    assert sum(map(len, sim.journal)) < 2_000
    sim.crash()
    assert not sim.broker.begin_once(sim.now_ms, "t", "g", key, "o")


def test_a_long_lease_does_not_make_a_restart_forget_what_was_committed() -> None:
    """Replayed, its end was taken for the time of day, by which all that was committed before had long expired."""
    sim = Simulator()
    sim.create()
    sim.attach()
    broker = sim.broker
    names = [f"key {n}" for n in range(2 * PAGE)]
    for name in names:
        assert broker.begin_once(sim.now_ms, "t", "g", name, "o")
        broker.settle_once(sim.now_ms, "t", "g", name, "o")
    snapshot = broker.snapshot()
    broker.effects.changes.clear()
    broker.begin_once(sim.now_ms, "t", "g", "a long one", "o", lease_ms=3_600_000)
    frame = decode_changes(b"".join((b"\x91", *broker.effects.changes)))

    def restarted(snapshot: bytes, changes: list[Change]) -> Broker:
        again = Broker(broker.config, lambda *_: ListLog([]))
        again.restore(snapshot)
        again.replay(changes)
        return again

    twice = restarted(restarted(snapshot, frame).snapshot(), [])
    assert not any(twice.begin_once(sim.now_ms, "t", "g", name, "o") for name in names)
