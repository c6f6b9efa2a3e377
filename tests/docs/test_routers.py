"""The routers that operations.md shows, on a real server."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from slipstream.broker import RoutingDecision
from tests.conftest import StartServer
from tests.docs.pages import OPERATIONS, blocks
from tests.server_process import ServerProcess


def example(language: str) -> str:
    (found,) = blocks(OPERATIONS, language)
    return found


@pytest.fixture
def rules(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    path = tmp_path / "rules.toml"
    path.write_text(example("toml"))
    server = start_server("--router", str(path))
    server.create("orders", 3)
    server.create("orders.finance")
    return server


def test_the_rules_file_sends_invoices_to_finance(rules: ServerProcess) -> None:
    rules.produce("orders", json.dumps({"type": "invoice", "total": {"currency": "EUR"}}))
    (item,) = rules.take("orders.finance")
    assert item["routing"] == {"label": "finance", "meta": {"source": "rules"}}


def test_the_rules_file_knows_its_customers(rules: ServerProcess) -> None:
    rules.produce("orders", "a chair", key="vip:2")
    (item,) = rules.take("orders")
    assert (item["partition"], item["routing"]) == (0, {"label": "vip"})


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_server: StartServer) -> ServerProcess:
    (tmp_path / "routing.py").write_text(example("python"))
    assert "`--router routing:by_size`" in OPERATIONS.read_text()
    monkeypatch.chdir(tmp_path)
    return start_server("--router", "routing:by_size")


def test_the_function_sorts_by_size(function: ServerProcess) -> None:
    function.create("orders")
    function.create("orders.large")
    function.produce("orders", "x" * 2_000)
    function.produce("orders", "small")
    (large,) = function.take("orders.large")
    (small,) = function.take("orders")
    assert large["routing"]["label"] == "large"
    assert (small["value"], "routing" in small) == ("small", False)


def test_the_answer_of_the_endpoint_is_a_decision() -> None:
    question, answer = (text for text in blocks(OPERATIONS, "json") if "topic" in text)
    assert set(json.loads(question)) == {"topic", "key", "value", "envelope"}
    decision = msgspec.json.decode(answer, type=RoutingDecision)
    assert set(json.loads(answer)) == set(RoutingDecision.__struct_fields__), "all fields are shown"
    assert decision.partition_override == 0
