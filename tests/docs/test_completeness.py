"""What exists in the code stands in the documentation, and the other way round."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from fnv_hash_fast import fnv1a_32
from prometheus_client.parser import text_string_to_metric_families

from scripts.generate_docs import DOCS
from scripts.generate_docs import PAGES as GENERATED
from slipstream import api
from slipstream.broker import BrokerFull, DeadLetter, Envelope, RetryPolicy, RoutingDecision
from slipstream.broker.changes import Change
from slipstream.bus import BusSettings, SubscribeOptions
from slipstream.bus import Message as BusMessage
from slipstream.cli import main
from slipstream.client import AsyncClient, Worker
from slipstream.console.settings import describe_settings as describe_console
from slipstream.jobs.settings import JobSettings
from slipstream.server import wire
from slipstream.server.app import create_app
from slipstream.server.response import _STATUS_OF_CODE
from slipstream.server.v1 import V1
from slipstream.server.v2.codec import STATUS_OF_CODE
from slipstream.server.v2.openapi import openapi
from slipstream.settings import Settings, describe_settings
from slipstream.slip import SlipSettings
from tests.docs.pages import (
    BUS,
    CLIENT,
    CONFIGURATION,
    CONSOLE,
    FROM_DRIFTQ,
    JOBS,
    METRICS,
    OPERATIONS,
    PAGES,
    PIPELINE,
    PROTOCOL,
    ROOT,
    SLIPS,
    quoted,
    rows,
    section,
)
from tests.server_process import ServerProcess

SOURCES = sorted((ROOT / "src" / "slipstream").rglob("*.py"))
ALL_TEXT = "\n".join(page.read_text() for page in PAGES)


def calls(*names: str, sources: list[Path] = SOURCES) -> Iterator[ast.Call]:
    """Every call of a function or method of one of these names in the source."""
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in names:
                yield node


# Routes


def routes() -> set[tuple[str, str]]:
    """What is not under `/v2`, which has its own reference."""
    nothing: Any = None  # the routes are asked for, and never called
    v1 = V1(nothing, None)
    hot = {(method.decode(), path.decode()) for path, route in v1.routes.items() for method in route.handlers}
    app: Any = create_app(nothing, nothing, nothing, nothing)
    cold = {("GET", route.path) for route in app.routes if not route.path.startswith("/v2")}
    return hot | cold


def test_every_route_is_in_the_table_of_endpoints_and_no_other() -> None:
    table = rows(section(PROTOCOL, "Endpoints").split("###")[0])
    assert {(method, path.strip("`")) for method, path, *_ in table} == routes()


def test_every_endpoint_has_its_section() -> None:
    text = section(PROTOCOL, "Endpoints")
    for method, path in routes():
        if path.startswith("/v1"):
            assert re.search(rf"^### .*\b{method} {path}\b", text, re.MULTILINE), f"{method} {path} has no section"


def test_no_page_speaks_of_a_path_that_is_not_there() -> None:
    there = {path for _, path in routes()}
    assert set(re.findall(r"/v1/[a-z]+", ALL_TEXT)) <= there


def test_no_page_speaks_of_a_path_of_v2_that_is_not_there() -> None:
    there = {path.split("/")[2] for path in openapi()["paths"]} | {"openapi"}
    spoken = set(re.findall(r"(?<![a-z.])/v2/([a-z-]+)", ALL_TEXT))
    assert spoken == there


def test_every_parameter_of_a_request_is_on_the_page() -> None:
    text = section(PROTOCOL, "Endpoints")
    for request in (wire.TopicRequest, wire.ConsumeRequest, wire.NackRequest, wire.ConsumeItem):
        assert set(request.__struct_fields__) <= words(text), request
    produce = {row[0].strip("`") for row in rows(section(PROTOCOL, "POST /v1/produce"))}
    expected = {field for field in wire.ProduceRequest.__struct_fields__ if field != "envelope"}
    expected |= {f"envelope.{field}" for field in wire.WireEnvelope.__struct_fields__ if field != "retry_policy"}
    expected |= {f"envelope.retry_policy.{field}" for field in wire.WireRetryPolicy.__struct_fields__}
    assert produce == expected


def test_every_query_parameter_of_produce_is_in_its_table() -> None:
    source = (ROOT / "src" / "slipstream" / "server" / "wire.py").read_text()
    read = set(re.findall(r'query\.get\("(\w+)"\)|(?:integer|_trimmed)\(query, "(\w+)"\)', source))
    names = {name for pair in read for name in pair if name}
    shown = set().union(*(quoted(row[1]) for row in rows(section(PROTOCOL, "POST /v1/produce"))))
    others = set(wire.NackRequest.__struct_fields__) | {"name", "partitions", "lease_ms", "prefetch"}
    assert names - others <= shown <= names


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_what_v2_answers_besides_is_told() -> None:
    """What `/v1` answers too is in its table."""
    text = quoted(section(PROTOCOL, "`/v2`"))
    assert set(STATUS_OF_CODE) - set(_STATUS_OF_CODE) <= text


# Errors


def errors() -> set[tuple[str, str]]:
    """(status, code) of everything the server can answer that is not well."""
    found = {(str(status), code) for code, status in _STATUS_OF_CODE.items()}
    found.add((str(int(HTTPStatus.INSUFFICIENT_STORAGE)), BrokerFull.code))
    for call in calls("render_error", "_refuse", "_error", "HeadRefused"):
        constants = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        if len(constants) >= 2 and isinstance(constants[0], int):
            found.add((str(constants[0]), str(constants[1])))
    return found


def test_every_error_is_in_the_table_and_no_other() -> None:
    table = rows(section(PROTOCOL, "Errors"))
    assert {(status, code.strip("`")) for status, code, *_ in table} == errors()


def test_the_example_of_a_dead_letter_has_every_field() -> None:
    text = section(PROTOCOL, "Dead letters")
    example = msgspec.json.decode(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0], type=DeadLetter)
    for field in DeadLetter.__struct_fields__:
        assert f'"{field}"' in text
    assert example.reason == "max_attempts"


# The rules, where the page has numbers


def test_the_hashes_of_keys_are_right() -> None:
    table = rows(section(PROTOCOL, "Order and partitions"))
    assert len(table) >= 5
    for key, shown, of_3, of_8 in table:
        value = fnv1a_32(key.strip("`").encode())
        assert (f"{value:08x}", value % 3, value % 8) == (shown.strip("`"), int(of_3), int(of_8)), key


def test_the_example_of_retries_is_right() -> None:
    text = section(PROTOCOL, "Retries")
    policy = msgspec.json.decode(re.findall(r'`(\{"max_attempts": 5.*?\})`', text)[0], type=RetryPolicy)
    ((_, *pauses),) = [row for row in rows(text) if row[0] == "pause in ms"]
    assert [int(pause) for pause in pauses[:-1]] == [policy.delay_ms(n) for n in range(1, policy.max_attempts)]


def test_every_change_in_the_journal_is_on_the_page() -> None:
    changes = {kind.__name__ for kind in Change.__args__}
    assert {name for name in quoted(section(PROTOCOL, "The life of a message")) if name in changes} == changes


# Settings and commands


@pytest.mark.parametrize("name", GENERATED)
def test_the_pages_made_from_the_code_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == GENERATED[name](), "run: .venv/bin/python -m scripts.generate_docs"


def test_every_setting_is_on_its_page() -> None:
    table = [row for row in rows(CONFIGURATION.read_text()) if row[0].startswith("`--")]
    assert [(row[0].rstrip(" *"), row[1]) for row in table] == [
        (f"`{info.option}`", f"`{info.environment}`") for info in describe_settings()
    ]


def test_no_page_speaks_of_an_option_that_is_not_there() -> None:
    options = [option for command in every_command(main) for option in command.params]
    there = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    there |= {"--help", "--name", "--no-name"}  # of every command; and any switch, on the page of settings
    there |= {"--data-binary", "--cacert"}  # of curl
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ALL_TEXT)) <= there


def test_no_page_speaks_of_a_variable_that_is_not_there() -> None:
    there = {info.environment for info in describe_settings()} | {"SLIPSTREAM_CONFIG", "SLIPSTREAM_URL"}
    there |= {info.variable for info in describe_console()}
    assert set(re.findall(r"SLIPSTREAM_[A-Z_]+", ALL_TEXT)) <= there


SETTING_LIKE = re.compile(r"(?:max|retention|retry|journal|idempotency|group|compaction|sync|page|lease|tick)_[a-z_]+")


def test_no_page_speaks_of_a_setting_that_is_not_there() -> None:
    structs = (wire.WireEnvelope, wire.WireRetryPolicy, wire.ConsumeRequest, Envelope, DeadLetter, RoutingDecision)
    there = {
        *Settings.__struct_fields__,
        "retry_after_ms",
        "max_attempts",
        "max_payload",
    }  # the last one is of a NATS server
    for struct in (*structs, *(kind for kind in vars(api).values() if hasattr(kind, "__struct_fields__"))):
        there |= set(struct.__struct_fields__)
    there |= {*SlipSettings.__struct_fields__, *JobSettings.__struct_fields__}
    there |= {*BusSettings.__struct_fields__, *SubscribeOptions.__struct_fields__, *vars(BusMessage)}
    for method in (AsyncClient, AsyncClient.producer, Worker, Worker.handler):
        there |= set(inspect.signature(method).parameters)
    there |= set(dir(AsyncClient))
    spoken = {name for name in quoted(ALL_TEXT) if SETTING_LIKE.fullmatch(name)}
    assert spoken <= there


def every_command(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from every_command(command)
        else:
            yield command


@pytest.mark.parametrize("name", ["serve", "doctor"])
def test_what_runs_a_broker_is_in_the_readme_and_in_operations(name: str) -> None:
    for page in (ROOT / "README.md", OPERATIONS):
        assert f"slipstream {name}" in page.read_text(), page.name


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_is_on_some_page_that_a_person_wrote(name: str) -> None:
    written = [page for page in PAGES if page not in {DOCS / each for each in GENERATED}]
    assert any(f"slipstream {name}" in page.read_text() for page in written)


def test_every_option_of_the_doctor_is_in_operations() -> None:
    for option in main.commands["doctor"].params:
        if isinstance(option, click.Option):
            assert set(option.opts) <= words_with_dashes(section(OPERATIONS, "Doctor")), option.opts


def test_the_flags_of_driftq_are_on_its_page() -> None:
    text = FROM_DRIFTQ.read_text()
    flags = {name for option in main.commands["serve"].params for name in option.opts if re.match("-[a-z]", name)}
    assert flags <= quoted(text)


def words_with_dashes(text: str) -> set[str]:
    return set(re.findall(r"[\w-]+", text))


# Metrics and log lines


def test_every_metric_is_in_the_table_and_no_other(shared: ServerProcess) -> None:
    families = text_string_to_metric_families(shared.get("/metrics").text)
    there = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    there = {name for name in there if not name.startswith(("process_", "python_"))}
    assert {row[0].strip("`") for row in rows(section(OPERATIONS, "Metrics"))} == there


def test_no_page_speaks_of_a_metric_that_is_not_there() -> None:
    table = {row[0].strip("`") for page in (OPERATIONS, BUS, SLIPS, JOBS) for row in rows(section(page, "Metrics"))}
    table |= {row[0].strip("`") for row in rows(METRICS.read_text())}
    spoken = {name for name in quoted(ALL_TEXT) if re.fullmatch(r"slipstream_[a-z_]+|[a-z_]+_total", name)}
    assert spoken - {"slipstream_broker", "resources_total"} <= table  # a fixture, and a column


def log_lines() -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """(the page it belongs to, level, the pieces of the line that are the same every time)"""
    of_the_client = [path for path in SOURCES if path.parent.name == "client"]
    of_the_bus = [path for path in SOURCES if (ROOT / "src" / "slipstream" / "bus") in path.parents]
    of_slips = [path for path in SOURCES if (ROOT / "src" / "slipstream" / "slip") in path.parents]
    of_jobs = [path for path in SOURCES if (ROOT / "src" / "slipstream" / "jobs") in path.parents]
    of_the_pipeline = [path for path in SOURCES if (ROOT / "src" / "slipstream" / "pipeline") in path.parents]
    of_the_console = [path for path in SOURCES if (ROOT / "src" / "slipstream" / "console") in path.parents]
    of_others = {*of_the_console, *of_the_client, *of_the_bus, *of_slips, *of_jobs, *of_the_pipeline}
    of_the_server = [path for path in SOURCES if path not in of_others]
    for page, sources in (
        (OPERATIONS, of_the_server),
        (CLIENT, of_the_client),
        (BUS, of_the_bus),
        (SLIPS, of_slips),
        (JOBS, of_jobs),
        (PIPELINE, of_the_pipeline),
        (CONSOLE, of_the_console),
    ):
        for call in calls("info", "warning", "error", "critical", "exception", sources=sources):
            line = call.args[0] if call.args else None
            if isinstance(line, ast.Constant) and isinstance(line.value, str) and isinstance(call.func, ast.Attribute):
                pieces = (piece.strip(" :,/") for piece in re.split(r"%[.0-9]*[sdrg]", line.value))
                yield page, call.func.attr, tuple(piece for piece in pieces if piece)


def test_every_log_line_is_on_its_page_with_its_level() -> None:
    lines = {line for line in log_lines() if line[2]}
    assert len(lines) > 100
    missing = []
    for page, level, pieces in sorted(lines):
        table = rows(section(page, "Log lines"))
        shown = {cells[1] for cells in table if all(piece in cells[0] for piece in pieces)}
        if shown != {"error" if level == "exception" else level}:
            missing.append((page.name, level, pieces))
    assert missing == []


# Dependencies


def test_every_dependency_has_its_line() -> None:
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())
    extras = project["project"]["optional-dependencies"].values()
    needed = [*project["project"]["dependencies"], *(text for extra in extras for text in extra)]
    names = {re.split(r"[<>=;[]", text)[0] for text in needed} - {"slipstream"}  # the extra of all others
    page = ROOT / "docs" / "adr" / "0001-dependencies.md"
    assert {row[0].strip("`") for row in rows(page.read_text())} == names
    tools = {re.split(r"[<>=;[]", text)[0] for text in project["dependency-groups"]["dev"]}
    assert tools <= quoted(page.read_text())


DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_context_decision_and_consequences_and_is_short(page: Path) -> None:
    assert re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(page.read_text().splitlines()) < 60
    assert page.read_text().startswith(f"# {int(page.name[:4])}. ")
