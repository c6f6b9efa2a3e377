"""The page of slips: what it shows runs, and its tables are those of the code."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from slipstream import slip as package
from slipstream.slip import Control, Envelope, Event, Itinerary, RouteTable, RoutingStep, Signal, Work, decode, hints
from slipstream.slip import topics as topic_names
from slipstream.slip.advance import CANCELLED, MESSAGE_TIMEOUT, Rules, Send, advance
from slipstream.slip.dead_letter import DeadLetter
from slipstream.slip.metrics import metrics_in
from slipstream.slip.progress import Kind, Progress
from slipstream.slip.routes.parser import _ROUTE_KEYS, _STEP_KEYS, _TABLE_KEYS
from slipstream.slip.settings import describe_settings
from slipstream.slip.slip import plan
from tests.client.loop import in_loop
from tests.docs.examples import examples, run_fragment, run_program
from tests.docs.pages import ROOT, SLIPS, TOUR, blocks, fences, quoted, rows, section

SOURCES = sorted((ROOT / "src" / "slipstream" / "slip").rglob("*.py"))


# What it shows


@in_loop
async def test_the_fragments_run_and_print_what_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fragments = [example for example in examples(SLIPS) if example.language == "python"]
    assert sum(bool(example.output) for example in fragments) >= 10
    namespace: dict[str, object] = {}
    for example in fragments:
        await run_fragment(example, SLIPS, None, namespace)


@pytest.mark.parametrize("page", [SLIPS, TOUR], ids=["slips", "tour"])
def test_the_program_runs_without_a_server_and_without_the_extra(tmp_path: Path, page: Path) -> None:
    (program,) = [block for block in blocks(page, "python") if block.startswith("# greet.py\n")]
    for library in ("datalogic_py", "yaml"):
        (tmp_path / f"{library}.py").write_text("raise ImportError('this is an extra')")
    printed = run_program(program, tmp_path / "greet.py")
    assert printed == "hello, Ada\n"
    assert any(f"$ python greet.py\n{printed}" in block for block in blocks(page, "console")) or page is TOUR


def tables() -> tuple[RouteTable, RouteTable]:
    text = dict(fences(section(SLIPS, "Route tables")))
    return RouteTable.of(yaml.safe_load(text["yaml"])), RouteTable.of(tomllib.loads(text["toml"]))


def test_the_table_is_the_same_in_both_formats() -> None:
    of_yaml, of_toml = tables()
    assert of_yaml.types == of_toml.types
    for payload in ({"userId": "u-77"}, {"intents": True, "format": "plain"}):
        for event_type in ("chat.message.v1", "chat.command.v1"):
            event = Event(Envelope("1", "test", "c-1"), event_type, payload)
            assert of_yaml.plan(event) == of_toml.plan(event)
            assert of_yaml.timeout(event_type) == of_toml.timeout(event_type)


def test_the_slip_on_the_wire_is_what_the_router_makes_of_the_event() -> None:
    before, after = [decode(text.encode()) for kind, text in fences(section(SLIPS, "On the wire")) if kind == "json"]
    now = dt.datetime(2026, 11, 16, 7, tzinfo=dt.UTC)
    steps = [msgspec.structs.replace(step, attributes={}, max_attempts=None) for step in tables()[0].plan(before)]
    decision = advance(plan(before, steps, now), now, Rules(lambda condition, event: False))
    assert isinstance(decision, Send)
    assert decision.event == after


def test_the_example_of_a_signal_and_of_progress_can_be_read() -> None:
    (signal,) = [text for kind, text in fences(section(SLIPS, "Approval and signals")) if kind == "json"]
    assert msgspec.json.decode(signal, type=Signal).by == "ada"
    (progress,) = [text for kind, text in fences(section(SLIPS, "Seeing")) if kind == "json"]
    assert [one.kind for one in msgspec.json.decode(progress, type=list[Progress])] == ["finished"]
    assert set(json.loads(progress)[0]) <= set(Progress.__struct_encode_fields__)


# What it lists


def first_cells(title: str, text: str = "") -> set[str]:
    """What stands in backticks in the first column of the tables of a section."""
    return set().union(*(quoted(row[0]) for row in rows(text or section(SLIPS, title))))


def test_every_setting_is_in_the_table_as_it_is() -> None:
    shown = {row[0]: row[1:] for row in rows(section(SLIPS, "Settings"))}
    for info in describe_settings():
        default = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
        assert shown.pop(f"`{info.variable}`") == [f"`{info.name}`", f"`{default}`" if default else "", info.text]
    assert not shown


def test_every_metric_is_in_the_table_and_no_other() -> None:
    registry = CollectorRegistry()
    metrics_in(registry)
    there = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    assert first_cells("Metrics") == there


def test_every_kind_of_progress_is_in_the_table_and_no_other() -> None:
    text = section(SLIPS, "Seeing").split("```json")[0]
    assert first_cells("", text) == set(get_args(Kind))


def test_every_public_name_is_in_the_table_and_no_other() -> None:
    assert first_cells("All names") == set(package.__all__)


def test_every_key_of_a_route_table_is_in_the_table_and_no_other() -> None:
    shown = {(row[0].strip("`"), row[1].split()[-1]) for row in rows(section(SLIPS, "Route tables"))}
    expected = {(key, "table") for key in _TABLE_KEYS} | {(key, "route") for key in _ROUTE_KEYS}
    assert shown == expected | {(key, "step") for key in _STEP_KEYS}


def test_every_hint_is_in_the_table_and_no_other() -> None:
    there = {value for name, value in vars(hints).items() if name.isupper() and name != "PREFIX"}
    assert first_cells("Hints") == there


def test_every_field_on_the_wire_is_in_a_table() -> None:
    shown = first_cells("", section(SLIPS, "On the wire").split("### Hints")[0])
    assert {*Envelope.__struct_encode_fields__, *RoutingStep.__struct_encode_fields__} <= shown
    letter = first_cells("Dead letters")
    assert set(DeadLetter.__struct_encode_fields__) <= letter


def test_every_topic_is_in_the_table() -> None:
    named = {value for name, value in vars(topic_names).items() if name.isupper()}
    named |= {topic_names.default_topic("<id>"), topic_names.undo_topic("<id>")}
    shown = first_cells("", section(SLIPS, "On the wire").split("### Hints")[0])
    assert {name for name in shown if "." in name} == named


def codes() -> Iterator[str]:
    """The first argument of every StepError and StepFailed in the source."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"StepError", "StepFailed"} and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    yield str(code.value)
                elif isinstance(code, ast.Name) and code.id.isupper():
                    yield {"MESSAGE_TIMEOUT": MESSAGE_TIMEOUT, "CANCELLED": CANCELLED}[code.id]


def test_every_code_of_an_error_is_in_the_table_and_no_other() -> None:
    text = section(SLIPS, "Dead letters")
    shown = first_cells("", text[text.index("| code |") :])
    assert shown == set(codes())


def test_everything_that_work_and_an_itinerary_have_is_in_a_table() -> None:
    named = {re.split(r"\W", cell)[0] for cell in first_cells("Steps")}
    inside = {"done", "failed"}  # for the harness
    attributes = {"event", "step", "payload", "message", "bus"}
    assert {*attributes, *public(Work)} - inside <= named
    named = {re.split(r"\W", cell)[0] for cell in first_cells("Planners")}
    assert public(Itinerary) - {"apply"} <= named


def test_everything_that_people_can_do_is_on_the_page() -> None:
    text = SLIPS.read_text()
    for name in public(Control) - {"signal"}:
        assert f"control.{name}(" in text or f"`{name}`" in text, name


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
