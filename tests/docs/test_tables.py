"""The questions on the page of the tables have answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.pipeline.looking import Tables
from slipstream.pipeline.tables import TABLES
from tests.docs.pages import ROOT, blocks, section
from tests.pipeline.sample_tables import make_all

PAGE = ROOT / "docs" / "tables.md"
REFERENCE = ROOT / "docs" / "tables-reference.md"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    root = tmp_path_factory.mktemp("tables")
    make_all(root)
    return Tables(root)


@pytest.mark.parametrize("sql", blocks(PAGE, "sql"), ids=lambda sql: sql.partition("\nfrom ")[2].split()[0])
def test_a_question_is_answered(tables: Tables, sql: str) -> None:
    assert list(tables.query(sql)), "the sample has an answer to every question"


def test_the_program_prints_what_it_says(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = blocks(PAGE, "python")
    (tmp_path / "slipstream-data").mkdir()
    (tmp_path / "slipstream-data" / "tables").symlink_to(tables.root)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "tables.md", "exec"), {})
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"acme", "globex", "initech"}


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_explained(name: str) -> None:
    assert f"`{name}`" in section(PAGE, "What there is")
    text = section(REFERENCE, name)
    for field in TABLES[name].columns:
        assert field.name.startswith("_") or f"| `{field.name}` |" in text
