"""`/v1/consume`: the stream, the groups, the leases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.conftest import StartMemory
from tests.server.test_v1_contract import assert_error
from tests.server_process import ServerProcess


def test_headers_come_at_once_on_an_empty_topic(shared: ServerProcess, topic: str) -> None:
    """Ruling 11: with a client that gives up after ten seconds, there would be none."""
    query = {"topic": topic, "group": "g", "owner": "o"}
    with shared.client.stream("GET", shared.base + "/v1/consume", params=query) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"


def test_parameters_may_come_in_a_body(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v")
    body = json.dumps({"topic": topic, "group": "g", "owner": "o", "lease_ms": 60_000}).encode()
    address = shared.base + "/v1/consume?topic=nowhere"
    with shared.client.stream("GET", address, content=body) as response:
        assert json.loads(next(response.iter_lines()))["value"] == "v"


@pytest.mark.parametrize(
    "change",
    [
        {"topic": ""},
        {"group": ""},
        {"owner": ""},
        {"owner": "  "},
        {"topic": "nowhere"},
        {"lease_ms": -1},
        {"lease_ms": "long"},
        {"lease_ms": 10**12},
    ],
)
@pytest.mark.parametrize("way", ["body", "query"])
def test_a_stream_nobody_can_have_is_400(shared: ServerProcess, topic: str, change: dict[str, Any], way: str) -> None:
    wanted = {"topic": topic, "group": "g", "owner": "o", **change}
    response = (
        shared.get("/v1/consume", params=wanted)
        if way == "query"
        else shared.request("GET", "/v1/consume", content=json.dumps(wanted).encode())
    )
    assert_error(response, 400, "INVALID_ARGUMENT")


def test_items_always_have_their_fields_and_extras_only_when_there(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v")
    shared.produce(topic, "v", run_id="r")
    plain, wrapped = shared.take(topic, 2)
    assert set(plain) == {"partition", "offset", "attempts", "key", "value", "last_error"}
    assert set(wrapped) - set(plain) == {"envelope"}


def test_first_deliveries_are_in_offset_order(shared: ServerProcess, topic: str) -> None:
    """Ruling 11, for what waited and for what arrives."""
    for number in range(50):
        shared.produce(topic, str(number))
    with shared.consume(topic, prefetch=100) as items:
        assert [next(items)["offset"] for _ in range(50)] == list(range(50))
        for number in range(50, 60):
            shared.produce(topic, str(number))
        assert [next(items)["offset"] for _ in range(10)] == list(range(50, 60))


def test_two_streams_of_a_group_take_turns_and_share(shared: ServerProcess, topic: str) -> None:
    """No broadcast, round robin."""
    with shared.consume(topic, owner="a") as a, shared.consume(topic, owner="b") as b:
        for number in range(10):
            shared.produce(topic, str(number))
        of_a = [next(a)["offset"] for _ in range(5)]
        of_b = [next(b)["offset"] for _ in range(5)]
    assert sorted(of_a + of_b) == list(range(10))
    assert of_a in ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])


def test_two_groups_each_see_everything(shared: ServerProcess, topic: str) -> None:
    for number in range(5):
        shared.produce(topic, str(number))
    for group in ("g1", "g2"):
        items = shared.take(topic, 5, group=group)
        assert [item["offset"] for item in items] == list(range(5))
        for item in items:
            assert shared.ack(topic, item, group=group).status_code == 204


def test_the_third_waits_until_one_of_two_is_acked(start_memory: StartMemory) -> None:
    """Ruling 10: two in flight per topic, group and partition in DriftQ's profile."""
    server = start_memory(profile="driftq-v1", max_waiting_messages=100)
    server.create("t")
    for number in range(3):
        server.produce("t", str(number))
    with server.consume("t", lease_ms=60_000) as items:
        first = next(items)
        assert next(items)["offset"] == 1
        # Were the third to come without the ack, it would be counted here.
        assert server.metric("inflight_messages", topic="t", group="g", partition="0") == 2
        server.ack("t", first)
        assert next(items)["offset"] == 2


def test_a_lease_outlives_its_stream(shared: ServerProcess, topic: str) -> None:
    """Ruling 4."""
    shared.produce(topic, "held")
    item = shared.take(topic, owner="a", lease_ms=60_000)[0]
    shared.produce(topic, "free")
    assert shared.take(topic, owner="b")[0]["value"] == "free"
    assert shared.ack(topic, item, owner="a").status_code == 204


def test_a_lease_outlives_a_crash(server: ServerProcess) -> None:
    """Ruling 4: a restart does not hand to others what a worker still has."""
    server.create("t")
    server.produce("t", "held")
    item = server.take("t", owner="a", lease_ms=60_000)[0]
    server.produce("t", "free")
    server.restart()
    assert server.take("t", owner="b")[0]["value"] == "free"
    assert server.ack("t", item, owner="a").status_code == 204


def test_a_lease_that_ran_out_goes_to_another(shared: ServerProcess, topic: str) -> None:
    """Rulings 4 and 5."""
    shared.produce(topic, "v")
    shared.take(topic, owner="a", lease_ms=1)
    item = shared.take(topic, owner="b")[0]
    assert (item["attempts"], item["last_error"]) == (2, "ack_timeout")


def test_an_owner_is_trimmed(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v")
    item = shared.take(topic, owner=" o ")[0]
    assert shared.ack(topic, item, owner="o").status_code == 204


def test_payloads_of_megabytes_come_through_whole(shared: ServerProcess, topic: str) -> None:
    values = [chr(97 + number) * 900_000 for number in range(5)]
    for value in values:
        assert shared.produce(topic, value).status_code == 200
    assert [item["value"] for item in shared.take(topic, 5)] == values
