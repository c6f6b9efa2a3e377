"""The page of the pipeline says what is there, and nothing else."""

from __future__ import annotations

import re

import pytest

from slipstream.pipeline.queries import QUERIES, Query
from slipstream.pipeline.settings import describe_settings
from slipstream.pipeline.tables import TABLES
from tests.docs.pages import PAGES, PIPELINE, quoted, rows, section


def test_every_setting_is_in_the_table_as_it_is() -> None:
    shown = {row[0]: row[1:] for row in rows(section(PIPELINE, "Settings"))}
    for info in describe_settings():
        default = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
        assert shown.pop(f"`{info.variable}`") == [f"`{info.name}`", f"`{default}`", info.text]
    assert not shown


def test_no_page_speaks_of_a_variable_that_is_not_there() -> None:
    there = {info.variable for info in describe_settings()}
    text = "\n".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"PIPELINE_[A-Z]+(?:_[A-Z]+)*", text)) <= there


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_query_is_there_with_its_tables(query: Query) -> None:
    (row,) = [row for row in rows(section(PIPELINE, "Running it")) if row[0] == f"`{query.name}`"]
    assert quoted(row[2]) == {table.name for table in query.tables}


def test_every_table_is_made_by_a_query() -> None:
    assert {table.name for query in QUERIES.values() for table in query.tables} == set(TABLES)
