from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipstream.store.disk import system_disk
from tests.store.failing_disk import FailingDisk


def test_every_directory_on_the_way_to_a_new_one_is_synced(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.make_directory(tmp_path / "a/b/c")
    assert [call for call in disk.calls if tmp_path.name not in call][-2:] == ["sync_directory a", "sync_directory b"]
    assert f"sync_directory {tmp_path.name}" in disk.calls
    disk.calls.clear()
    disk.make_directory(tmp_path / "a/b/c")
    assert disk.calls == [], "once is enough"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.replace_file(tmp_path / "file", [b"old"])
    with pytest.raises(TypeError):
        disk.replace_file(tmp_path / "file", [b"new", None])  # type: ignore[list-item]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_write_and_sync_in_one_call_appends_all_of_it(tmp_path: Path) -> None:
    disk = system_disk()
    fd = disk.open_append(tmp_path / "journal", create=True)
    disk.write_synced(fd, [b"one", b"two"], 0)
    disk.write_synced(fd, [b"three"], 6)
    disk.close(fd)
    assert (tmp_path / "journal").read_bytes() == b"onetwothree"


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = system_disk()
    fd = disk.open_append(tmp_path / "journal", create=True)
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, position, flags: os.write(fd, b"".join(parts)[:4]))
    disk.write_synced(fd, [b"one", b"two"], 0)
    disk.close(fd)
    assert (tmp_path / "journal").read_bytes() == b"onetwo"
