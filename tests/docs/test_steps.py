"""The page of steps on Spark: what it shows runs, and its tables are those of the code."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from slipstream.pipeline.steps import spark_step
from slipstream.pipeline.steps.names import ATTEMPT, CORRELATION_ID, ERROR, NOTES, PAYLOAD, ROW, STATUS, TYPE
from slipstream.pipeline.steps.step import FRAME_ROWS, ROWS
from tests.client.loop import in_loop
from tests.docs.examples import examples, run_fragment
from tests.docs.pages import ROOT, rows, section

STEPS = ROOT / "docs" / "steps.md"


@in_loop
async def test_the_fragments_run_and_print_what_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "steps_page"}
    fragments = [example for example in examples(STEPS) if example.language == "python"]
    assert len(fragments) >= 4
    for example in fragments:
        await run_fragment(example, STEPS, None, namespace)


def test_the_columns_are_those_of_the_code() -> None:
    of_rows, of_arguments = (names(table) for table in tables("The function"))
    assert of_rows == [ROW, CORRELATION_ID, TYPE, ATTEMPT, PAYLOAD]
    assert set(of_arguments) == set(inspect.signature(spark_step).parameters) - {"step_id"}
    (of_answers,) = (names(table) for table in tables("Answers"))
    assert of_answers == [PAYLOAD, STATUS, NOTES, ERROR, "any other"]


def test_the_numbers_are_those_of_the_code() -> None:
    text = section(STEPS, "The function")
    assert f"{ROWS:,}" in text
    assert f"{FRAME_ROWS:,}" in text


def tables(title: str) -> list[list[list[str]]]:
    """Each table of a section; a table ends where another kind of line follows."""
    found: list[list[list[str]]] = []
    lines: list[str] = []
    for line in [*section(STEPS, title).splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            found.append(rows("\n".join(lines)))
            lines = []
    return found


def names(table: list[list[str]]) -> list[str]:
    return [cells[0].strip("`") for cells in table]
