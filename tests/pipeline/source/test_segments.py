"""Segment files of a real server, and what is in none of them yet."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from slipstream.api import SegmentList
from slipstream.client import Client, compose
from slipstream.pipeline.source import LOG_SCHEMA, Range
from slipstream.pipeline.source.broker_log import BrokerLog
from slipstream.pipeline.source.segments import SegmentUnusable, read_segment, sees_directory
from tests.conftest import StartServer
from tests.server_process import ServerProcess

COUNT = 3_000
SMALL_SEGMENTS = ("--journal-changes", "500", "--compaction-backlog-max", "1000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Some thousand messages of two partitions, most of them in segments."""
    server = ServerProcess(tmp_path_factory.mktemp("data"), *SMALL_SEGMENTS)
    try:
        server.start()
        fill(server)
        yield server
    finally:
        server.kill()


def fill(server: ServerProcess) -> None:
    with Client(server.base) as client:
        client.create_topic("orders", 2)
        for first in range(0, COUNT, 100):
            client.produce_batch(
                "orders",
                [
                    compose(f"v{n}", key=f"user:{n % 9}", attributes={"n": str(n)} if n % 3 else None)
                    for n in range(first, first + 100)
                ],
            )
        until = time.monotonic() + 60
        while listed(client).next_offset < COUNT // 2:
            assert time.monotonic() < until, "there are no segments"
            time.sleep(0.01)


def listed(client: Client, partition: int = 0) -> SegmentList:
    return client.segments("orders", partition)


def rows(log: BrokerLog, start: int, end: int) -> list[dict[str, object]]:
    incarnation = log.standing(["orders"])["orders"].incarnation
    ranges = [Range("orders", incarnation, partition, start, end) for partition in (0, 1)]
    batches = [batch for each in ranges for batch in log.read(each)]
    found: list[dict[str, object]] = pa.Table.from_batches(batches, LOG_SCHEMA).to_pylist()
    return found


@pytest.mark.parametrize(("start", "end"), [(0, COUNT), (700, 701), (517, 1_833), (1_000, 1_000), (2_900, COUNT)])
def test_files_have_what_the_server_answers(server: ServerProcess, start: int, end: int) -> None:
    with BrokerLog(server.base) as with_files, BrokerLog(server.base, files=False) as without:
        found = rows(with_files, start, end)
        assert found == rows(without, start, end)
    assert sorted(row["offset"] for row in found) == list(range(start, end))  # type: ignore[type-var]


def test_most_of_it_is_read_without_the_server(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with BrokerLog(server.base) as log:
        asked: list[int] = []
        read = log._wire.read

        def counted(topic: str, query: object) -> object:
            page = read(topic, query)  # type: ignore[arg-type]
            asked.append(sum(batch.num_rows for batch in page.batches))
            return page

        monkeypatch.setattr(log._wire, "read", counted)
        assert len(rows(log, 0, COUNT)) == COUNT
    assert sum(asked) < COUNT // 2


def test_a_directory_of_another_server_is_not_looked_into(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SMALL_SEGMENTS)
    fill(server)
    with Client(server.base) as client:
        found = listed(client)
    assert sees_directory(found)
    copy = tmp_path / "copy"
    server.crash()  # or it would merge files while they are copied
    shutil.copytree(server.data, copy)
    assert sees_directory(_elsewhere(found, copy))
    (copy / "LOCK").write_text("1\nanother\n")
    assert not sees_directory(_elsewhere(found, copy))
    (copy / "LOCK").unlink()
    assert not sees_directory(_elsewhere(found, copy))
    assert not sees_directory(_elsewhere(found, None))


def _elsewhere(found: SegmentList, directory: Path | None) -> SegmentList:
    return SegmentList(
        "" if directory is None else str(directory),
        found.token,
        found.incarnation,
        found.partition,
        found.segments,
        found.next_offset,
    )


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_file_that_is_not_what_was_written_is_not_believed(
    server: ServerProcess, tmp_path: Path, damage: str
) -> None:
    with Client(server.base) as client:
        segment = listed(client).segments[0]
    path = tmp_path / "copy" / segment.path
    path.parent.mkdir(parents=True)
    data = (server.data / segment.path).read_bytes()
    if damage == "short":
        path.write_bytes(data[:-9])
    elif damage == "changed":
        path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    with pytest.raises(SegmentUnusable):
        list(read_segment(tmp_path / "copy", segment, 0, COUNT))


def test_what_went_away_as_a_file_comes_over_http(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may merge files while they are read."""
    with BrokerLog(server.base) as log:
        expected = rows(log, 0, COUNT)
        taken = 0

        def vanishing(*arguments: object) -> object:
            nonlocal taken
            for batch in read_segment(*arguments):  # type: ignore[arg-type]
                taken += 1
                if taken == 2:
                    raise SegmentUnusable("merged")
                yield batch

        monkeypatch.setattr("slipstream.pipeline.source.broker_log.read_segment", vanishing)
        assert rows(log, 0, COUNT) == expected
    assert taken >= 2
