"""The process that reads tables: it comes when it is asked for, and another comes when it is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import msgspec
import pytest

from slipstream.console.answers import Refused
from slipstream.console.tables_process import Sql, TablesProcess
from tests.client.loop import in_loop
from tests.pipeline.sample_tables import make_table


@in_loop
async def test_a_process_that_ended_is_told_of_and_the_next_question_has_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_table(tmp_path, "messages", [])
    process = TablesProcess(tmp_path, 64 << 20)
    try:
        await process.start()
        (worker,) = _workers()
        os.kill(worker, signal.SIGSEGV)
        with pytest.raises(Refused, match="ended; the console's log says more"):
            await process.ask(Sql("select 1", 10))
        assert "ended with exit code -11" in caplog.text
        await process.start()
        answer = msgspec.json.decode(await process.ask(Sql("select 1", 10)))
        assert answer["rows"] == [[1]]
    finally:
        await process.end()
    assert _workers() == []


@in_loop
async def test_what_a_process_has_put_on_the_disk_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(tmp_path / "tables", "messages", [])
    spilled = tmp_path / "spilled"
    spilled.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spilled))
    process = TablesProcess(tmp_path / "tables", 64 << 20)
    try:
        await process.start()
        asking = asyncio.create_task(
            process.ask(Sql("select count(*) from range(1000000000) a, range(1000000000) b", 1))
        )
        while not list(spilled.rglob("shape.parquet")):
            assert not asking.done()
            await asyncio.sleep(0.01)
    finally:
        await process.end()
    with pytest.raises(Refused):
        await asking
    assert list(spilled.iterdir()) == []


def _workers() -> list[int]:
    children = [int(pid) for each in Path("/proc/self/task").glob("*/children") for pid in each.read_text().split()]
    return [pid for pid in children if b"tables_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
