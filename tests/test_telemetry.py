from __future__ import annotations

import sys

import pytest
from opentelemetry import trace

from slipstream import telemetry
from slipstream.spans import is_looked_at, look_again
from slipstream.telemetry import InvalidTelemetry, asked_for, traced
from tests.program import Program


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ("otlp", "OTEL_EXPORTER_OTLP_ENDPOINT")),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, ("otlp", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp", "OTEL_TRACES_EXPORTER")),
        ({"OTEL_TRACES_EXPORTER": "console"}, ("console", "OTEL_TRACES_EXPORTER")),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, None),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, None),
        ({"OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "otlp"}, ("otlp", "OTEL_TRACES_EXPORTER")),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            ("otlp", "OTEL_TRACES_EXPORTER"),
        ),
    ],
)
def test_traces_are_on_where_the_usual_variables_say_so(
    environment: dict[str, str], asked: tuple[str, str] | None
) -> None:
    assert asked_for(environment) == asked


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "there is otlp, console and none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "spans are sent as http/protobuf"),
    ],
)
def test_what_is_not_there_is_refused_in_words(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidTelemetry, match=reason):
        asked_for(environment)


def test_without_the_variables_nothing_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*telemetry.ENDPOINTS, "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    look_again()
    with traced("test"):
        assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        assert not is_looked_at()


def test_who_asks_and_has_not_installed_it_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    words = r"pip install 'slipstream\[opentelemetry\]', or unset OTEL_EXPORTER_OTLP_ENDPOINT"
    with pytest.raises(InvalidTelemetry, match=words), traced("test"):
        pytest.fail("it has started")


SPAN = """
from opentelemetry import trace

from slipstream.spans import span
from slipstream.telemetry import traced

with traced("tester"):
    with span("work", "test", {"number": 7}, traceparent="00-" + "ab" * 16 + "-" + "cd" * 8 + "-01") as active:
        assert active.is_recording()
print("done")
"""


def test_a_collector_that_is_away_does_not_keep_a_program_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    impatient = "from slipstream import telemetry\n\ntelemetry.LAST_SPANS_S = 0.2\n"
    program = Program([sys.executable, "-c", impatient + SPAN])
    assert program.wait() == 0
    assert "done" in program.said


def test_spans_may_be_printed_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "another")
    program = Program([sys.executable, "-c", SPAN])
    assert program.wait() == 0
    for piece in ('"name": "work"', '"service.name": "another"', f'"trace_id": "0x{"ab" * 16}"', '"number": 7'):
        assert piece in program.said


def test_a_sampler_that_takes_nothing_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    program = Program([sys.executable, "-c", SPAN.replace("assert active", "assert not active")])
    assert program.wait() == 0, program.said
    assert '"name": "work"' not in program.said


def test_a_command_refuses_to_start_with_traces_that_it_cannot_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    program = Program([sys.executable, "-m", "slipstream", "slip", "run", "--routes", "none.yaml", "none:worker"])
    assert program.wait() == 2
    assert "OTEL_TRACES_EXPORTER='zipkin'" in program.said
