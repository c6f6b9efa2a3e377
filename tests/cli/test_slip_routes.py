"""`slipstream slip check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.slips import Slips

ROUTES = """
routes:
  order.v1:
    timeout: 1h
    steps:
      - validate
      - {id: gift-wrap, when: {var: payload.gift}}
      - {id: charge, max_attempts: 5, timeout: 10s, topic: internal.bank.v1}
      - id: prepare
        parallel: {warehouse: [reserve, pick], papers: [invoice]}
        join: all
      - {id: manager, wait: approval, deadline: 2h, on_deadline: skip}
      - {id: greeting, optional: true, unless: {var: payload.rude}}
  chat.*:
    steps: [answer]
"""


@pytest.fixture
def slips(tmp_path: Path) -> Slips:
    (tmp_path / "routes.yaml").write_text(ROUTES)
    return Slips(tmp_path / "there-is-no-store")


def event(payload: object, event_type: str = "order.v1") -> str:
    envelope = {"v": "1", "source": "test", "correlationId": "c-1"}
    return json.dumps({"envelope": envelope, "type": event_type, "payload": payload})


def test_a_table_is_shown_by_type(slips: Slips, tmp_path: Path) -> None:
    assert slips.said("check", str(tmp_path / "routes.yaml")).splitlines() == [
        "order.v1  within 1 h",
        "  validate",
        '  gift-wrap     when {"var":"payload.gift"}',
        "  charge        5 attempts, each within 10 s, on internal.bank.v1",
        "  prepare       parallel, all wanted",
        "    warehouse:",
        "      reserve",
        "      pick",
        "    papers:",
        "      invoice",
        "  manager       waits for approval, at most 2 h, then skip",
        '  greeting      unless {"var":"payload.rude"}, may fail',
        "",
        "chat.*",
        "  answer",
    ]
    found = slips.json("check", str(tmp_path / "routes.yaml"))
    assert list(found) == ["order.v1", "chat.*"]
    assert list(found["order.v1"][3]["branches"]) == ["warehouse", "papers"]


def test_the_plan_of_an_event(slips: Slips, tmp_path: Path) -> None:
    path = str(tmp_path / "routes.yaml")
    said = slips.said("check", path, "--event", "-", stdin=event({"gift": True}))
    assert [line.split()[0] for line in said.splitlines()] == [
        *("order.v1", "validate", "gift-wrap", "charge", "prepare", "warehouse:", "papers:", "manager", "greeting")
    ]
    (tmp_path / "event.json").write_text(event({}))
    steps = slips.json("check", path, "--event", str(tmp_path / "event.json"))
    assert [step["id"] for step in steps] == ["validate", "charge", "prepare", "manager", "greeting"]


def test_what_is_wrong_is_said(slips: Slips, tmp_path: Path) -> None:
    path = str(tmp_path / "routes.yaml")
    assert "there is no route" in slips.refused("check", path, "--event", "-", stdin=event({}, "no.v1"), expect=3)
    assert "this is no event" in slips.refused("check", path, "--event", "-", stdin="{}", expect=2)
    bad = tmp_path / "bad.yaml"
    bad.write_text("routes:\n  a.v1:\n    stepz: [x]\n  b.v1:\n    steps: [{id: y, wait: never}]\n")
    error = slips.refused("check", str(bad), expect=2)
    assert f"{bad}:3: " in error
    assert f"{bad}:5: " in error
