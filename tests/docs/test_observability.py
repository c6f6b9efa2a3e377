"""The page on observability tells of every setting of health, every span and every field of logs."""

from __future__ import annotations

import ast
import re

from slipstream.health import describe_settings
from slipstream.telemetry import ENDPOINTS
from tests.docs.pages import OBSERVABILITY, ROOT, quoted, rows, section

SOURCES = [*(ROOT / "src" / "slipstream" / "slip").rglob("*.py"), *(ROOT / "src" / "slipstream" / "jobs").rglob("*.py")]


def test_every_setting_of_health_is_in_the_table_as_it_is() -> None:
    table = [row for row in rows(section(OBSERVABILITY, "Health")) if row[0].startswith("`HEALTH_")]
    assert table == [[f"`{info.variable}`", f"`{info.default}`", info.text] for info in describe_settings()]


def spans() -> set[str]:
    """The names of spans in the source, `step <id>` for those that say more."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"span", "span_within", "rejoined"}:
                name = node.args[0]
                if isinstance(name, ast.JoinedStr):
                    assert isinstance(name.values[0], ast.Constant)
                    found.add(str(name.values[0].value) + "<id>")
                elif isinstance(name, ast.Constant):
                    found.add(str(name.value))
    return found


def test_every_span_is_in_the_table_and_no_other() -> None:
    table = [row for row in rows(section(OBSERVABILITY, "Traces")) if not row[0].startswith("`OTEL_")]
    assert {row[0].strip("`") for row in table} == spans()


def test_every_attribute_of_a_span_is_in_the_table() -> None:
    text = "".join(path.read_text() for path in SOURCES)
    named = set(re.findall(r'"(jobs\.[a-z_]+)"', text))
    named |= {name.replace("__", ".") for name in re.findall(r"\b((?:jobs|http)__\w+)=", text)}
    named -= {"jobs.tasks", "jobs.status", "jobs.logs", "jobs.dlq", "jobs.toml"}  # streams, and a file
    assert named <= quoted(section(OBSERVABILITY, "Traces"))


def test_the_variables_that_turn_traces_on_are_in_the_table() -> None:
    assert {*ENDPOINTS, "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"} <= quoted(
        section(OBSERVABILITY, "Traces")
    )
