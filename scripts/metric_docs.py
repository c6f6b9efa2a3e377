"""The reference of metrics, from the registries of the parts: what each is, its labels, and who has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from slipstream.bus.metrics import metrics_in as bus_metrics
from slipstream.console.metrics import metrics_in as console_metrics
from slipstream.engine import Engine, ManualClock
from slipstream.jobs.metrics import metrics_in as job_metrics
from slipstream.jobs.metrics import service_metrics_in as job_service_metrics
from slipstream.pipeline.metrics import metrics_in as pipeline_metrics
from slipstream.server.front import Front
from slipstream.server.metrics import BrokerCollector
from slipstream.settings import Settings
from slipstream.slip.metrics import metrics_in as slip_metrics
from slipstream.store import MemoryStore

_INTRODUCTION = """\
# Metrics

<!-- Written by scripts/generate_docs.py from the metrics of each part: change them there. -->

For Prometheus, at `GET /metrics`: of the broker, the console and the jobs service on the port they have, of all other
parts on [the one of their health](observability.md#health). Every part has the usual `process_…` and `python_…`
besides. A histogram has `…_bucket`, `…_sum` and `…_count`. What to look at first, and a dashboard:
[observability](observability.md#metrics).
"""


class Described(NamedTuple):
    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def of_registry(fill: Callable[[CollectorRegistry], object]) -> list[Described]:
    registry = CollectorRegistry()
    fill(registry)
    collectors: list[Any] = list(registry._collector_to_names)
    return [_described(family, each._labelnames) for each in collectors for family in each.describe()]


def of_the_broker() -> list[Described]:
    settings = Settings()
    engine = Engine(
        settings.broker_config(), MemoryStore(settings.store_config()), settings.engine_config(), ManualClock(0)
    )
    collector = BrokerCollector(engine, Front(engine, {}, settings.limits()), None)
    families: list[Any] = list(collector.collect())
    return [_described(family, family._labelnames) for family in families]


def _described(family: Any, labels: tuple[str, ...]) -> Described:
    name = family.name + ("_total" if family.type == "counter" else "")
    return Described(name, family.type, tuple(labels), family.documentation.rstrip("."))


PARTS: dict[str, tuple[str, Callable[[], list[Described]]]] = {
    "Broker": ("Of `slipstream serve`.", of_the_broker),
    "Bus": (
        "Of every part that is on a bus: routers and workers of slips, the jobs service and its workers. Not of the "
        "broker, whose `consumer_lag` has a `partition` and no `driver`.",
        lambda: of_registry(bus_metrics),
    ),
    "Slips": (
        "Of routers and workers of slips: `slipstream slip run`, `router` and `worker`. On Spark the code of errors is "
        "`on_spark`, and durations are not known.",
        lambda: of_registry(slip_metrics),
    ),
    "Jobs service": ("Of `slipstream jobs serve` and `run`.", lambda: of_registry(job_service_metrics)),
    "Job workers": ("Of `slipstream jobs worker` and `run`.", lambda: of_registry(job_metrics)),
    "Pipeline": ("Of `slipstream pipeline run`.", lambda: of_registry(pipeline_metrics)),
    "Console": ("Of `slipstream console`.", lambda: of_registry(console_metrics)),
}


def render_metrics() -> str:
    lines = [_INTRODUCTION]
    for part, (about, metrics) in PARTS.items():
        lines += [f"## {part}", "", about, "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        lines += [*_rows(metrics()), ""]
    return "\n".join(lines)


def _rows(metrics: list[Described]) -> Iterator[str]:
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.kind} | {labels} | {each.text} |"
