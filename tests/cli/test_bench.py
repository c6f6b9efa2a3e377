"""`slipstream bench`: measures, and leaves nothing behind."""

from __future__ import annotations

from tests.cli.commands import Commands


def test_it_measures_what_was_asked_for_and_cleans_up(cli: Commands) -> None:
    options = ["--seconds", "100ms", "--batch", "10", "--connections", "2", "--size", "50", "--partitions", "2"]
    results = cli.json("bench", *options)
    assert [result["what"] for result in results] == [
        "produce, one a request",
        "produce, 10 a request",
        "fetch and ack, 10 a request",
    ]
    stored = results[0]["messages"] + results[1]["messages"]
    assert results[2]["messages"] == stored > 0, "everything that was stored was fetched and acked"
    assert not [each for each in cli.json("topic", "list") if each["name"].startswith("slipstream.bench")]
    assert "MESSAGES/S" in cli.said("bench", *options)
