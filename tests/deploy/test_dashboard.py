"""The dashboard asks only for what is there, and shows what matters; Prometheus finds the parts."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from yaml import safe_load

from scripts.dashboard import PATH, ROWS, dashboard_text
from scripts.metric_docs import PARTS, Described
from slipstream.bus import open_bus
from slipstream.jobs.client import JobsClient
from slipstream.slip import submit
from tests.cli.test_health import SHOP, part
from tests.program import Program
from tests.server_process import ServerProcess

ROOT = Path(__file__).parent.parent.parent

FOUND: dict[str, list[Described]] = {part: metrics() for part, (_, metrics) in PARTS.items()}
EVERYWHERE = {"job", "instance"}
"""What Prometheus puts on everything it scrapes."""
OF_PROCESSES = {"process_resident_memory_bytes"}
SUFFIXES = ("_bucket", "_sum", "_count")

OF_THE_SEEDS = {
    *("step_duration_ms", "step_attempts_total", "step_errors_total", "messages_inflight"),
    *("messages_total", "publish_latency_ms", "consumer_lag"),
    *("inflight_messages", "dlq_messages_total", "produce_rejected_total"),
}
NOT_SHOWN = {
    "slipstream_group_watermark": "an offset: its lag says more",
    "slipstream_partition_messages": "their bytes are shown",
    "slipstream_requests_refused_total": "of clients that send nonsense",
    "slipstream_deduplicated_total": "as it should be",
    "slipstream_router_decisions_total": "as it should be; its failures are shown",
    "slipstream_router_skipped_total": "that its router is paused is shown",
    "slipstream_idempotency_evicted_total": "for who sizes the broker",
    "slipstream_disk_free_bytes": "the machine's own metrics have it; whether it is low is shown",
}


class Question(NamedTuple):
    """What a query of Prometheus asks for."""

    metrics: dict[str, set[str]]
    """By name: the labels that are matched."""
    grouped: set[str]


_WORDS = {"and", "or", "unless", "bool", "offset", "on", "ignoring", "group_left", "group_right", "inf", "nan"}


def parsed(query: str) -> Question:
    assert query.count("(") == query.count(")"), query
    rest = re.sub(r"\[[^\]]*\]", "", query)
    grouped = {
        label.strip() for found in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", rest) for label in found.split(",")
    }
    rest = re.sub(r"\b(?:by|without)\s*\([^)]*\)", "", rest)
    metrics: dict[str, set[str]] = {}
    for name, braces in re.findall(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()\s*(\{[^}]*\})?", re.sub(r'"[^"]*"', '""', rest)):
        if name not in _WORDS and not re.search(rf"\{{[^}}]*\b{name}\b[^}}]*\}}", rest):
            metrics.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces))
    return Question(metrics, grouped - {""})


def questions() -> list[tuple[str, str, str]]:
    """(panel, legend, query)"""
    panels = json.loads(PATH.read_text())["panels"]
    return [
        (panel["title"], target["legendFormat"], target["expr"])
        for panel in panels
        if panel["type"] != "row"
        for target in panel["targets"]
    ]


def family(name: str) -> str:
    """A histogram is asked for by its parts."""
    kinds = {each.name: each.kind for metrics in FOUND.values() for each in metrics}
    for suffix in SUFFIXES:
        if kinds.get(name.removesuffix(suffix)) == "histogram" and name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def test_a_query_is_taken_apart() -> None:
    query = 'histogram_quantile(0.9, sum by (le, step) (rate(x_ms_bucket{a="b c", d=~"e"}[5m]))) / min(y) > bool 0'
    assert parsed(query) == Question({"x_ms_bucket": {"a", "d"}, "y": set()}, {"le", "step"})


def test_it_is_as_the_script_makes_it() -> None:
    assert PATH.read_text() == dashboard_text(), "run: .venv/bin/python -m scripts.generate_docs"


@pytest.mark.parametrize(("panel", "legend", "query"), questions())
def test_every_question_is_about_metrics_and_labels_that_exist(panel: str, legend: str, query: str) -> None:
    question = parsed(query)
    assert question.metrics
    for name, matched in question.metrics.items():
        if name in OF_PROCESSES:
            continue
        labels = [set(each.labels) for metrics in FOUND.values() for each in metrics if each.name == family(name)]
        assert labels, f"{panel}: there is no metric {name}"
        extra = EVERYWHERE | ({"le"} if name.endswith("_bucket") else set())
        assert any(matched | question.grouped <= each | extra for each in labels), f"{panel}: {name} has no such label"
    if question.grouped:
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= question.grouped, "the legend names what is grouped away"


def test_what_matters_is_shown() -> None:
    shown = {family(name) for _, _, query in questions() for name in parsed(query).metrics}
    there = {each.name for metrics in FOUND.values() for each in metrics}
    assert shown >= OF_THE_SEEDS
    assert there - shown == set(NOT_SHOWN)


def test_its_rows_are_the_parts_and_its_panels_do_not_overlap() -> None:
    assert list(ROWS) == ["Broker", "Groups and lag", "Dead letters", "Bus", "Slips", "Jobs", "Pipeline", "Console"]
    panels = json.loads(PATH.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_it_asks_whatever_prometheus_is_chosen_and_names_no_machine() -> None:
    text = PATH.read_text()
    board = json.loads(text)
    assert [each["type"] for each in board["templating"]["list"]] == ["datasource"]
    sources = {target["datasource"]["uid"] for panel in board["panels"] for target in panel.get("targets", [])}
    assert sources == {"${datasource}"}
    assert not re.search(r"https?://|localhost|127\.0\.0\.1", text)


def test_prometheus_is_told_of_every_part() -> None:
    jobs = safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["broker", "slips", "jobs", "downloads", "pipeline", "console"]
    targets = [target for job in jobs for config in job["static_configs"] for target in config["targets"]]
    assert len(set(targets)) == len(targets) == 6


# What parts that really run have


def scraped(text: str) -> dict[str, set[str] | None]:
    """Every metric, with its labels where it has any sample."""
    found: dict[str, set[str] | None] = {}
    for each in text_string_to_metric_families(text):
        name = each.name + ("_total" if each.type == "counter" else "")
        labels = {label for sample in each.samples for label in sample.labels if label != "le"}
        found[name] = labels if each.samples else None
    return found


def check(said: dict[str, set[str] | None], *parts: str) -> None:
    for name in parts:
        for each in FOUND[name]:
            assert each.name in said, f"{name}: {each.name} is not there"
            labels = said[each.name]
            assert labels is None or labels == set(each.labels), each.name


def test_what_is_described_is_what_parts_that_run_really_have(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text("routes:\n  loan.v1:\n    steps: [score]\n")
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "go").touch()
    server = ServerProcess(tmp_path / "data")
    server.start()
    where: dict[str, Any] = {
        "MESSAGE_BUS_DRIVER": "http",
        "SLIPSTREAM_URL": server.base,
        "SLIP_STORE": str(tmp_path / "slips.db"),
        "JOBS_STORAGE": str(tmp_path / "objects"),
        "JOBS_LEDGER": str(tmp_path / "jobs.db"),
        "JOBS_PORT": "0",
    }
    try:
        with (
            part(tmp_path, "slip", "run", "--routes", "routes.yaml", "shop:worker", **where) as slips,
            part(tmp_path, "jobs", "serve", **where) as service,
            part(tmp_path, "jobs", "worker", **where) as worker,
        ):
            jobs_url = taking_jobs_at(service.program)
            slips.until("/health/ready", "ready")
            worker.until("/health/ready", "ready")
            asyncio.run(do_something(server.base, jobs_url))
            slips.until_counted('slips_total{event="completed"} 1.0')
            worker.until_counted('jobs_tasks_total{code="DOWNLOAD_FORBIDDEN_ADDRESS",outcome="failed"} 1.0')
            check(scraped(server.get("/metrics").text), "Broker")
            check(scraped(slips.get("/metrics")[1]), "Bus", "Slips")
            of_jobs = httpx.get(f"{jobs_url}/metrics", timeout=30).text
            check(scraped(of_jobs), "Bus", "Jobs service")
            assert 'jobs_submissions_total{code="",outcome="accepted"} 1.0' in of_jobs
            assert 'jobs_submissions_total{code="INVALID_PAYLOAD",outcome="refused"} 1.0' in of_jobs
            check(scraped(worker.get("/metrics")[1]), "Bus", "Job workers")
            for path, status in (("/health/live", "live"), ("/health/ready", "ready")):
                assert httpx.get(jobs_url + path, timeout=30).json() == {"status": status}
    finally:
        server.kill()


def taking_jobs_at(program: Program) -> str:
    return program.wait_for(r"taking jobs at (http://[^ ]+)/jobs")[1]


async def do_something(url: str, jobs_url: str) -> None:
    async with open_bus(driver="http", url=url, registry=CollectorRegistry()) as bus:
        await submit(bus, "loan.v1", {"sum": 7}, source="test")
    async with JobsClient(jobs_url) as jobs:
        await jobs.submit("crawl", {"manifest_version": "v1", "resources": [{"id": "a", "url": "http://127.0.0.1:1/"}]})
    refused = httpx.post(f"{jobs_url}/jobs", content=b"{}", timeout=30)
    assert refused.status_code == 400
