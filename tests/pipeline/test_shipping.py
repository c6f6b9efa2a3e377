"""The archive of our package that executors import from."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from slipstream.pipeline.shipping import pack


def test_the_archive_is_imported_by_a_python_that_does_not_have_the_package(tmp_path: Path) -> None:
    archive = pack(tmp_path)
    program = "import slipstream.pipeline.queries.task as task, pyspark_slipstream; print(task.__file__)"
    environment = {"PYTHONPATH": f"{archive}:{sysconfig.get_paths()['purelib']}"}
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(archive))


def test_the_same_package_makes_the_same_archive(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert pack(tmp_path / "a").read_bytes() == pack(tmp_path / "b").read_bytes()
