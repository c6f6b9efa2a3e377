"""Which rows of a file become one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.pipeline.downloads import rows as rows_module
from slipstream.pipeline.downloads.rows import Rows
from slipstream.pipeline.downloads.slices import Slice, slices_of


def _rows(path: Path, count: int, **columns: Any) -> Rows:
    urls = [f"http://192.0.2.7/{number}" for number in range(count)]
    pq.write_table(pa.table({"url": urls, **columns}), path / "table.parquet")
    return Rows(path / "table.parquet")


def test_so_many_rows_are_a_job(tmp_path: Path) -> None:
    found = list(slices_of(_rows(tmp_path, 25), 10, "photos", "shop"))
    assert found == [Slice(0, 10, "photos", "shop"), Slice(10, 10, "photos", "shop"), Slice(20, 5, "photos", "shop")]


def test_a_file_without_rows_has_no_jobs(tmp_path: Path) -> None:
    assert list(slices_of(_rows(tmp_path, 0), 10, "photos")) == []
    assert list(slices_of(_rows(tmp_path, 0, job=pa.array([], pa.string())), 10, "photos")) == []


def test_rows_of_a_job_that_stand_together_are_one_up_to_its_size(tmp_path: Path) -> None:
    jobs = ["a"] * 3 + ["b"] * 5 + ["a"] * 1 + [None] * 2
    found = list(slices_of(_rows(tmp_path, 11, job=jobs), 4, "photos"))
    assert [(each.first, each.count) for each in found] == [(0, 3), (3, 4), (7, 1), (8, 1), (9, 2)]


def test_another_type_or_tenant_is_another_job_and_what_is_not_said_is_as_given(tmp_path: Path) -> None:
    rows = _rows(tmp_path, 5, job_type=["x", "x", None, "y", "y"], tenant=["s", "t", "t", "t", ""])
    assert list(slices_of(rows, 100, "photos", "shop")) == [
        Slice(0, 1, "x", "s"),
        Slice(1, 1, "x", "t"),
        Slice(2, 1, "photos", "t"),
        Slice(3, 1, "y", "t"),
        Slice(4, 1, "y", "shop"),
    ]


def test_they_are_the_same_however_the_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _rows(tmp_path, 100, job=[str(number // 7) for number in range(100)])
    found = list(slices_of(rows, 5, "photos"))
    monkeypatch.setattr(rows_module, "BATCH_ROWS", 9)
    assert list(slices_of(rows, 5, "photos")) == found
    assert sum(each.count for each in found) == 100
