"""`/v1/topics`, `/v1/healthz`, `/v1/version`: names, partitions and what survives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import MemoryServer, StartMemory
from tests.server_process import ServerProcess


def test_health_is_ok(shared: ServerProcess) -> None:
    response = shared.get("/v1/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert response.headers["content-type"] == "application/json; charset=utf-8"


def test_version_says_that_there_is_a_log(shared: ServerProcess) -> None:
    body = shared.get("/v1/version").json()
    assert set(body) == {"version", "commit", "wal_enabled"}
    assert body["wal_enabled"] is True


@pytest.mark.parametrize("way", ["body", "query"])
def test_a_topic_is_created_with_its_partitions(memory: MemoryServer, way: str) -> None:
    wanted = {"name": "t", "partitions": 3}
    response = (
        memory.post("/v1/topics", wanted) if way == "body" else memory.post("/v1/topics", params={**wanted, "x": "y"})
    )
    assert response.status_code == 201
    assert response.json() == {"status": "created", "name": "t", "partitions": 3}
    assert memory.topics() == ["t"]


@pytest.mark.parametrize("partitions", [0, None])
def test_partitions_zero_or_null_means_one(shared: ServerProcess, topic: str, partitions: int | None) -> None:
    name = f"{topic}.{partitions}"
    response = shared.post("/v1/topics", {"name": name, "partitions": partitions})
    assert (response.status_code, response.json()["partitions"]) == (201, 1)


def test_partitions_left_out_means_one(shared: ServerProcess, topic: str) -> None:
    assert shared.post("/v1/topics", {"name": topic + ".a"}).json()["partitions"] == 1
    assert shared.post("/v1/topics", params={"name": topic + ".b"}).json()["partitions"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": None},
        {"partitions": 2},
        {"name": "never", "partitions": -1},
        {"name": "never", "partitions": "3"},
        {"name": "never", "partitions": 1.5},
        {"name": "never", "partitions": 10**30},
        {"name": "never", "partitions": 1_000_000},
        {"name": 7},
        {"name": "never", "extra": 1},
        [],
        "never",
        None,
    ],
)
def test_a_topic_that_cannot_be_is_refused(shared: ServerProcess, body: Any) -> None:
    response = shared.post("/v1/topics", body)
    assert response.status_code == 400, response.text
    assert response.json()["error"] == "INVALID_ARGUMENT"
    assert "never" not in shared.topics()


@pytest.mark.parametrize("partitions", ["-1", "x", "1.5", "1_0", "1 0", "٣"])
def test_partitions_in_a_query_must_be_a_whole_number(shared: ServerProcess, partitions: str) -> None:
    response = shared.post("/v1/topics", params={"name": "never", "partitions": partitions})
    assert (response.status_code, response.json()["error"]) == (400, "INVALID_ARGUMENT")
    assert "never" not in shared.topics()


def test_creating_an_existing_topic_is_201_and_changes_nothing(shared: ServerProcess, topic: str) -> None:
    """Ruling 9: clients create before every event."""
    shared.create(topic + ".x", 3)
    response = shared.post("/v1/topics", {"name": topic + ".x", "partitions": 5})
    assert response.status_code == 201
    assert response.json() == {"status": "created", "name": topic + ".x", "partitions": 3}


def test_negative_partitions_are_refused_for_an_existing_topic_too(shared: ServerProcess, topic: str) -> None:
    assert shared.post("/v1/topics", {"name": topic, "partitions": -1}).status_code == 400


def test_an_empty_topic_and_its_partitions_survive_a_crash(server: ServerProcess) -> None:
    """Ruling 9: DriftQ forgets empty topics."""
    server.create("empty", 5)
    server.restart()
    assert server.topics() == ["empty"]
    assert server.post("/v1/topics", {"name": "empty", "partitions": 1}).json()["partitions"] == 5


@pytest.mark.parametrize("name", ["a b", "a/b", "ü", "a\nb", "x" * 201, "a*", "\u0000"])
def test_names_outside_the_alphabet_are_refused(shared: ServerProcess, topic: str, name: str) -> None:
    """Ruling 15, for topics, groups and owners alike."""
    consume = {"topic": topic, "group": "g", "owner": "o"}
    assert shared.post("/v1/topics", {"name": name}).status_code == 400
    assert shared.get("/v1/consume", params=consume | {"group": name}).status_code == 400
    # Owners are trimmed before they are looked at, as DriftQ does.
    assert shared.get("/v1/consume", params=consume | {"owner": "-" + name + "-"}).status_code == 400


@pytest.mark.parametrize("name", ["A.b_c:d-9", "x" * 200])
def test_names_of_the_alphabet_are_taken(memory: MemoryServer, name: str) -> None:
    """Ruling 15."""
    memory.create(name)
    memory.produce(name, "v")
    assert memory.take(name, group=name, owner=name)[0]["value"] == "v"


def test_topics_are_listed_in_order(memory: MemoryServer) -> None:
    assert memory.topics() == []
    for name in ("b", "a", "c"):
        memory.create(name)
    assert memory.topics() == ["a", "b", "c"]


def test_there_is_a_limit_to_topics(start_memory: StartMemory) -> None:
    server = start_memory(max_topics=1)
    server.create("one")
    refused = server.post("/v1/topics", {"name": "two"})
    assert refused.status_code == 507, "the request is right, and waiting does not help"
    body = refused.json()
    assert (body["error"], body["reason"]) == ("RESOURCE_EXHAUSTED", "max_topics")
    assert "delete those that are not needed" in body["message"]
    server.create("one")


def test_there_is_a_limit_to_groups(start_memory: StartMemory) -> None:
    server = start_memory(max_groups=1)
    server.create("t")
    server.take("t", 0, group="one")
    refused = server.get("/v1/consume", params={"topic": "t", "group": "two", "owner": "o"})
    assert (refused.status_code, refused.json()["reason"]) == (507, "max_groups")


def test_dead_letters_have_the_partitions_of_their_topic_whoever_creates_them(
    shared: ServerProcess, topic: str
) -> None:
    """Ruling 6."""
    shared.create(topic + ".x", 3)
    response = shared.post("/v1/topics", {"name": f"dlq.{topic}.x", "partitions": 1})
    assert (response.status_code, response.json()["partitions"]) == (201, 3)


def test_names_and_numbers_are_trimmed_as_in_driftq(shared: ServerProcess, topic: str) -> None:
    """Ruling 14."""
    assert shared.post("/v1/topics", {"name": f"  {topic}-json "}).json()["name"] == f"{topic}-json"
    created = shared.post("/v1/topics", params={"name": f" {topic}-query ", "partitions": " 2 "})
    assert (created.status_code, created.json()["partitions"]) == (201, 2)
    assert {f"{topic}-json", f"{topic}-query"} <= set(shared.topics())
    assert shared.post("/v1/topics", {"name": "  "}).status_code == 400
    shared.produce(topic, "v")
    item = shared.take(f" {topic} ", group=" g\t", owner=" o ")[0]
    assert shared.ack(f" {topic} ", item, group=" g ", owner="o ").status_code == 204
    assert shared.get(f"/v2/topics/{topic}/groups/g").json()["partitions"][0]["lag"] == 0
