"""Topics and groups over `/v2`: made, described, changed, deleted; moved, paused, forgotten."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from slipstream.record import Record
from slipstream.server.v2.describe import describe_group
from slipstream.testing import MemoryBroker
from tests.broker.simulator import Simulator
from tests.conftest import StartServer
from tests.server.conftest import StartMemory
from tests.server.v2.wire import V2, values
from tests.server_process import ServerProcess

CONFIG = {
    "max_in_flight": 7,
    "max_waiting_messages": 70,
    "max_waiting_bytes": 7_000,
    "retry": {"max_attempts": 3, "backoff_ms": 10, "max_backoff_ms": 100},
    "retention_ms": 3_600_000,
    "retention_bytes": 1_000_000,
    "hold_unfinished": True,
    "dead_letters": False,
    "expiry_ms": 86_400_000,
}


def test_topics_and_their_groups_are_as_they_were_after_a_crash(durable: ServerProcess) -> None:
    names = ("made", "changed", "grown", "deleted", "sought", "paused")
    made, changed, grown, deleted, sought, paused = (V2(durable, name) for name in names)

    answer = made.call("POST", "/v2/topics", {"name": "made", "partitions": 2, "config": CONFIG}, 201)
    assert answer["created"] is True

    changed.call("POST", "/v2/topics", {"name": "changed", "config": CONFIG}, 201)
    changed.call("PATCH", changed.path(), {"config": {"max_in_flight": 1}, "reset": ["retention_ms"]})

    grown.call("POST", "/v2/topics", {"name": "grown"}, 201)
    grown.produce({"value": "old", "key": "user:1"})
    held = grown.fetch()
    grown.call("PATCH", grown.path(), {"partitions": 3})
    assert grown.produce({"value": "new", "key": "user:1"})["messages"][0]["partition"] == 1
    assert values(grown.fetch()) == ["new"], "groups read the new ones too"
    assert grown.ack(*held)["acked"] == 1

    before = deleted.call("POST", "/v2/topics", {"name": "deleted"}, 201)["topic"]["id"]
    deleted.produce({"value": "a", "envelope": {"idempotency_key": "k"}})
    deleted.fetch()
    deleted.call("DELETE", deleted.path(), expect=204)
    deleted.call("GET", deleted.path(), expect=404)
    deleted.call("DELETE", deleted.path(), expect=404)

    sought.call("POST", "/v2/topics", {"name": "sought"}, 201)
    sought.produce("0", "1", "2")
    sought.ack(*sought.fetch())
    seek(sought, offset=2)

    paused.call("POST", "/v2/topics", {"name": "paused"}, 201)
    paused.produce("a", "b")
    (leased,) = paused.fetch(max_messages=1)
    assert paused.call("POST", paused.path("groups", "g", "pause"))["paused"] is True
    assert paused.fetch() == []
    assert paused.ack(leased)["acked"] == 1, "what is on lease may be finished"

    durable.restart()

    info = made.describe()
    assert info["config"] == info["overrides"] == CONFIG
    assert info["id"] == answer["topic"]["id"]
    assert len(info["partitions"]) == 2

    info = changed.describe()
    assert (info["config"]["max_in_flight"], info["config"]["retention_ms"]) == (1, 7 * 86_400_000)
    assert info["overrides"]["max_waiting_messages"] == 70, "what is not named stays"
    changed.produce("a", "b")
    assert len(changed.fetch()) == 1, "it holds at once"

    assert len(grown.describe()["partitions"]) == 3
    assert "never fewer" in grown.call("PATCH", grown.path(), {"partitions": 2}, 400)["message"]

    deleted.call("GET", deleted.path(), expect=404)
    after = deleted.call("POST", "/v2/topics", {"name": "deleted"}, 201)["topic"]
    assert after["id"] != before
    assert (after["next_offset"], after["groups"]) == (0, [])
    assert deleted.produce({"value": "b", "envelope": {"idempotency_key": "k"}})["messages"] == [
        {"partition": 0, "offset": 0}
    ], "what the old one knew is forgotten"

    assert values(sought.fetch()) == ["2"]

    assert paused.group()["paused"] is True
    assert paused.fetch() == []
    paused.call("POST", paused.path("groups", "g", "resume"))
    assert values(paused.fetch()) == ["b"]


def test_one_that_exists_is_left_as_it_is(v2: V2) -> None:
    answer = v2.call("POST", "/v2/topics", {"name": v2.topic, "partitions": 5, "config": CONFIG}, 201)
    assert (answer["created"], len(answer["topic"]["partitions"])) == (False, 1), "ruling 9"
    assert answer["topic"]["overrides"] == {}


def test_what_was_not_set_follows_the_server(start_memory: StartMemory) -> None:
    v2 = V2(start_memory(max_in_flight=11), "t")
    info = v2.call("POST", "/v2/topics", {"name": "t", "config": {"retention_ms": 5}}, 201)["topic"]
    assert (info["config"]["max_in_flight"], info["config"]["retention_ms"]) == (11, 5)
    assert info["overrides"] == {"retention_ms": 5}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "no spaces"}, "topic must be"),
        ({"name": ""}, "topic must be"),
        ({}, "name"),
        ({"name": "t", "partitions": 0}, "partitions"),
        ({"name": "new.topic", "partitions": 100_000}, "between 1 and 1024"),
        ({"name": "t", "colour": "red"}, "colour"),
        ({"name": "t", "config": {"colour": "red"}}, "colour"),
        ({"name": "t", "config": {"max_in_flight": -1}}, "max_in_flight"),
        ({"name": "t", "config": {"retry": {"backoff_ms": "soon"}}}, "backoff_ms"),
    ],
)
def test_what_is_wrong_with_a_topic_is_said(v2: V2, body: object, words: str) -> None:
    assert words in v2.call("POST", "/v2/topics", body, 400)["message"]


def test_a_description_says_where_every_partition_and_group_stands(v2: V2) -> None:
    v2.produce({"value": "abc", "key": "k"}, "de", {"value": "f", "delay_ms": 60_000})
    v2.ack(v2.fetch(max_messages=1)[0])
    v2.fetch(max_messages=1)
    info = v2.describe()
    assert info["next_offset"] == 3
    assert info["partitions"] == [{"partition": 0, "first_offset": 0, "next_offset": 3, "messages": 3, "bytes": 7}]
    (group,) = info["groups"]
    assert (group["group"], group["lag"], group["in_flight"], group["consumers"]) == ("g", 2, 1, 0)
    assert group["partitions"][0]["watermark"] == 0
    assert group["oldest_unfinished_age_ms"] >= 0
    assert group["partitions"][0]["oldest_unfinished_ms"] > 0


def test_topics_are_listed_by_name_with_their_sums(shared: ServerProcess, v2: V2) -> None:
    v2.produce("abc", "de")
    v2.fetch()
    (mine,) = [each for each in v2.call("GET", "/v2/topics")["topics"] if each["name"] == v2.topic]
    assert (mine["messages"], mine["bytes"], mine["groups"], mine["lag"]) == (2, 5, 1, 2)
    assert (mine["retention_ms"], mine["retention_bytes"]) == (7 * 86_400_000, 0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"reset": ["colour"]}, "there is no 'colour'"),
        ({"reset": ["retention_ms"], "config": {"retention_ms": 1}}, "both set and reset"),
        ({"partitions": 100_000}, "1024"),
    ],
)
def test_what_is_wrong_with_a_change_is_said(v2: V2, body: object, words: str) -> None:
    assert words in v2.call("PATCH", v2.path(), body, 400)["message"]


def test_the_files_of_a_deleted_topic_are_removed(start_server: StartServer) -> None:
    server = start_server("--journal-changes", "50", "--compaction-backlog-max", "1000")
    v2 = V2(server, "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    for _ in range(3):
        v2.produce(*["x" * 100] * 60)
    segments = server.data / "segments"
    deadline = itertools.count()
    while not list(segments.glob("*/*/*.arrow")):
        assert next(deadline) < 10_000
        v2.produce("more")
    v2.call("DELETE", "/v2/topics/t", expect=204)
    v2.call("POST", "/v2/topics", {"name": "other"}, 201)
    assert server.stop() == 0
    assert list(segments.glob("*-t/*/*.arrow")) == []


def test_a_stream_of_a_deleted_topic_ends(v2: V2) -> None:
    with v2.server.consume(v2.topic) as items:
        v2.server.await_metric(1, "slipstream_consumers", topic=v2.topic, group="g")
        V2(v2.server, v2.topic).call("DELETE", v2.path(), expect=204)
        assert list(items) == []


# Groups


def seek(v2: V2, **body: object) -> None:
    v2.call("POST", v2.path("groups", "g", "seek"), body)


def test_a_group_seeks_to_both_ends_to_an_offset_and_to_a_time(v2: V2) -> None:
    v2.produce("0", "1", "2")
    v2.ack(*v2.fetch())
    seek(v2, to="earliest")
    assert values(v2.fetch()) == ["0", "1", "2"]
    seek(v2, offset=1)
    assert values(v2.fetch()) == ["1", "2"]
    seek(v2, to="latest")
    assert v2.fetch() == []
    stored = v2.read()["messages"][0]["timestamp_ms"] / 1000
    seek(v2, time=dt.datetime.fromtimestamp(stored - 1, dt.UTC).isoformat())
    assert values(v2.fetch()) == ["0", "1", "2"]
    seek(v2, time=dt.datetime.fromtimestamp(stored + 60, dt.UTC).isoformat())
    assert v2.fetch() == []


def test_a_stream_gets_what_a_seek_brings_back(v2: V2) -> None:
    v2.produce("0")
    with v2.server.consume(v2.topic, lease_ms=60_000) as items:
        assert next(items)["value"] == "0"
        seek(V2(v2.server, v2.topic), to="earliest")
        assert next(items)["attempts"] == 1, "it starts afresh"


def test_one_partition_may_seek_alone(shared: ServerProcess, v2: V2) -> None:
    name = v2.topic + ".two"
    v2.call("POST", "/v2/topics", {"name": name, "partitions": 2}, 201)
    two = V2(shared, name)
    two.produce(*({"value": str(n), "envelope": {"partition_override": n % 2}} for n in range(4)))
    two.ack(*two.fetch())
    seek(two, to="earliest", partition=1)
    assert values(two.fetch()) == ["1", "3"]
    assert (
        "partition out of range"
        in two.call("POST", two.path("groups", "g", "seek"), {"to": "latest", "partition": 2}, 404)["message"]
    )


def test_a_group_may_be_placed_before_it_first_reads(v2: V2) -> None:
    v2.produce("old")
    seek(v2, to="latest")
    v2.produce("new")
    assert values(v2.fetch()) == ["new"]


@pytest.mark.parametrize(
    "body", [{}, {"to": "earliest", "offset": 1}, {"to": "middle"}, {"offset": -1}, {"time": "noon"}]
)
def test_a_seek_says_where_to(v2: V2, body: object) -> None:
    v2.call("POST", v2.path("groups", "g", "seek"), body, 400)


def test_a_waiting_stream_goes_on_when_its_group_is_resumed(v2: V2) -> None:
    with v2.server.consume(v2.topic) as items:
        other = V2(v2.server, v2.topic)
        v2.server.await_metric(1, "slipstream_consumers", topic=v2.topic, group="g")
        other.call("POST", v2.path("groups", "g", "pause"))
        other.produce("a")
        other.call("POST", v2.path("groups", "g", "resume"))
        assert next(items)["value"] == "a"


def test_a_forgotten_group_holds_nobody_back_and_starts_afresh(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"config": {"max_waiting_messages": 2}})
    v2.produce("a")
    v2.ack(*v2.fetch(group="busy"), group="busy")
    v2.fetch(group="stuck")
    v2.produce("b")
    v2.ack(*v2.fetch(group="busy"), group="busy")
    assert v2.respond("POST", "/v2/produce", {"topic": v2.topic, "messages": [{"value": "c"}]}).status_code == 429
    v2.call("DELETE", v2.path("groups", "stuck"), expect=204)
    v2.call("GET", v2.path("groups", "stuck"), expect=404)
    v2.produce("c")
    assert values(v2.fetch(group="stuck")) == ["a", "b", "c"]


def test_a_group_shows_what_it_has_in_flight(v2: V2) -> None:
    v2.produce("a")
    v2.fetch(owner="worker-1")
    (message,) = v2.group()["messages"]
    assert (message["owner"], message["state"], message["attempts"], message["offset"]) == ("worker-1", "leased", 1, 0)


def test_groups_are_listed(v2: V2) -> None:
    v2.produce("a")
    for name in ("one", "two"):
        v2.fetch(group=name)
    assert [each["group"] for each in v2.call("GET", v2.path("groups"))["groups"]] == ["one", "two"]


def test_an_unknown_parameter_or_path_is_refused(v2: V2) -> None:
    assert "unknown parameter" in v2.call("GET", "/v2/topics?colour=red", expect=400)["message"]
    assert "openapi" in v2.call("GET", "/v2/nothing", expect=404)["message"]
    response = v2.respond("PUT", v2.path())
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "PATCH", "DELETE"}


def test_a_seek_to_a_time_outside_the_calendar_is_refused(v2: V2) -> None:
    answer = v2.call("POST", v2.path("groups", "g", "seek"), {"time": "9999-12-31T23:59:59-14:00"}, 400)
    assert "years 1 to 9999" in answer["message"]


def test_what_is_not_said_of_the_retry_policy_stays_as_it_was(v2: V2) -> None:
    """To set the attempts must not take away the pauses between them."""
    changed = v2.call("PATCH", v2.path(), {"config": {"retry": {"max_attempts": 3}}})
    assert changed["config"]["retry"] == {"max_attempts": 3, "backoff_ms": 100, "max_backoff_ms": 3_600_000}
    changed = v2.call("PATCH", v2.path(), {"config": {"retry": {"backoff_ms": 0}}})
    assert changed["config"]["retry"] == {"max_attempts": 3, "backoff_ms": 0, "max_backoff_ms": 3_600_000}


def test_looking_again_does_not_read_the_disk_again() -> None:
    """With 512 partitions and two groups that are behind, each look took most of a second, and everybody waited."""
    sim = Simulator()
    sim.create()
    sim.produce()
    topic = sim.broker.topic("t")
    group = sim.broker.seek(sim.now_ms, "t", "g", lambda partition: partition.first_index)
    first = describe_group(group, sim.now_ms)

    def read(index: int) -> Record:
        raise AssertionError("read again")

    topic.partitions[0].log.read = read  # type: ignore[method-assign]
    assert describe_group(group, sim.now_ms) == first
    assert first.partitions[0].oldest_unfinished_ms == sim.now_ms


def test_a_group_says_for_how_long_nobody_has_used_it(slipstream_broker: MemoryBroker) -> None:
    """Who only pulls is a consumer for as long as a fetch waits, and that is no time at all."""
    with slipstream_broker.client() as client:
        client.create_topic("t")
        client.produce("t", "v")
        (message,) = client.fetch("t", "g", lease_ms=60_000)
        slipstream_broker.advance(seconds=5)
        assert client.group("t", "g").idle_ms == 5_000
        message.ack()
        assert client.group("t", "g").idle_ms == 0
        slipstream_broker.advance(seconds=1)
        assert client.topic("t").groups[0].idle_ms == 1_000


def test_a_full_broker_answers_507_with_the_limit_and_makes_room_by_expiry(start_memory: StartMemory) -> None:
    minute_ms = 60_000
    server = start_memory(max_topics=1, max_groups=1, group_expiry_ms=minute_ms, topic_expiry_ms=2 * minute_ms)
    v2 = V2(server, "t")
    server.create("t")
    assert v2.call("POST", "/v2/topics", {"name": "u"}, 507)["reason"] == "max_topics"
    v2.fetch(group="peek")
    refused = v2.fetch(group="another", expect=507)
    assert (refused["error"], refused["reason"]) == ("RESOURCE_EXHAUSTED", "max_groups")
    assert "raise max_groups" in refused["message"]
    server.advance(minute_ms + 30_000)
    assert server.metric("slipstream_expired_total", kind="group") == 1
    v2.fetch(group="another")
    server.advance(4 * minute_ms)
    assert server.metric("slipstream_expired_total", kind="topic") == 1
    v2.call("POST", "/v2/topics", {"name": "u"}, 201)
