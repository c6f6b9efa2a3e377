"""The group of commands about jobs."""

from __future__ import annotations

import importlib.util

import pytest
from click.testing import CliRunner

from slipstream.cli import main
from slipstream.cli.jobs import jobs


def test_the_help_has_every_command_once() -> None:
    said = CliRunner().invoke(main, ["jobs", "--help"]).output
    for name in jobs.commands:
        assert said.count(f"│ {name} ") == 1, said


def test_without_its_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["jobs", "list"])
    assert result.exit_code == 1
    assert "pip install 'slipstream[jobs]'" in " ".join(result.stderr.replace("│", " ").split())
