"""Who comes second, commits all the same."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from slipstream.pipeline.delta.commit import TableTooBusy, repeated
from slipstream.pipeline.looking import Tables
from tests.pipeline.sample_tables import make_table

NOW = dt.datetime(2026, 3, 14, 12, tzinfo=dt.UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = [{"tenant": f"tenant-{number}", "minute": NOW} for number in range(25)]
    make_table(tmp_path, "job_throughput", rows, parts=25)
    return tmp_path / "job_throughput"


def test_a_commit_that_comes_second_is_made_again_on_what_is_there_then(path: Path) -> None:
    looked: list[int] = []

    def compact(found: DeltaTable) -> Any:
        looked.append(found.version())
        if len(looked) == 1:
            DeltaTable(path).delete("tenant = 'tenant-1'")
        return found.optimize.compact()

    repeated("job_throughput", lambda: DeltaTable(path), compact)
    assert len(looked) == 2
    tenants = {tenant for (tenant,) in Tables(path.parent).query("select tenant from job_throughput")}
    assert tenants == {f"tenant-{number}" for number in range(25) if number != 1}


def test_a_table_that_never_rests_is_said(path: Path) -> None:
    tenants = iter(range(25))

    def compact(found: DeltaTable) -> Any:
        DeltaTable(path).delete(f"tenant = 'tenant-{next(tenants)}'")
        return found.optimize.compact()

    with pytest.raises(
        TableTooBusy, match=r"job_throughput is written to so often .* try again when there is less to do"
    ):
        repeated("job_throughput", lambda: DeltaTable(path), compact)
