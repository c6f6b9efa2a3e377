"""`slipstream group`."""

from __future__ import annotations

from tests.cli.commands import Commands


def values(cli: Commands) -> list[str]:
    return [message["value"] for message in cli.lines("consume", cli.topic, "-g", "g", "--ack", "--wait", "1ms")]


def test_a_group_is_shown_with_what_it_has_in_flight(cli: Commands) -> None:
    assert "no group" in cli.said("group", "list", cli.topic)
    cli.run("produce", cli.topic, "a")
    cli.run("consume", cli.topic, "--group", "g", "--max", "1")
    assert "GROUP" in cli.said("group", "list", cli.topic)
    shown = cli.said("group", "show", cli.topic, "g")
    assert "WATERMARK" in shown
    assert "leased" in shown
    assert cli.json("group", "list", cli.topic)[0]["group"] == "g"
    assert "has no group" in cli.run("group", "show", cli.topic, "nobody", expect=3).stderr


def test_a_group_is_sent_to_either_end_an_offset_or_a_time(cli: Commands) -> None:
    cli.run("produce", cli.topic, "a", "b", "c")
    seek = ["group", "seek", cli.topic, "g"]
    cli.run(*seek, "--latest")
    assert values(cli) == []
    cli.run(*seek, "--earliest")
    assert values(cli) == ["a", "b", "c"]
    cli.run(*seek, "--offset", "2")
    assert values(cli) == ["c"]
    assert cli.json(*seek, "--time", "10m", "--partition", "0")["lag"] == 3
    assert "one of" in cli.run(*seek, expect=2).stderr
    assert "one of" in cli.run(*seek, "--latest", "--offset", "1", expect=2).stderr
    assert "no time" in cli.run(*seek, "--time", "noon", expect=2).stderr


def test_a_group_is_paused_and_resumed(cli: Commands) -> None:
    cli.run("produce", cli.topic, "a")
    cli.run("group", "seek", cli.topic, "g", "--earliest")
    assert "paused" in cli.said("group", "pause", cli.topic, "g")
    assert values(cli) == []
    assert cli.json("group", "resume", cli.topic, "g")["paused"] is False
    assert values(cli) == ["a"]


def test_a_retry_policy_is_set_and_shown_and_reset(cli: Commands) -> None:
    cli.run("group", "seek", cli.topic, "g", "--earliest")
    set_ = ["group", "set", cli.topic, "g"]
    assert "\nretries: 1 attempt, at once\n" in cli.said(*set_, "--max-attempts", "1", "--backoff", "0ms")
    assert "not both" in cli.run(*set_, "--max-attempts", "2", "--reset", expect=2).stderr
    assert "or --reset" in cli.run(*set_, expect=2).stderr
    assert "\nretries: as the topic\n" in cli.said(*set_, "--reset")


def test_a_group_is_forgotten_only_if_somebody_says_so(cli: Commands) -> None:
    cli.run("group", "seek", cli.topic, "g", "--earliest")
    cli.run("group", "forget", cli.topic, "g", stdin="n\n", expect=1)
    cli.run("group", "show", cli.topic, "g")
    assert "forgot g" in cli.said("group", "forget", cli.topic, "g", "--yes")
    cli.run("group", "show", cli.topic, "g", expect=3)
