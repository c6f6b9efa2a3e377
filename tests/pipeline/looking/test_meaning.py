"""Every column is explained."""

from __future__ import annotations

import pytest

from slipstream.pipeline.looking.meaning import _OF_TABLE, meaning
from slipstream.pipeline.tables import TABLES


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_its_sentence(table: str) -> None:
    silent = [name for name in TABLES[table].columns.names if not name.startswith("_") and not meaning(table, name)]
    assert not silent, "say what they mean in looking/meaning.py"


@pytest.mark.parametrize("table", _OF_TABLE)
def test_no_sentence_is_of_a_column_that_is_not_there(table: str) -> None:
    there = set(TABLES[table].columns.names)
    assert {name.partition(".")[0] for name in _OF_TABLE[table]} <= there


def test_what_is_inside_of_a_task_means_what_it_means_outside() -> None:
    assert meaning("dead_letters", "task.url") == meaning("download_tasks", "url") != ""
    assert meaning("somebodys", "colour") == ""
