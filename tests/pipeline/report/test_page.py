"""The page as a whole."""

from __future__ import annotations

import datetime as dt
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.looking import NoSuchTable, Tables
from slipstream.pipeline.report import render
from slipstream.pipeline.tables import TABLES
from tests.pipeline.sample_tables import END, make_all, make_far, make_table


class Page(HTMLParser):
    """Fails where a tag is not closed in its turn."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("tables")
    make_all(root)
    return render(Tables(root), now=END)


def test_the_page_needs_nothing_else(source: str) -> None:
    page = Page(source)
    names = {name for name, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form"}
    given = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("href", "src")]
    assert given
    assert all(value and value.startswith("#") for value in given)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "url(" not in source
    assert "default-src 'none'" in str([attributes for name, attributes in page.tags if name == "meta"])


def test_what_was_told_is_text(source: str) -> None:
    assert "<script>alert(&#x27;no such host&#x27;)</script>" not in source
    assert "&lt;script&gt;alert(&#x27;no such host&#x27;)&lt;/script&gt;" in source
    assert "&lt;b&gt;order&lt;/b&gt;" in source


HOSTILE = "\"'></title></style></svg></code><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\x00\u202e{x}%s"


def hostile_value(field: pa.Field) -> Any:
    if field.name == "parent":
        return ""  # so that it is a run of its own
    if pa.types.is_string(field.type):
        return HOSTILE
    if pa.types.is_list(field.type) and pa.types.is_string(field.type.value_type):
        return [HOSTILE]
    if pa.types.is_timestamp(field.type):
        return END
    if pa.types.is_date32(field.type):
        return END.date()
    return 0 if pa.types.is_integer(field.type) or pa.types.is_floating(field.type) else None


@pytest.mark.parametrize("is_alone", [True, False])
def test_whatever_the_tables_say_is_text(tmp_path: Path, source: str, is_alone: bool) -> None:
    """In every column of every table: tenants, jobs, steps, hosts, reasons, states."""
    if not is_alone:
        make_all(tmp_path)
    for name, table in TABLES.items():
        make_table(tmp_path, name, [{field.name: hostile_value(field) for field in table.columns}])
    for run in (None, HOSTILE):
        _check_is_text(render(Tables(tmp_path), now=END, run=run), source)


def _check_is_text(text: str, source: str) -> None:
    page, usual = Page(text), Page(source)
    assert {name for name, _ in page.tags} <= {name for name, _ in usual.tags} | {"circle"}
    attributes = {name for _, given in usual.tags for name in given} | {"cx", "cy", "r"}
    assert {name for _, given in page.tags for name in given} <= attributes
    classes = {value for _, given in page.tags for name, value in given.items() if name == "class"}
    assert all(re.fullmatch(r"[a-z0-9 ]+", value or "") for value in classes)
    assert "<script" not in text
    assert "<img" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert page.text.count("<script>alert(1)</script>") > 20


def test_names_that_are_long_do_not_make_the_page_wider_than_a_phone(source: str) -> None:
    assert re.search(r"\nbody \{[^}]*overflow-wrap: anywhere;", source)
    assert re.search(r"\ntable \{[^}]*overflow-wrap: normal;", source), "which scrolls"
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in source
    tables = source.count("<table>")
    assert tables
    assert source.count('<div class="scroll" tabindex="0"><table>') == tables


def test_every_section_is_there_and_can_be_reached(source: str) -> None:
    page = Page(source)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {str(attributes["href"])[1:] for name, attributes in page.tags if name == "a"}
    assert links == {"throughput", "latency", "dead-letters", "jobs", "tenants", "stuck", "lineage"}
    assert links <= ids


def test_every_plot_has_a_title_and_numbers_behind_it(source: str) -> None:
    drawings = re.findall(r"<svg(?![^>]*aria-hidden)[^>]*>(<title>[^<]+</title>)?", source)
    assert drawings
    assert all(drawings)
    assert source.count("<details>") >= 6


def test_the_numbers_are_those_of_the_tables(source: str) -> None:
    text = Page(source).text
    assert "386 dead letters of 5 causes" in text
    assert "60 jobs: 1 queued, 5 in progress, 51 completed, 2 partial, 1 failed." in text
    assert "3 slips stuck now" in text
    assert "p95 of the slowest step, charge" in text
    assert "2026-03-14 12:09:00 to 2026-03-14 15:09:00 (UTC)" in text
    for name in TABLES:
        assert name in text


def test_the_plots_show_as_much_time_as_is_asked_for(tmp_path: Path) -> None:
    make_all(tmp_path)
    text = Page(render(Tables(tmp_path), now=END, span=dt.timedelta(minutes=30))).text
    assert "2026-03-14 14:39:00 to 2026-03-14 15:09:00" in text


def test_where_tables_are_empty_there_are_words(tmp_path: Path) -> None:
    for name in TABLES:
        make_table(tmp_path, name)
    text = Page(render(Tables(tmp_path), now=END)).text
    for said in (
        "Nothing was downloaded in this time",
        "No step of a slip has ended in this time",
        "No task was given up",
        "There are no jobs yet",
        "No tenant has used anything yet",
        "has moved lately, or waits for a person",
        "No run was told of yet",
        "16 tables",
    ):
        assert said in text


def test_one_table_is_enough(tmp_path: Path) -> None:
    make_table(tmp_path, "stuck_slips")
    assert "Nothing was downloaded" in Page(render(Tables(tmp_path), now=END)).text
    with pytest.raises(NoSuchTable, match="slipstream pipeline run"):
        render(Tables(tmp_path / "nowhere"))


def test_rows_with_nothing_in_them_are_shown(tmp_path: Path) -> None:
    """All but keys and times may be null."""
    at = {"minute": END, "first_at": END, "last_at": END, "since": END, "updated_at": END, "day": END.date()}
    for name, table in TABLES.items():
        keys = dict.fromkeys(table.fold.key, "x") if table.fold is not None else {}
        numbers = {field.name: 0 for field in table.columns if pa.types.is_integer(field.type)}
        make_table(
            tmp_path,
            name,
            [{**numbers, "correlation_id": "x", **keys, **at, "run": 0, "attempt": 0, "date": END.date()}],
        )
    page = Page(render(Tables(tmp_path), now=END))
    assert "60 jobs" not in page.text
    assert "None" not in page.text


@pytest.mark.parametrize("time_us", [-98_217_187_199_000_000, 316_516_204_800_000_000])
@pytest.mark.parametrize("is_alone", [True, False])
def test_times_that_python_has_not_do_not_take_the_rest_with_them(tmp_path: Path, time_us: int, is_alone: bool) -> None:
    if not is_alone:
        make_all(tmp_path)
    make_far(tmp_path, time_us, names=[name for name, table in TABLES.items() if "date" not in table.partition_by])
    text = Page(render(Tables(tmp_path), now=END)).text
    assert ("60 jobs" in text or "61 jobs" in text) is not is_alone
    shown = Page(render(Tables(tmp_path), now=END, run="far")).text
    assert "-1143-08-15T00:00:01Z" in shown or "+12000-01-01T00:00:00Z" in shown


@pytest.mark.parametrize("days", [-1, 0, 3_661, 999_999_999])
def test_a_span_that_makes_no_sense_is_refused(tmp_path: Path, days: int) -> None:
    make_table(tmp_path, "stuck_slips")
    with pytest.raises(InvalidPipeline, match=r"plots show up to 3660 days, and not .*: say 24h, or 7d"):
        render(Tables(tmp_path), now=END, span=dt.timedelta(days=days))


def test_a_table_of_another_release_does_not_take_the_rest_with_it(tmp_path: Path) -> None:
    make_all(tmp_path)
    strange = pa.table({"failure_code": ["x"], "number": [1]})
    write_deltalake(str(tmp_path / "dead_letter_causes"), strange, mode="overwrite", schema_mode="overwrite")
    text = Page(render(Tables(tmp_path), now=END)).text
    assert "This cannot be shown of these tables" in text
    assert "60 jobs" in text


def test_a_clock_that_is_ahead_does_not_move_the_rest_out_of_sight(tmp_path: Path) -> None:
    make_all(tmp_path)
    ahead = END + dt.timedelta(days=400)
    make_table(tmp_path, "step_metrics", [{"step": "x", "minute": ahead, "attempts": 1, "errors": 0}])
    assert "2026-03-14 12:09:00 to 2026-03-14 15:09:00" in Page(render(Tables(tmp_path), now=END)).text


def test_the_time_that_a_person_takes_is_no_step(tmp_path: Path) -> None:
    minute = {"minute": END, "attempts": 1, "errors": 0, "runs": 1}
    times = [{**minute, "step": "charge", "p95_ms": 40.0}, {**minute, "step": "manager", "p95_ms": 7_200_000.0}]
    make_table(tmp_path, "step_metrics", times)
    make_table(tmp_path, "slip_events", [{"kind": "waiting", "step": "manager", "date": END.date(), "timestamp": END}])
    text = Page(render(Tables(tmp_path), now=END)).text
    assert "p95 of the slowest step, charge" in text
    assert "manager" not in text
