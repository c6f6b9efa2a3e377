from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from slipstream.jobs import metrics
from slipstream.jobs.refusal import Refused
from tests.jobs.lab import laboratory


def test_jobs_are_counted_by_state_and_submissions_by_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "COUNTS_S", 0.0)
    registry = CollectorRegistry()

    def count(state: str) -> float | None:
        return registry.get_sample_value("jobs_by_state", {"state": state})

    async def run() -> None:
        async with laboratory(tmp_path, bus={"driver": "memory", "registry": registry}) as lab:
            assert {count(state) for state in metrics.STATES} == {0}
            job_id = await lab.submit({"a": "http://169.254.0.1/"})
            await lab.ended(job_id)
            assert count("failed") == 1
            with pytest.raises(Refused):
                await lab.service.ingress.submit("crawl", b"nonsense")

    asyncio.run(run())
    submissions = {
        (sample.labels["outcome"], sample.labels["code"]): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "jobs_submissions_total"
    }
    assert submissions == {("accepted", ""): 1, ("refused", "INVALID_PAYLOAD"): 1}
    assert math.isnan(count("failed") or 0), "the ledger is closed, and nobody can say"
