"""`slipstream pipeline report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slipstream.cli import main
from tests.pipeline.sample_tables import make_all


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    make_all(root)
    return root


def run(root: Path, *arguments: str, expect: int = 0) -> Result:
    environment = {"PIPELINE_TABLES": str(root), "NO_COLOR": "1"}
    result = CliRunner().invoke(main, ["pipeline", "report", *arguments], env=environment)
    assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result


def test_the_page_is_written_to_a_file(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert f"written to {out}" in run(root, "--out", str(out)).stdout.replace("\n", "")
    assert out.read_text().startswith("<!doctype html>")
    told = json.loads(run(root, "--out", str(out), "--json").stdout)
    assert told == {"path": str(out), "bytes": out.stat().st_size}


def test_the_page_goes_to_stdout(root: Path) -> None:
    said = run(root, "--out", "-", "--run", "order-2", "--last", "2h").stdout
    assert said.startswith("<!doctype html>")
    assert "The steps of order-2 over time" in said


def test_what_went_wrong_has_its_exit_code(root: Path, tmp_path: Path) -> None:
    assert "nothing is known of the run nope" in run(root, "--out", "-", "--run", "nope", expect=3).stderr
    assert "slipstream pipeline run" in run(tmp_path, "--out", "-", expect=3).stderr
    nowhere = str(tmp_path / "no" / "page.html")
    assert "cannot be written: No such file" in run(root, "--out", nowhere, expect=1).stderr
    assert "--last 0" in run(root, "--out", "-", "--last", "0", expect=2).stderr
    assert "plots show up to 3660 days" in run(root, "--out", "-", "--last", "5000d", expect=2).stderr
    assert "longer than a million days" in run(root, "--out", "-", "--last", "9" * 400 + "d", expect=2).output
