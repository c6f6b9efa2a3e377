"""`/metrics`: read off the broker when somebody asks, so that counting costs the hot path nothing."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slipstream.broker import OPERATIONS
from slipstream.engine import Engine
from slipstream.router import RouterHook
from slipstream.server.front import Front


class BrokerCollector(Collector):
    """The names DriftQ's dashboards use, and more of our own under `slipstream_`."""

    def __init__(self, engine: Engine, front: Front, router: RouterHook | None) -> None:
        self.engine = engine
        self.front = front
        self.router = router

    def collect(self) -> Iterable[Metric]:
        yield from self._groups()
        yield from self._topics()
        yield from self._totals()
        yield from self._storage()

    def _groups(self) -> Iterable[Metric]:
        names = ["topic", "group", "partition"]
        in_flight = GaugeMetricFamily("inflight_messages", "On lease to a consumer", labels=names)
        lag = GaugeMetricFamily("consumer_lag", "Messages the group has not finished", labels=names)
        watermark = GaugeMetricFamily(
            "slipstream_group_watermark", "Everything up to this offset is finished", labels=names
        )
        lost = CounterMetricFamily(
            "slipstream_retention_lost_messages",
            "Removed by retention before the group finished them",
            labels=["topic", "group"],
        )
        unreadable = GaugeMetricFamily(
            "slipstream_unreadable", "1 where a group stands still because its log cannot be read on", labels=names
        )
        retrying = GaugeMetricFamily(
            "slipstream_retrying_messages", "Failed messages that wait for another attempt", labels=names
        )
        consumers = GaugeMetricFamily("slipstream_consumers", "Open streams", labels=["topic", "group"])
        parked = GaugeMetricFamily(
            "slipstream_parked_consumers",
            "Streams that get no new messages, because they let leases run out and settled nothing",
            labels=["topic", "group"],
        )
        for group in self.engine.broker.state.groups_by_id.values():
            lost.add_metric([group.topic.name, group.name], group.lost)
            consumers.add_metric([group.topic.name, group.name], len(group.consumers))
            parked.add_metric([group.topic.name, group.name], group.parked)
            for progress in group.progress:
                labels = [group.topic.name, group.name, str(progress.partition.number)]
                in_flight.add_metric(labels, len(progress.leases))
                retrying.add_metric(labels, progress.retrying)
                lag.add_metric(labels, progress.lag)
                watermark.add_metric(labels, progress.watermark)
                if progress.unreadable:
                    unreadable.add_metric(labels, 1)
        yield from (in_flight, retrying, lag, watermark, lost, unreadable, consumers, parked)

    def _topics(self) -> Iterable[Metric]:
        names = ["topic", "partition"]
        messages = GaugeMetricFamily("slipstream_partition_messages", "Messages kept", labels=names)
        size = GaugeMetricFamily("slipstream_partition_bytes", "Key and value bytes kept", labels=names)
        dead = CounterMetricFamily("dlq_messages", "Moved to the dead letters", labels=["topic", "reason"])
        for topic in self.engine.broker.state.topics.values():
            for partition in topic.partitions:
                labels = [topic.name, str(partition.number)]
                messages.add_metric(labels, partition.committed - partition.first_index)
                size.add_metric(labels, partition.bytes_total - partition.first_bytes)
        for (name, reason), count in self.engine.broker.state.dead_lettered.items():
            dead.add_metric([name, reason], count)
        yield from (messages, size, dead)

    def _totals(self) -> Iterable[Metric]:
        broker = self.engine.broker
        rejected = CounterMetricFamily("produce_rejected", "Refused by backpressure", labels=["reason"])
        for reason, count in broker.intake.rejected.items():
            rejected.add_metric([reason], count)
        yield rejected
        refused = CounterMetricFamily("slipstream_requests_refused", "Cut off while being read", labels=["status"])
        for status, count in self.front.refused.items():
            refused.add_metric([str(status)], count)
        yield refused
        router = self.router
        operations = CounterMetricFamily("slipstream_operations", "Messages an operator helped", labels=["operation"])
        for operation in OPERATIONS:
            operations.add_metric([operation], broker.operations.totals[operation])
        yield operations
        expired = CounterMetricFamily("slipstream_expired", "Groups and topics that expired", labels=["kind"])
        for kind in ("group", "topic"):
            expired.add_metric([kind], broker.expiry.totals[kind])
        yield expired
        totals = {
            "produced": ("Messages stored", broker.intake.produced_total),
            "deduplicated": ("Produces swallowed by an idempotency key", broker.intake.deduplicated_total),
            "delivered": ("Deliveries, repeated ones included", broker.dispatcher.delivered_total),
            "redelivered": ("Repeated deliveries", broker.dispatcher.redelivered_total),
            "acked": ("Acks", broker.acked_total),
            "nacked": ("Nacks", broker.nacked_total),
            "router_decisions": ("Messages a router decided on", router.decided_total if router else 0),
            "router_failures": (
                "Router errors, time-outs and decisions that could not be followed",
                (router.failed_total if router else 0) + broker.intake.router_misses_total,
            ),
            "router_skipped": (
                "Messages a router was not asked about, because it is paused",
                router.skipped_total if router else 0,
            ),
            "redriven": ("Dead letters sent back", broker.intake.redriven_total),
            "idempotency_evicted": (
                "Keys forgotten before their time",
                broker.state.produced.evicted + broker.state.batches.evicted + broker.state.once.evicted,
            ),
        }
        for name, (text, value) in totals.items():
            yield CounterMetricFamily(f"slipstream_{name}", text, value=value)
        well = GaugeMetricFamily("slipstream_router_well", "0 while a router fails or is paused")
        if router is not None:
            well.add_metric([], 0 if router.trouble else 1)
        yield well

    def _storage(self) -> Iterable[Metric]:
        journal = self.engine.store.journal
        yield CounterMetricFamily("slipstream_journal_syncs", "Syncs of the journal", value=journal.sync_count)
        yield CounterMetricFamily("slipstream_journal_sync_seconds", "Time in them", value=journal.sync_seconds)
        yield GaugeMetricFamily(
            "slipstream_compaction_backlog",
            "Journal files waiting to be compacted",
            self.engine.store.compactor.backlog,
        )
        free = GaugeMetricFamily("slipstream_disk_free_bytes", "Free space on the volume of the data directory")
        low = GaugeMetricFamily("slipstream_disk_low", "1 while producers are refused because the disk is nearly full")
        room = self.engine.store.room
        if room is not None:
            free.add_metric([], room.free_bytes)
            low.add_metric([], 1 if room.is_low or self.engine.store.compactor.stalled is not None else 0)
        yield free
        yield low
        yield GaugeMetricFamily(
            "slipstream_writable",
            "0 after the journal failed, or while there is no room for it",
            0 if self.engine.trouble is not None else 1,
        )


class Metrics:
    """One registry per server, so that two of them in a process do not mix."""

    def __init__(self, collector: BrokerCollector) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)
