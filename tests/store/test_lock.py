from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.store import DirectoryInUse, ForeignDirectory
from slipstream.store.lock import DirectoryLock
from tests.store.node import Node


def test_a_second_process_is_refused_with_the_holders_pid(tmp_path: Path) -> None:
    with Node(tmp_path):
        code = "import sys; from pathlib import Path; from slipstream.store import Store, StoreConfig; "
        code += "Store(Path(sys.argv[1]), StoreConfig())"
        ended = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
        )
    assert ended.returncode != 0
    assert f"DirectoryInUse: {tmp_path} is in use by process {os.getpid()}" in ended.stderr


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    DirectoryLock(tmp_path).release()
    DirectoryLock(tmp_path).release()


def test_a_quiet_lock_leaves_the_file_as_it_is_and_still_refuses(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("123\n")
    quiet = DirectoryLock(tmp_path, announce=False)
    with pytest.raises(DirectoryInUse, match="process 123"):
        DirectoryLock(tmp_path)
    quiet.release()
    assert (tmp_path / "LOCK").read_text() == "123\n"


def test_a_start_that_fails_lets_go_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-000000000001").write_bytes(b"nonsense")
    for _ in range(2):
        with pytest.raises(Exception, match="is damaged"):
            Node(tmp_path)


def test_a_directory_of_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root")
    with pytest.raises(ForeignDirectory, match="is not a data directory"):
        Node(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]


def test_a_new_file_system_is_as_good_as_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    with Node(tmp_path) as node:
        node.create("t")
