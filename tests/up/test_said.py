"""What a part says: kept in files of a limited size, with the last lines at hand."""

from __future__ import annotations

import shutil
from pathlib import Path

from slipstream.up.said import LAST_LINES, Said


def test_lines_are_kept_after_those_of_an_earlier_start(tmp_path: Path) -> None:
    path = tmp_path / "up" / "jobs.log"
    for text in (b"first", b"second"):
        said = Said(path, max_bytes=1_000, files=2)
        assert said.add(text) == text.decode()
        said.close()
    assert path.read_text() == "first\nsecond\n"


def test_a_file_of_this_size_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    said = Said(tmp_path / "jobs.log", max_bytes=12, files=2)
    for number in range(8):
        said.add(f"line{number}".encode())  # six bytes with its end: two to a file
    said.close()
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "jobs.log": "line6\nline7\n",
        "jobs.log.1": "line4\nline5\n",
        "jobs.log.2": "line2\nline3\n",
    }


def test_without_files_to_keep_there_is_only_the_newest(tmp_path: Path) -> None:
    said = Said(tmp_path / "jobs.log", max_bytes=6, files=0)
    for number in range(3):
        said.add(f"line{number}".encode())
    said.close()
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.log"]
    assert (tmp_path / "jobs.log").read_text() == "line2\n"


def test_the_last_lines_are_at_hand(tmp_path: Path) -> None:
    said = Said(tmp_path / "jobs.log", max_bytes=1_000_000, files=0)
    for number in range(2 * LAST_LINES):
        said.add(f"line {number}".encode())
    said.close()
    assert list(said.last) == [f"line {number}" for number in range(LAST_LINES, 2 * LAST_LINES)]


def test_what_is_no_text_becomes_it(tmp_path: Path) -> None:
    said = Said(tmp_path / "jobs.log", max_bytes=1_000, files=0)
    assert said.add(b"caf\xe9\r") == "caf�"
    said.close()
    assert (tmp_path / "jobs.log").read_bytes() == b"caf\xe9\r\n"


def test_a_disk_that_is_full_keeps_no_part_from_speaking(tmp_path: Path) -> None:
    said = Said(Path("/dev/full"), max_bytes=1_000, files=0)
    assert said.add(b"hello") == "hello"
    said.close()
    assert list(said.last) == ["(not in /dev/full: No space left on device)", "hello"]


def test_a_file_that_cannot_be_set_aside_costs_lines_and_no_more(tmp_path: Path) -> None:
    in_the_way = tmp_path / "jobs.log.1"
    (in_the_way / "something").mkdir(parents=True)
    said = Said(tmp_path / "jobs.log", max_bytes=10, files=1)
    assert [said.add(b"one line"), said.add(b"two")] == ["one line", "two"]
    assert "(not in" in said.last[1]
    assert said.add(b"") == "", "there is room for that"
    shutil.rmtree(in_the_way)
    said.add(b"four")
    said.close()
    assert in_the_way.read_text() == "one line\n\n"
    assert (tmp_path / "jobs.log").read_text() == "four\n"
