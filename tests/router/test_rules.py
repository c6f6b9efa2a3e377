"""A file of rules: the first that holds decides, and a file that makes no sense is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slipstream.broker import Envelope, RoutingDecision
from slipstream.router import RoutedMessage, RouterRefused, RulesRouter


def load(directory: Path, text: str) -> RulesRouter:
    path = directory / "rules.toml"
    path.write_text(text)
    return RulesRouter.load(path)


def route(
    router: RulesRouter, topic: str = "t", value: bytes = b"v", key: bytes = b"", envelope: Envelope | None = None
) -> str:
    """The label it gets, or nothing."""
    message = RoutedMessage(key, value, envelope)
    decision = asyncio.run(router.route(topic, message))
    return decision.label if decision is not None else ""


def test_the_first_rule_that_holds_decides(tmp_path: Path) -> None:
    router = load(
        tmp_path,
        """
        [[rule]]
        when = { topic = "orders.*" }
        then = { label = "first" }
        [[rule]]
        when = { topic = "*.eu" }
        then = { label = "second" }
        """,
    )
    assert route(router, "orders.eu") == "first"
    assert route(router, "users.eu") == "second"
    assert route(router, "users.us") == ""


def test_a_rule_without_conditions_always_holds(tmp_path: Path) -> None:
    assert route(load(tmp_path, '[[rule]]\nthen = { label = "all" }')) == "all"


def test_all_conditions_of_a_rule_must_hold(tmp_path: Path) -> None:
    router = load(
        tmp_path,
        """
        [[rule]]
        when = { topic = "t", key = "user:*", tenant_id = "acme", run_id = "r?", step_id = "s" }
        then = { label = "yes" }
        """,
    )
    envelope = Envelope(tenant_id="acme", run_id="r1", step_id="s")
    assert route(router, key=b"user:1", envelope=envelope) == "yes"
    assert route(router, key=b"group:1", envelope=envelope) == ""
    assert route(router, key=b"\xff", envelope=envelope) == ""
    assert route(router, key=b"user:1", envelope=Envelope(tenant_id="acme", run_id="r12", step_id="s")) == ""
    assert route(router, key=b"user:1") == ""


def test_payload_fields_are_compared_by_path(tmp_path: Path) -> None:
    router = load(
        tmp_path,
        """
        [[rule]]
        when = { payload = { "type" = "invoice", "total.amount" = 5 } }
        then = { label = "yes" }
        """,
    )
    assert route(router, value=b'{"type": "invoice", "total": {"amount": 5}}') == "yes"
    for other in (
        b'{"type": "invoice"}',
        b'{"type": "invoice", "total": 5}',
        b'{"type": "invoice", "total": {"amount": "5"}}',
        b"[]",
        b"not json",
        b"\xff",
        b"[" * 100_000,
    ):
        assert route(router, value=other) == "", other


def test_true_is_not_one(tmp_path: Path) -> None:
    router = load(tmp_path, '[[rule]]\nwhen = { payload = { "n" = 1 } }\nthen = { label = "one" }')
    assert route(router, value=b'{"n": 1}') == "one"
    assert route(router, value=b'{"n": true}') == ""


def test_a_decision_may_say_everything(tmp_path: Path) -> None:
    router = load(
        tmp_path,
        """
        [[rule]]
        then = { label = "l", target_topic = "x", partition_override = 1, meta = { source = "rules" } }
        """,
    )
    decision = asyncio.run(router.route("t", RoutedMessage(b"", b"v")))
    assert decision == RoutingDecision("l", "x", 1, {"source": "rules"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rule = 3",
        "[[rule]]",
        '[[rules]]\nthen = { label = "l" }',
        '[[rule]]\nthen = { lable = "l" }',
        '[[rule]]\nwhen = { topics = "t" }\nthen = { label = "l" }',
        '[[rule]]\nthen = { partition_override = "x" }',
        "[[rule",
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(RouterRefused, match=r"rules\.toml"):
        load(tmp_path, text)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RouterRefused, match=r"nothing\.toml cannot be read"):
        RulesRouter.load(tmp_path / "nothing.toml")
