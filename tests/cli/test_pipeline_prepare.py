"""`slipstream pipeline prepare`. That it does what it says is in the tests of the archive."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slipstream.cli import main
from slipstream.pipeline.class_archive import archive_for
from tests.pipeline.test_java import a_java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that says its version, and nothing else."""
    found = a_java(tmp_path / "java", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(found))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def prepare(*arguments: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(main, ["pipeline", "prepare", *arguments], env={"NO_COLOR": "1"})
    assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result


def test_what_was_prepared_before_is_not_prepared_again(java: Path) -> None:
    path = archive_for(java).path
    path.parent.mkdir(parents=True)
    path.write_text("classes")
    assert prepare().stdout == f"prepared: {path}; once more with --again\n"
    assert path.read_text() == "classes"


def test_a_java_that_cannot_is_an_error_in_words_and_what_was_there_stays(java: Path) -> None:
    path = archive_for(java).path
    path.parent.mkdir(parents=True)
    path.write_text("classes")
    refused = prepare("--again", expect=1)
    assert f"the Java of {java} has written no archive, and Spark starts as before" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert path.read_text() == "classes"
