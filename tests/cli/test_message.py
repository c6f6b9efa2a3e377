"""`slipstream message`."""

from __future__ import annotations

import pytest

from tests.cli.commands import Commands
from tests.server.v2.wire import V2

HOUR_MS = 3_600_000


@pytest.fixture
def held(cli: Commands) -> Commands:
    """Two messages on lease to worker `crashed`, for an hour; the first has failed once and waits for an hour."""
    v2 = V2(cli.server, cli.topic)
    v2.produce("a", "b")
    first, _ = v2.fetch(owner=f"crashed-{cli.topic}", lease_ms=HOUR_MS)
    v2.nack(first | {"delay_ms": HOUR_MS, "reason": "boom"}, owner=f"crashed-{cli.topic}")
    return cli


def place(cli: Commands, offset: int) -> str:
    return f"{cli.topic}/0/{offset}"


def taken(cli: Commands) -> list[str]:
    lines = cli.lines("consume", cli.topic, "--group", "g", "--wait", "1ms")
    return [f"{message['value']}{message['attempts']}" for message in lines]


def test_one_is_shown_with_its_attempts(held: Commands) -> None:
    shown = held.said("message", "show", place(held, 0), "-g", "g")
    for words in ("waiting", "due", "boom", f"crashed-{held.topic}"):
        assert words in shown
    assert held.json("message", "show", place(held, 1), "-g", "g")["state"] == "leased"
    held.run("message", "show", place(held, 9), "-g", "g", expect=3)


def test_one_that_waits_is_retried_now(held: Commands) -> None:
    assert "1 message retried" in held.said("message", "retry", place(held, 0), "-g", "g")
    assert taken(held) == ["a2"]


def test_what_cannot_be_done_is_said_message_by_message(held: Commands) -> None:
    done = held.run("message", "retry", place(held, 0), place(held, 1), "-g", "g", expect=1)
    assert "1 message retried" in done.stdout
    assert f"{place(held, 1)}: " in done.stderr
    assert "release it" in done.stderr
    failed = held.run("message", "retry", place(held, 1), "-g", "g", "--json", expect=1)
    assert '"done":0' in failed.stdout.replace(" ", "")


def test_one_is_rejected_after_a_question(held: Commands) -> None:
    reject = ["message", "reject", place(held, 0), "-g", "g", "--reason", "no such customer"]
    assert "Move 1 message of group g to the dead letters?" in held.run(*reject, stdin="n\n", expect=1).stderr
    assert "1 message rejected" in held.said(*reject, stdin="y\n")
    assert "no such customer" in held.said("dlq", "show", f"dlq.{held.topic}/0/0")


def test_one_is_discarded_after_a_question(held: Commands) -> None:
    discard = ["message", "discard", place(held, 0), "-g", "g"]
    assert "without a dead letter?" in held.run(*discard, stdin="n\n", expect=1).stderr
    assert held.json(*discard, "--yes")["done"] == 1
    assert held.json("group", "show", held.topic, "g")["lag"] == 1


def test_leases_are_extended_and_released(held: Commands) -> None:
    assert "1 message extended" in held.said("message", "extend", place(held, 1), "-g", "g", "--lease", "2h")
    assert "1 message released" in held.said("message", "release", place(held, 1), "-g", "g")
    assert taken(held) == ["b2"]


def test_all_leases_of_a_worker_are_released(held: Commands) -> None:
    release = ["message", "release", "--owner", f"crashed-{held.topic}"]
    assert "End every lease" in held.run(*release, stdin="n\n", expect=1).stderr
    assert "1 lease" in held.said(*release, "--yes")
    assert held.json(*release, "--topic", held.topic, "--group", "g", "--yes")["released"] == 0
    assert taken(held) == ["b2"]
    for wrong in (["message", "release", "--yes"], [*release, place(held, 0)], ["message", "release", place(held, 0)]):
        held.run(*wrong, expect=2)
