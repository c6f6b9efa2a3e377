"""The page of the connector goes as it says, and has every option and column."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from slipstream.pipeline.source import LOG_SCHEMA
from slipstream.pipeline.source.options import OPTIONS, Use
from slipstream.pipeline.source.outgoing import COLUMNS
from tests.docs.examples import examples, run_console, run_fragment
from tests.docs.pages import ROOT, rows, section
from tests.server_process import ServerProcess

PAGE = ROOT / "docs" / "connector.md"

USES = {Use.ANY: "all", Use.READ: "reading", Use.BATCH: "batch", Use.STREAM: "stream", Use.SINK: "writing"}


def test_the_page_goes_as_it_says(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    namespace: dict[str, object] = {"spark": spark}
    for example in examples(PAGE):
        if example.language == "console":
            run_console(example.text, server, tmp_path)
        else:
            here = example._replace(text=example.text.replace("checkpoints/", f"{tmp_path}/"))
            asyncio.run(run_fragment(here, PAGE, server, namespace))


def test_every_option_is_in_the_table_as_it_is() -> None:
    shown = {row[0]: row[1:] for row in rows(section(PAGE, "Options"))}
    assert shown == {f"`{info.name}`": [USES[info.use], info.default, info.text] for info in OPTIONS}


def test_every_column_is_in_the_table_with_its_type() -> None:
    shown = {row[0].strip("`"): row[1] for row in rows(section(PAGE, "Columns"))}
    types = {field.name: field.dataType.simpleString() for field in from_arrow_schema(LOG_SCHEMA)}
    assert shown == {name: "struct" if kind.startswith("struct") else kind for name, kind in types.items()}
    envelope = next(row for row in rows(section(PAGE, "Columns")) if row[0] == "`envelope`")
    assert all(f"`{field.name}`" in envelope[2] for field in LOG_SCHEMA.field("envelope").type)


def test_every_column_that_is_written_is_in_the_table() -> None:
    assert [row[0].strip("`") for row in rows(section(PAGE, "Writing"))] == list(COLUMNS)
