"""Tables of resources, in each kind of file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.jobs.errors import InvalidJobs
from slipstream.pipeline.downloads import rows as module
from slipstream.pipeline.downloads.rows import Rows

COUNT = 250


def _parquet(path: Path) -> Path:
    table = pa.table({"id": [f"{number:04}" for number in range(COUNT)], "url": [_url(n) for n in range(COUNT)]})
    pq.write_table(table, path, row_group_size=100)
    return path


def _csv(path: Path) -> Path:
    path.write_text("id,url\n" + "".join(f"{number:04},{_url(number)}\n" for number in range(COUNT)))
    return path


def _lines(path: Path) -> Path:
    path.write_text("".join(f'{{"id": "{number:04}", "url": "{_url(number)}"}}\n' for number in range(COUNT)))
    return path


def _url(number: int) -> str:
    return f"http://192.0.2.7/{number}"


WRITERS: dict[str, Any] = {".parquet": _parquet, ".csv": _csv, ".ndjson": _lines, ".jsonl": _lines}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("start", [0, 1, 99, 100, 249, 250])
def test_rows_come_in_order_from_where_they_are_wanted(suffix: str, start: int, tmp_path: Path) -> None:
    found = Rows(WRITERS[suffix](tmp_path / f"table{suffix}"))
    assert (found.count(), found.columns) == (COUNT, ["id", "url"])
    read = {}
    for first, batch in found.batches(["url", "id", "mime"], start):
        for number, row in enumerate(batch.to_pylist(), first):
            read[number] = (row["id"], row["url"])
    assert {number: row for number, row in read.items() if number >= start} == {
        number: (f"{number:04}", _url(number)) for number in range(start, COUNT)
    }, "an id of 0017 is not 17"


def test_of_row_groups_before_the_start_nothing_is_read(tmp_path: Path) -> None:
    found = Rows(_parquet(tmp_path / "table.parquet"))
    assert min(first for first, _ in found.batches(["url"], start=210)) == 200


def test_large_files_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 60)
    monkeypatch.setattr(module, "LINES_BYTES", 1000)
    for suffix in (".parquet", ".jsonl"):
        found = Rows(WRITERS[suffix](tmp_path / f"table{suffix}"))
        firsts = [first for first, _ in found.batches(["url"])]
        assert len(firsts) > 3
        assert firsts == sorted(set(firsts))


def test_the_digest_is_that_of_the_content(tmp_path: Path) -> None:
    one, same = _csv(tmp_path / "a.csv"), _csv(tmp_path / "b.csv")
    assert Rows(one).digest() == Rows(same).digest()
    same.write_text(same.read_text() + "x,http://192.0.2.7/x\n")
    assert Rows(one).digest() != Rows(same).digest()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("table.xlsx", b"", "ends in .parquet, .csv, .ndjson, .jsonl"),
        ("table.parquet", b"garbage", "cannot be read"),
        ("table.csv", b"id,name\n1,a\n", "url is needed, and there may be id, headers, tags, checksum, mime, job"),
        ("table.csv", b"url,colour\nhttp://192.0.2.7,red\n", "has the columns url, colour"),
        ("table.ndjson", b"[1]\n", "is no object"),
        ("table.ndjson", b"{\n", "cannot be read"),
    ],
)
def test_what_is_no_table_of_resources_is_refused_with_words(
    name: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidJobs) as refusal:
        Rows(path)
    assert reason in str(refusal.value)
