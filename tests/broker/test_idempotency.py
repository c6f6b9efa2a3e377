"""The registry of keys on its own: what it forgets, and when."""

from __future__ import annotations

from slipstream.broker.idempotency import Registry, Status


def test_a_key_that_begins_again_and_again_takes_no_more_room_each_time() -> None:
    registry: Registry[str] = Registry(1_000, 100)
    registry.begin("held by someone for hours", 0, "worker", 3_600_000)
    for n in range(10_000):
        registry.begin("k", n, "worker", 1_000)
        registry.put("k", Status.FAILED, n)
    assert len(registry._expiry) < 3_000


def test_what_is_remembered_is_the_same_after_the_queue_was_made_anew() -> None:
    registry: Registry[str] = Registry(1_000, 100)
    registry.put("old", Status.COMMITTED, 0)
    registry.put("new", Status.COMMITTED, 500)
    for _ in range(5_000):
        registry.put("busy", Status.FAILED, 600)
    assert registry.find("old", 999) is not None
    assert registry.find("old", 1_000) is None
    assert list(registry.operations) == ["new", "busy"]


def test_past_its_limit_the_oldest_keys_are_forgotten_and_counted() -> None:
    registry: Registry[int] = Registry(1_000, 10)
    for n in range(15):
        registry.put(n, Status.COMMITTED, n)
    assert list(registry.operations) == list(range(5, 15))
    assert registry.evicted == 5
