"""`/metrics`: the names DriftQ's dashboards use, with their labels and values one can believe."""

from __future__ import annotations

import math

from tests.server.conftest import MemoryServer, StartMemory
from tests.server_process import ServerProcess


def test_lag_and_in_flight_are_counted_by_topic_group_and_partition(memory: MemoryServer) -> None:
    memory.create("t", 2)
    for number in range(5):
        memory.produce("t", str(number), partition_override=number % 2)
    labels = {"topic": "t", "group": "g"}
    assert math.isnan(memory.metric("consumer_lag", **labels, partition="0")), "there is no such group yet"
    items = memory.take("t", 5)
    for partition, count in (("0", 3), ("1", 2)):
        assert memory.metric("inflight_messages", **labels, partition=partition) == count
        assert memory.metric("consumer_lag", **labels, partition=partition) == count
    for item in items:
        if item["partition"] == 1:
            memory.ack("t", item)
    assert memory.metric("inflight_messages", **labels, partition="1") == 0
    assert memory.metric("consumer_lag", **labels, partition="1") == 0
    memory.produce("t", "x", partition_override=1)
    assert memory.metric("consumer_lag", **labels, partition="1") == 1
    assert memory.metric("inflight_messages", **labels, partition="0") == 3


def test_dead_letters_are_counted_by_topic_and_reason_across_a_crash(durable: ServerProcess, kept: str) -> None:
    durable.produce(kept, "v", retry_policy={"max_attempts": 1})
    durable.nack(kept, durable.take(kept)[0])
    labels = {"topic": kept, "reason": "max_attempts"}
    assert durable.metric("dlq_messages_total", **labels) == 1
    durable.restart()
    assert durable.metric("dlq_messages_total", **labels) == 1


def test_rejections_are_counted_by_reason(start_memory: StartMemory) -> None:
    server = start_memory(profile="driftq-v1")
    server.create("t")
    assert server.metric("produce_rejected_total", reason="partition_buffer_full") == 0
    server.produce("t", "1")
    assert server.produce("t", "x" * 19).status_code == 429
    server.produce("t", "2")
    for _ in range(3):
        assert server.produce("t", "3").status_code == 429
    assert server.metric("produce_rejected_total", reason="partition_buffer_bytes_full") == 1
    assert server.metric("produce_rejected_total", reason="partition_buffer_full") == 3


def test_our_own_numbers_add_up(server: ServerProcess) -> None:
    server.create("t")
    for number in range(3):
        server.produce("t", str(number), idempotency_key=str(number))
    server.produce("t", "0", idempotency_key="0")
    items = server.take("t", 3)
    server.ack("t", items[0])
    server.nack("t", items[1])
    server.take("t", 1)
    totals = {"produced": 3, "deduplicated": 1, "delivered": 4, "redelivered": 1, "acked": 1, "nacked": 1}
    assert {name: server.metric(f"slipstream_{name}_total") for name in totals} == totals
    assert server.metric("slipstream_group_watermark", topic="t", group="g", partition="0") == 0
    assert server.metric("slipstream_partition_messages", topic="t", partition="0") == 3
    assert server.metric("slipstream_writable") == 1
    assert server.metric("slipstream_journal_syncs_total") >= 1


def test_refusals_are_counted_by_status(memory: MemoryServer) -> None:
    memory.raw(b"nonsense\r\n\r\n")
    assert memory.metric("slipstream_requests_refused_total", status="400") == 1


def test_open_streams_are_counted(memory: MemoryServer) -> None:
    memory.create("t")
    with memory.consume("t"), memory.consume("t", owner="p"):
        assert memory.metric("slipstream_consumers", topic="t", group="g") == 2


def test_prometheus_can_read_it(shared: ServerProcess) -> None:
    response = shared.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    for name in ("inflight_messages", "consumer_lag", "dlq_messages_total", "produce_rejected_total"):
        assert f"# TYPE {name.removesuffix('_total')}" in response.text
