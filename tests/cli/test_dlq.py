"""`slipstream dlq`."""

from __future__ import annotations

import pytest

from slipstream.api import AttemptInfo
from slipstream.cli.attempts import show_history
from slipstream.cli.output import Output
from tests.cli.commands import Commands
from tests.server.v2.wire import V2


@pytest.fixture
def dead(cli: Commands) -> Commands:
    """Three dead letters: two time-outs, and one that was wrong."""
    v2 = V2(cli.server, cli.topic)
    v2.produce({"value": "a", "key": "k", "attributes": {"n": "1"}, "envelope": {"run_id": "r"}}, "b", "c")
    reasons = ["connection timeout", "timeout again", "no such user"]
    fetched = v2.fetch()
    v2.nack(*(m | {"retryable": False, "reason": why} for m, why in zip(fetched, reasons, strict=True)))
    return cli


def test_a_topic_without_dead_letters_says_so(cli: Commands) -> None:
    assert "no dead letters" in cli.said("dlq", "list", cli.topic)
    assert "0 dead letters" in cli.said("dlq", "redrive", cli.topic)
    cli.run("dlq", "list", "nowhere", expect=3)


def test_they_are_listed_with_filters(dead: Commands) -> None:
    table = dead.said("dlq", "list", dead.topic)
    assert "connection timeout" in table
    assert f"dlq.{dead.topic}/0/2" in table
    found = dead.lines("dlq", "list", dead.topic, "--error", "TIMEOUT", "--group", "g", "--since", "1h")
    assert [letter["value"] for letter in found] == ["a", "b"]
    assert len(dead.lines("dlq", "list", "--max", "1")) == 1
    assert "more than 1" in dead.run("dlq", "list", dead.topic, "--max", "1").stderr


def test_one_is_shown_whole(dead: Commands) -> None:
    shown = dead.said("dlq", "show", f"dlq.{dead.topic}/0/0")
    for words in ("connection timeout", "rejected", "attribute n", "run_id", f"{dead.topic}/0/0"):
        assert words in shown
    assert dead.json("dlq", "show", f"{dead.topic}/0/1")["value"] == "b"
    dead.run("dlq", "show", f"{dead.topic}/0/99", expect=3)
    assert "topic/partition/offset" in dead.run("dlq", "show", "17", expect=2).stderr


def test_its_attempts_are_rows_with_tracebacks_below(dead: Commands) -> None:
    v2 = V2(dead.server, dead.topic)
    v2.produce({"value": "d", "envelope": {"retry_policy": {"max_attempts": 2}}})
    for number in (1, 2):
        (message,) = v2.fetch(owner=f"worker-{number}", wait_ms=10_000)
        failed = message | {"reason": f"error {number}", "traceback": f"Traceback\n  [line] {number}"}
        v2.nack(failed, owner=f"worker-{number}")
    shown = dead.said("dlq", "show", f"dlq.{dead.topic}/0/3")
    for words in ("ATTEMPT", "TOOK", "worker-1", "error 2", "attempt 1:", "  [line] 2"):
        assert words in shown
    assert "left out" not in shown
    assert len(dead.json("dlq", "show", f"dlq.{dead.topic}/0/3")["history"]) == 2


def test_attempts_that_are_not_kept_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def attempt(number: int) -> AttemptInfo:
        return AttemptInfo(number, None, 1, None, "w", "no")

    show_history(Output(as_json=False), [attempt(number) for number in (1, 11, 12, 14)])
    assert "\nattempts 2 to 10 were left out\nattempt 13 was left out\n" in capsys.readouterr().out


def test_a_selection_is_counted_asked_about_and_sent_back_once(dead: Commands) -> None:
    redrive = ["dlq", "redrive", dead.topic, "--error", "timeout"]
    assert "2 dead letters would be sent back" in dead.said(*redrive, "--dry-run")
    assert "Send 2 dead letters" in dead.run(*redrive, stdin="n\n", expect=1).stderr
    assert "2 dead letters sent back" in dead.said(*redrive, stdin="y\n")
    assert "0 dead letters" in dead.said(*redrive, "--yes"), "what was sent back is not sent twice"
    assert len(dead.lines("dlq", "list", dead.topic, "--not-redriven")) == 1
    assert len(dead.lines("dlq", "list", dead.topic, "--redriven")) == 2
    back = dead.lines("consume", dead.topic, "--group", "g", "--wait", "1ms")
    assert [message["value"] for message in back] == ["a", "b"]


def test_only_the_failed_group_gets_them_unless_all_are_meant(dead: Commands) -> None:
    dead.run("group", "seek", dead.topic, "other", "--latest")
    redrive = ["dlq", "redrive", dead.topic, "--error"]
    asked = dead.run(*redrive, "timeout", stdin="y\n").stderr
    assert f"Send 2 dead letters of {dead.topic} to the group that each failed for?" in asked
    asked = dead.run(*redrive, "no such user", "--all-groups", stdin="y\n").stderr
    assert f"Send 1 dead letter of {dead.topic} to every group of the topic?" in asked
    assert "all groups" in dead.said("dlq", "redrives")
    taken = dead.lines("consume", dead.topic, "--group", "other", "--wait", "1ms")
    assert [message["value"] for message in taken] == ["c"]


def test_the_group_that_is_gone_is_named_as_the_reason(dead: Commands) -> None:
    dead.run("group", "forget", dead.topic, "g", "--yes")
    done = dead.run("dlq", "redrive", dead.topic, "--yes")
    assert "0 dead letters" in done.stdout
    assert "3 dead letters not sent" in done.stderr
    assert "--all-groups" in done.stderr


def test_single_ones_go_elsewhere(dead: Commands) -> None:
    dead.run("topic", "create", dead.topic + ".retry")
    place = f"dlq.{dead.topic}/0/1"
    redrive = ["dlq", "redrive", dead.topic, "-m", place, "--to", dead.topic + ".retry", "--yes"]
    missing = ["-m", f"dlq.{dead.topic}/0/99"]
    assert "99" in dead.run(*redrive, *missing, expect=3).stderr, "none is sent if one of them does not exist"
    other = dead.run(*redrive, "-m", "dlq.other/0/1", expect=2).stderr
    assert f"dlq.other/0/1 is not a dead letter of {dead.topic}" in other
    assert dead.json(*redrive)["redriven"] == 1
    assert [message["value"] for message in dead.lines("read", dead.topic + ".retry")] == ["b"]


def test_one_that_is_not_waited_for_is_listed_and_cancelled(dead: Commands) -> None:
    status = dead.json("dlq", "redrive", dead.topic, "--rate", "0.1", "--yes", "--no-wait")
    assert status["state"] == "running"
    assert status["id"] in dead.said("dlq", "redrives")
    assert dead.json("dlq", "cancel", status["id"])["state"] == "cancelled"
    assert "cancelled" in dead.said("dlq", "cancel", status["id"])
    dead.run("dlq", "cancel", "nothing", expect=3)
