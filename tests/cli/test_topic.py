"""`slipstream topic`."""

from __future__ import annotations

import pytest

from tests.cli.commands import Commands


def test_a_topic_is_created_with_its_configuration(cli: Commands) -> None:
    name = cli.topic + ".new"
    config = ["--retention", "3d", "--retention-bytes", "10m", "--max-in-flight", "5", "--retry-max-attempts", "3"]
    more = ["--retry-backoff", "1s", "--no-dead-letters", "--hold-unfinished", "--max-waiting-bytes", "1k"]
    assert "created" in cli.said("topic", "create", name, "-p", "2", *config, *more)
    info = cli.json("topic", "show", name)
    assert len(info["partitions"]) == 2
    assert info["overrides"] == {
        "max_in_flight": 5,
        "max_waiting_bytes": 1024,
        "retry": {"max_attempts": 3, "backoff_ms": 1_000, "max_backoff_ms": 3_600_000},
        "retention_ms": 3 * 86_400_000,
        "retention_bytes": 10 << 20,
        "hold_unfinished": True,
        "dead_letters": False,
    }
    assert "exists already" in cli.said("topic", "create", name)


def test_topics_are_listed_in_a_table_and_as_json(cli: Commands) -> None:
    cli.run("produce", cli.topic, "v")
    lines = cli.said("topic", "list").splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "MESSAGES", "SIZE", "GROUPS", "LAG"]
    assert [cli.topic, "1", "1", "1", "B", "0", "0"] in [line.split() for line in lines]
    assert cli.topic in [each["name"] for each in cli.json("topic", "list")]


def test_a_topic_is_shown_with_partitions_groups_and_configuration(cli: Commands) -> None:
    cli.run("produce", cli.topic, "v")
    assert "no group has read it yet" in cli.said("topic", "show", cli.topic)
    cli.run("consume", cli.topic, "--group", "readers", "--max", "1")
    shown = cli.said("topic", "show", cli.topic)
    assert "NEXT OFFSET" in shown
    assert "readers" in shown
    assert "max_in_flight" in shown


def test_configuration_is_changed_and_reset(cli: Commands) -> None:
    assert "set for this topic" in cli.said("topic", "change", cli.topic, "--retention", "1h", "-p", "3")
    assert len(cli.json("topic", "show", cli.topic)["partitions"]) == 3
    assert cli.json("topic", "change", cli.topic, "--reset", "retention_ms")["overrides"] == {}
    assert "there is no" in cli.run("topic", "change", cli.topic, "--reset", "colour", expect=1).stderr


def test_deleting_asks_for_the_name_a_second_time(cli: Commands) -> None:
    cli.run("produce", cli.topic, "v")
    result = cli.run("topic", "delete", cli.topic, stdin="another\n", expect=2)
    assert "1 message and 0 groups" in result.stderr
    assert "nothing was deleted" in result.stderr
    cli.run("topic", "show", cli.topic)
    cli.run("topic", "delete", cli.topic, stdin=cli.topic + "\n")
    assert "create it first" in cli.run("topic", "show", cli.topic, expect=3).stderr


def test_a_script_deletes_with_the_name_given_twice(cli: Commands) -> None:
    cli.run("topic", "delete", cli.topic, "--confirm", "another", expect=2)
    assert cli.json("topic", "delete", cli.topic, "--confirm", cli.topic) == {"deleted": cli.topic, "messages": 0}


def test_deleting_without_anybody_to_ask_deletes_nothing(cli: Commands) -> None:
    cli.run("topic", "delete", cli.topic, stdin="", expect=1)
    cli.run("topic", "show", cli.topic)


@pytest.mark.parametrize(
    ("option", "value"), [("--retention", "soon"), ("--retention-bytes", "much"), ("--max-in-flight", "-1")]
)
def test_what_is_typed_wrongly_is_said(cli: Commands, option: str, value: str) -> None:
    assert value in cli.run("topic", "create", "x", option, value, expect=2).stderr


def test_a_name_that_is_none_is_refused_by_the_server_in_words(cli: Commands) -> None:
    assert "topic must be 1 to 200 characters" in cli.run("topic", "create", "no spaces", expect=1).stderr
