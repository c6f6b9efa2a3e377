"""What the parts have logged, found by an id."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from slipstream.console import Sources, create_console
from slipstream.console.logs import PartLogs, lines_about
from tests.client.loop import in_loop
from tests.console.site import Numbers, listening

LINES = [
    "12:00:00 INFO    o-1 is on its way  [correlationId=o-1]",
    "12:00:01 INFO    o-17 is another  [correlationId=o-17]",
    "12:00:02 INFO    one more  [correlationId=not-o-1]",
    "12:00:03 WARNING step label: no paper  [correlationId=o-1/label stepId=label attempt=0]",
    '{"msg": "the end", "correlationId": "o-1"}',
]


def texts(folder: Path, about: str, limit: int = 100) -> list[str]:
    return [line.text for line in lines_about(folder / "slips.log", about, limit)]


def test_an_id_is_found_whole_and_with_its_branches(tmp_path: Path) -> None:
    (tmp_path / "slips.log").write_text("\n".join(LINES) + "\n")
    assert texts(tmp_path, "o-1") == [LINES[0], LINES[3], LINES[4]]
    assert texts(tmp_path, "o-17") == [LINES[1]]
    assert texts(tmp_path, "o-.") == [], "an id is no pattern"


def test_what_was_set_aside_comes_first_and_the_newest_are_kept(tmp_path: Path) -> None:
    (tmp_path / "slips.log.10").write_text("o-1 long ago\n")
    (tmp_path / "slips.log.2").write_text("o-1 before\n")
    (tmp_path / "slips.log.1").write_text("o-1 first\n")
    (tmp_path / "slips.log").write_text("o-1 second\no-1 third\n")
    (tmp_path / "slips.log.new").write_text("o-1 is another's\n")
    assert texts(tmp_path, "o-1") == ["o-1 long ago", "o-1 before", "o-1 first", "o-1 second", "o-1 third"]
    assert texts(tmp_path, "o-1", limit=2) == ["o-1 second", "o-1 third"]


def test_bytes_that_are_no_text_are_shown_as_far_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "slips.log").write_bytes(b"o-1 \xff\n" + b"o-1 " + b"x" * 10_000)
    first, second = texts(tmp_path, "o-1")
    assert first == "o-1 \ufffd"
    assert len(second) == 4_000


@in_loop
async def test_all_parts_are_asked_and_where_none_keeps_a_log_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "jobs.log").write_text("o-1 has a job\n")
    (tmp_path / "slips.log").write_text("o-1 has begun\n")
    logs = PartLogs(str(tmp_path / "parts.json"))
    async with listening(create_console(Sources(Numbers(), logs=logs))) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/v2/logs?about=o-1") as answer:
            assert await answer.json() == {
                "kept": True,
                "lines": [
                    {"part": "jobs", "text": "o-1 has a job"},
                    {"part": "slips", "text": "o-1 has begun"},
                ],
            }
        async with session.get(f"{url}/v2/logs?about=o") as answer:
            assert answer.status == 400
    async with (
        listening(create_console(Sources(Numbers()))) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/v2/logs?about=o-1") as answer,
    ):
        assert await answer.json() == {"kept": False, "lines": []}
