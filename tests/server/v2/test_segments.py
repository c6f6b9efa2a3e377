"""Which files hold a partition."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from slipstream.log_columns import log_columns
from slipstream.store.lock import holder_token
from tests.conftest import StartServer
from tests.server.v2.wire import V2


def segments(v2: V2, expect: int = 200, **query: Any) -> Any:
    return v2.call("GET", v2.path("segments"), expect=expect, params=query)


def await_segments(v2: V2, count: int, **query: Any) -> Any:
    """Compaction is a matter of the background: the listing when so many files are there."""
    until = time.monotonic() + 60
    while len((listed := segments(v2, **query))["segments"]) < count:
        assert time.monotonic() < until, f"there are no {count} segments"
        time.sleep(0.01)
    return listed


@pytest.fixture
def compacted(start_server: StartServer) -> V2:
    """Six hundred messages of more than a megabyte a hundred, so that the files are not merged."""
    v2 = V2(start_server("--journal-changes", "100", "--compaction-backlog-max", "1000"), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    for start in range(0, 600, 100):
        v2.produce(*({"value": f"{n:012000}", "attributes": {"n": str(n)}} for n in range(start, start + 100)))
    return v2


def test_what_is_only_in_the_journal_is_in_no_file(v2: V2) -> None:
    v2.produce("a")
    listed = segments(v2)
    assert (listed["segments"], listed["next_offset"], listed["partition"]) == ([], 0, 0)
    assert listed["incarnation"] == v2.describe()["id"]


def test_the_directory_is_known_by_its_token_and_a_start_draws_another(on_disk: V2) -> None:
    listed = segments(on_disk)
    assert Path(listed["directory"]) == on_disk.server.data.absolute()
    assert len(listed["token"]) == 32
    assert holder_token(Path(listed["directory"])) == listed["token"]
    on_disk.server.restart()
    assert segments(on_disk)["token"] != listed["token"]


def test_files_and_what_is_left_in_the_journal_are_the_whole_log(compacted: V2) -> None:
    v2 = compacted
    listed = await_segments(v2, 2)
    rows = []
    for segment in listed["segments"]:
        path = Path(listed["directory"], segment["path"])
        data = path.read_bytes()
        assert (len(data), google_crc32c.value(data)) == (segment["file_bytes"], segment["crc"])
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            batches = [reader.get_batch(page) for page in range(len(segment["pages"]))]
        starts = [sum(batch.num_rows for batch in batches[:n]) for n in range(len(batches))]
        assert starts == segment["pages"]
        found = [row for batch in batches for row in log_columns(0, batch).to_pylist()]
        assert (len(found), found[0]["offset"]) == (segment["count"], segment["first_offset"])
        assert found[-1]["offset"] == segment["last_offset"]
        rows += found
    assert rows[-1]["offset"] + 1 == listed["next_offset"]
    rest = v2.read(**{"from": listed["next_offset"], "max_bytes": 1 << 30})["messages"]
    numbers = [row["attributes"][0][1] for row in rows] + [message["attributes"]["n"] for message in rest]
    assert numbers == [str(n) for n in range(600)]


def test_only_files_that_have_something_of_the_range(compacted: V2) -> None:
    listed = await_segments(compacted, 3)
    first, second, *_ = listed["segments"]
    edge = second["first_offset"]

    def found(**query: int) -> list[str]:
        return [segment["path"] for segment in segments(compacted, **query)["segments"]]

    assert found(**{"from": 0, "to": edge}) == [first["path"]]
    assert found(**{"from": edge, "to": edge + 1}) == [second["path"]]
    assert found(**{"from": edge - 1, "to": edge + 1}) == [first["path"], second["path"]]
    assert found(**{"from": 0, "to": 0}) == []
    assert segments(compacted, **{"from": 0, "to": 1})["next_offset"] >= listed["next_offset"]


def test_what_retention_removed_is_said_with_the_earliest_there_is(start_server: StartServer) -> None:
    server = start_server("--journal-changes", "50", "--retention-check-ms", "20", "--compaction-backlog-max", "1000")
    v2 = V2(server, "t")
    v2.call("POST", "/v2/topics", {"name": "t", "config": {"retention_bytes": 20_000}}, 201)
    first = 0
    until = time.monotonic() + 60
    while not first:
        assert time.monotonic() < until, "nothing was removed"
        v2.produce(*["x" * 1_000] * 30)
        first = v2.describe()["partitions"][0]["first_offset"]
    gone = segments(v2, 410, **{"from": 0})
    assert (gone["error"], gone["earliest_offset"] >= first) == ("OFFSET_OUT_OF_RANGE", True)
    assert segments(v2)["next_offset"] >= first


def test_a_partition_must_be_named_where_there_are_several(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"partitions": 2})
    assert "partition=0 to 1" in segments(v2, 400)["message"]
    assert segments(v2, partition=1)["partition"] == 1
    assert segments(v2, 404, partition=2)["error"] == "NOT_FOUND"


@pytest.mark.parametrize("query", [{"from": -1}, {"to": 2**64}, {"partition": "x"}, {"colour": 1}])
def test_what_is_wrong_with_the_request_is_said(v2: V2, query: dict[str, Any]) -> None:
    assert segments(v2, 400, **query)["error"] == "INVALID_ARGUMENT"
