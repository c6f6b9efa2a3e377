"""Options: what they say, and what is said about those that cannot be right."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from slipstream.client.async_client import DEFAULT_URL as CLIENT_URL
from slipstream.pipeline.queries import QUERIES
from slipstream.pipeline.settings import load_settings
from slipstream.pipeline.source.errors import InvalidOption
from slipstream.pipeline.source.options import (
    DEFAULT_URL,
    OPTIONS,
    Use,
    connection_options,
    nats_options,
    read_options,
    write_options,
)
from slipstream.pipeline.stream import source_options


def test_case_does_not_matter() -> None:
    options = read_options(
        {"SUBSCRIBE": "a, b,a", "startingoffsets": "EARLIEST", "FailOnDataLoss": "False"}, Use.STREAM
    )
    assert options.topics == ("a", "b")
    assert (options.starting, options.fail_on_data_loss) == ("earliest", False)


def test_the_server_is_the_one_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPSTREAM_URL", raising=False)
    assert connection_options({}).url == DEFAULT_URL == CLIENT_URL
    monkeypatch.setenv("SLIPSTREAM_URL", "http://other:1")
    assert connection_options({}).url == "http://other:1"
    assert connection_options({"url": "http://third:2"}).url == "http://third:2"


def test_a_stream_begins_at_its_end_and_a_batch_at_the_beginning() -> None:
    assert read_options({"subscribe": "a"}, Use.STREAM).starting == "latest"
    assert read_options({"subscribe": "a"}, Use.BATCH).starting == "earliest"


def test_times_are_milliseconds_or_rfc_3339() -> None:
    assert read_options({"subscribe": "a", "startingTimestamp": "1000"}, Use.BATCH).starting_ms == 1000
    options = read_options({"subscribe": "a", "startingTimestamp": "1970-01-01T00:00:02Z"}, Use.BATCH)
    assert options.starting_ms == 2000


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("2s", 2_000), ("3m", 180_000), ("1h", 3_600_000)])
def test_a_delay_has_a_unit(text: str, ms: int) -> None:
    assert read_options({"subscribe": "a", "maxTriggerDelay": text}, Use.STREAM).delay_ms_max == ms


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"subscirbe": "a"}, "there is no option subscirbe: is subscribe meant?"),
        ({"subscribe": "a", "zzz": "1"}, "there is no option zzz; there are assign, "),
        ({"kafka.bootstrap.servers": "h:1"}, "say where the server is with url"),
        ({"path": "a"}, "say what to read with subscribe"),
        ({}, "say what to read with one of subscribe, subscribePattern and assign: none of them is given"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribePattern": "("}, r"subscribePattern='\(': no regular expression"),
        ({"assign": "[]"}, "assign='\\[\\]': JSON such as"),
        ({"assign": '{"a": []}'}, "it must name partitions"),
        ({"subscribe": "a", "startingOffsets": "first"}, "startingOffsets='first': earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": -3}'}, "a has -3, which is no offset"),
        ({"subscribe": "a", "startingTimestamp": "noon"}, "milliseconds since 1970 or RFC 3339 are wanted"),
        ({"subscribe": "a", "startingTimestamp": "2030-01-01T00:00:00"}, "a time zone is missing"),
        ({"subscribe": "a", "startingTimestamp": "1", "startingOffsetsByTimestamp": "{}"}, "are both given"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': a whole number from 1 on"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "no micro-batch could be both"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "a duration such as 500ms"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "failOnDataLoss='maybe': true or false is wanted"),
        ({"subscribe": "a", "content": "rows"}, "messages or ranges is wanted"),
        ({"subscribe": "a", "bus": "kafka"}, "slipstream or nats is wanted"),
        ({"subscribe": "a", "natsUrl": "nats://h"}, "natsUrl needs bus=nats"),
        ({"subscribe": "a", "bus": "nats", "url": "http://h"}, "with bus=nats say natsUrl"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "option endingOffsets is not for streams"),
        ({"subscribe": "a", "topic": "b"}, "option topic is not for streams"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_reason(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        read_options(given, Use.STREAM)


def test_a_batch_is_not_told_about_triggers() -> None:
    with pytest.raises(InvalidOption, match="option maxOffsetsPerTrigger is not for batch reads: leave it out"):
        read_options({"subscribe": "a", "maxOffsetsPerTrigger": "1"}, Use.BATCH)


def test_who_writes_says_no_more_than_where() -> None:
    assert write_options({"topic": "a", "checkpointLocation": "/tmp"}).topic == "a"
    with pytest.raises(InvalidOption, match="option subscribe is not for writing"):
        write_options({"subscribe": "a"})


def test_where_nats_is_goes_with_the_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A task on another machine has another environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", "nats://far:4222")
    monkeypatch.setenv("NATS_CREDS_PATH", "reader.creds")
    monkeypatch.setenv("BUS_PREFIX", "dev.")
    found = {"nats_url": "nats://far:4222", "nats_creds_path": str(tmp_path / "reader.creds"), "prefix": "dev."}
    for variable, setting in (("NATS_CA", "nats_ca"), ("NATS_CERT", "nats_cert"), ("NATS_KEY", "nats_key")):
        monkeypatch.setenv(variable, f"{setting}.pem")
        found[setting] = str(tmp_path / f"{setting}.pem")
    read = read_options({"bus": "nats", "subscribe": "a"}, Use.STREAM)
    said = nats_options()
    for name in ("NATS_URL", "NATS_CREDS_PATH", "NATS_CA", "NATS_CERT", "NATS_KEY", "BUS_PREFIX"):
        monkeypatch.setenv(name, "elsewhere.")
    assert pickle.loads(pickle.dumps(read)).nats == found
    assert connection_options({"bus": "nats", **said}).nats == found
    assert connection_options({"bus": "nats", **said, "busPrefix": ""}).nats == {**found, "prefix": ""}


def test_the_pipeline_tells_its_tasks_where_nats_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "nats://far:4222")
    monkeypatch.setenv("BUS_PREFIX", "dev.")
    monkeypatch.delenv("NATS_CREDS_PATH", raising=False)
    options = source_options(load_settings({"bus": "nats"}, {}), QUERIES["messages"])
    monkeypatch.setenv("NATS_URL", "nats://of-a-worker:4222")
    monkeypatch.delenv("BUS_PREFIX")
    assert connection_options(options).nats == {"nats_url": "nats://far:4222", "prefix": "dev."}


def test_a_seed_is_handed_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NATS_URL", raising=False)
    monkeypatch.setenv("NATS_NKEY_SEED", "geheim")
    assert nats_options() == {"natsUrl": "nats://127.0.0.1:4222", "busPrefix": ""}
    assert b"geheim" not in pickle.dumps(connection_options({"bus": "nats"}))


def test_a_prefix_that_cannot_be_is_refused_when_the_options_are_read() -> None:
    with pytest.raises(InvalidOption, match="BUS_PREFIX 'a b' cannot be used"):
        connection_options({"bus": "nats", "busPrefix": "a b"})


def test_secrets_are_not_shown() -> None:
    options = connection_options({"url": "http://user:geheim@h:1"})
    assert "geheim" not in repr(options)
    assert "geheim" not in repr(connection_options({"bus": "nats", "natsUrl": "nats://user:geheim@h"}))


def test_every_option_has_a_meaning() -> None:
    assert all(info.text.endswith((".", "`")) for info in OPTIONS)
