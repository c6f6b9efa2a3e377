from __future__ import annotations

from pathlib import Path

import pytest

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
