"""A slip whose step submits a job is one trace, from ingress through router, workers and downloads to egress: in
processes as people run them, whose spans go to a collector."""

from __future__ import annotations

import contextlib
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.collector import Collector, Seen
from tests.program import Program
from tests.server_process import ServerProcess

SHOP = """
import os

from slipstream.jobs.client import JobsClient
from slipstream.slip import StepFailed, Work, Worker

worker = Worker("shop")


@worker.step("fetch")
async def fetch(work: Work) -> None:
    if work.attempt == 0:
        raise StepFailed("busy", "not now")
    manifest = {"manifest_version": "v1", "resources": [{"id": "page", "url": os.environ["WEB"]}]}
    async with JobsClient(os.environ["JOBS_URL"]) as jobs:
        work.payload["job"] = (await jobs.submit("crawl", manifest)).job_id


@worker.step("reply")
def reply(work: Work) -> dict[str, str]:
    return {**work.payload, "reply": "fetched"}
"""

INGRESS = """
import asyncio

from slipstream.bus import open_bus
from slipstream.slip import submit
from slipstream.telemetry import traced


async def main() -> None:
    async with open_bus() as bus:
        await submit(bus, "page.v1", {"page": 1}, source="test", correlation_id="c-1")


with traced("ingress"):
    asyncio.run(main())
"""


class Web:
    """Not there the first time it is asked."""

    def __init__(self) -> None:
        asked = 0

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                nonlocal asked
                asked += 1
                self.send_response(503 if asked == 1 else 200)
                self.send_header("content-length", "5")
                self.end_headers()
                self.wfile.write(b"hello")

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library calls it
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}/page?secret=1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    try:
        yield started
    finally:
        for each in started:
            each.kill()
            each.wait()


def path(spans: list[Seen], span: Seen) -> list[str]:
    """The names of its ancestors, the oldest first, and its own."""
    by_id = {each.span_id: each for each in spans}
    names = [span.name]
    while span.parent_id:
        span = by_id[span.parent_id]
        names.append(span.name)
    return names[::-1]


def test_a_slip_that_submits_a_job_is_one_trace(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text("routes:\n  page.v1:\n    steps: [fetch, reply]\n")
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "ingress.py").write_text(INGRESS)
    server, web = ServerProcess(tmp_path / "data"), Web()
    server.start()
    with Collector() as collector, contextlib.closing(web), programs() as started:
        ours = ("SLIPSTREAM_", "MESSAGE_BUS_", "BUS_", "SLIP_", "JOBS_", "OTEL_", "HEALTH_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
            "MESSAGE_BUS_DRIVER": "http",
            "SLIPSTREAM_URL": server.base,
            "SLIP_STORE": str(tmp_path / "slips.db"),
            "SLIP_RETRY_BASE_MS": "20",
            "JOBS_STORAGE": str(tmp_path / "objects"),
            "JOBS_LEDGER": str(tmp_path / "jobs.db"),
            "JOBS_PORT": "0",
            "JOBS_ALLOW_NETWORKS": "127.0.0.0/8",
            "JOBS_RETRY_BASE_MS": "20",
            "WEB": web.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "NO_COLOR": "1",
        }

        def start(*command: str) -> Program:
            started.append(Program([sys.executable, *command], environment, tmp_path))
            return started[-1]

        try:
            jobs = start("-m", "slipstream", "jobs", "serve", "--log-format", "json")
            environment["JOBS_URL"] = jobs.wait_for(r"taking jobs at (http://[^ ]+)/jobs")[1]
            worker = start("-m", "slipstream", "jobs", "worker", "--log-format", "json")
            slips = start("-m", "slipstream", "slip", "run", "--routes", "routes.yaml", "shop:worker")
            worker.wait_for("a worker of")
            slips.wait_for("at work on")
            ingress = start("ingress.py")
            assert ingress.wait() == 0, ingress.said
            collector.until(lambda spans: "deliver" in {span.name for span in spans})
            collector.until(lambda spans: any(span.attributes.get("jobs.state") == "completed" for span in spans))
            assert [each.stop() for each in (slips, worker, jobs)] == [0, 0, 0]
        finally:
            server.kill()
        spans = collector.spans

    assert len({span.trace_id for span in spans}) == 1
    ids = {span.span_id for span in spans}
    assert [span.name for span in spans if span.parent_id not in ids] == ["submit"], "all others have their parents"
    assert {span.service for span in spans} == {
        "ingress",
        "slipstream-slips",
        "slipstream-jobs",
        "slipstream-downloads",
    }

    (stored,) = [span for span in spans if span.name == "store"]
    to_the_job = ["submit", "route", "step fetch", "step fetch", "POST /jobs", "publish tasks", "task"]
    assert path(spans, stored) == [*to_the_job, "store"]
    (delivered,) = [span for span in spans if span.name == "deliver"]
    back = ["submit", "route", "step fetch", "step fetch", "route", "step reply", "route", "deliver"]
    assert path(spans, delivered) == back
    ended = [span for span in spans if span.name == "status" and span.attributes["jobs.state"] == "completed"]
    assert path(spans, ended[-1])[: len(to_the_job)] == to_the_job

    failed, done = sorted(
        (span for span in spans if span.name == "download attempt"), key=lambda span: len(span.failed or "")
    )[::-1]
    assert failed.failed is not None
    assert "503" in failed.failed
    assert done.failed is None
    assert (done.attributes["jobs.attempt"], done.attributes["http.response.status_code"]) == (2, 200)
    assert done.attributes["server.address"] == "127.0.0.1"
    assert not [span for span in spans if "secret" in str(span.attributes)]
    first, second = [span for span in spans if span.name == "step fetch"]
    if first.attributes["slip.attempt"]:
        first, second = second, first
    assert (first.failed, second.failed) == ("not now", None)
    assert first.attributes == {"slip.correlation_id": "c-1", "slip.step": "fetch", "slip.attempt": 0}
    assert delivered.attributes == {"slip.correlation_id": "c-1", "slip.topic": "egress.deliver.v1"}
    (posted,) = [span for span in spans if span.name == "POST /jobs"]
    assert posted.attributes["jobs.job_id"] == stored.attributes["jobs.job_id"]
    assert posted.attributes["http.response.status_code"] == 202
