"""What a router does to messages, seen by producers and consumers of a real server (ruling 13)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.server_process import ServerProcess


@pytest.fixture(scope="module")
def _by_value(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose router does what a message's value asks for: `topic/partition`."""
    server = ServerProcess(tmp_path_factory.mktemp("routed") / "data", "--router", "tests.router.routers:by_value")
    server.start()
    for name in ("t", "x", "y", "dlq.t"):
        server.create(name, 3)
    server.create("single")
    assert server.post("/v2/topics", {"name": "tiny", "config": {"max_waiting_bytes": 3}}).status_code == 201
    assert server.post("/v2/topics", {"name": "full", "config": {"max_waiting_messages": 1}}).status_code == 201
    assert server.post("/v2/topics/full/groups/g/seek", {"to": "earliest"}).status_code == 200
    assert server.produce("full", "/").status_code == 200
    yield server
    server.kill()


@pytest.fixture
def by_value(_by_value: ServerProcess) -> ServerProcess:
    """The same server, with nothing left to take of what the test before has produced."""
    for name in ("t", "x", "y"):
        assert _by_value.post(f"/v2/topics/{name}/groups/g/seek", {"to": "latest"}).status_code == 200
    return _by_value


def test_routing_is_visible_to_the_consumer_and_survives_a_crash(start_server: StartServer) -> None:
    server = start_server("--router", "tests.router.routers:label")
    server.create("t")
    server.produce("t", "v", key="k")
    server.produce("t", "w")
    item = server.take("t")[0]
    assert item["routing"] == {"label": "t", "meta": {"key": "k", "value": "v"}}
    assert "envelope" not in item
    server.restart()
    for item in server.take("t", 2, group="another"):
        assert item["routing"]["label"] == "t"


def test_a_router_without_opinion_leaves_no_trace(start_server: StartServer) -> None:
    server = start_server("--router", "tests.router.routers:leave")
    server.create("t")
    server.produce("t", "v")
    assert "routing" not in server.take("t")[0]


def test_the_router_wins_over_the_envelope_which_wins_over_the_hash(by_value: ServerProcess) -> None:
    by_value.produce("t", "x/2", key="user:1", target_topic="y", partition_override=0)
    item = by_value.take("x")[0]
    assert (item["partition"], item["routing"]) == (2, {"label": "routed"})
    assert item["envelope"] == {"target_topic": "x", "partition_override": 2}
    by_value.produce("t", "/", key="user:1", target_topic="y", partition_override=0)
    assert by_value.take("y")[0]["partition"] == 0
    by_value.produce("t", "/", key="user:1")
    assert by_value.take("t")[0]["partition"] == 1


def test_the_producer_is_answered_with_the_topic_it_asked_for(by_value: ServerProcess) -> None:
    assert by_value.produce("t", "x/").json() == {"status": "produced", "topic": "t"}
    assert by_value.produce("not-there", "x/").json() == {"status": "produced", "topic": "not-there"}
    assert by_value.produce("not-there", "/").status_code == 400


@pytest.mark.parametrize("value", ["nowhere/", "x/3", "x/-1", "/7", "dlq.t/"])
def test_a_decision_that_points_at_nothing_is_ignored(by_value: ServerProcess, value: str) -> None:
    failed = by_value.metric("slipstream_router_failures_total")
    assert by_value.produce("t", value, key="user:1").status_code == 200
    item = by_value.take("t")[0]
    assert item["partition"] == 1
    assert "routing" not in item
    assert by_value.metric("slipstream_router_failures_total") == failed + 1


@pytest.mark.parametrize("value", ["single/", "tiny/", "full/"])
def test_a_decision_that_does_not_fit_what_the_producer_asked_for_is_ignored(
    by_value: ServerProcess, value: str
) -> None:
    """The router's target lacks the partition that the producer names, or the message is too large, or it is full."""
    failed = by_value.metric("slipstream_router_failures_total")
    assert by_value.produce("t", value, target_topic="y", partition_override=2).status_code == 200
    item = by_value.take("y")[0]
    assert (item["partition"], "routing" in item) == (2, False)
    assert by_value.metric("slipstream_router_failures_total") == failed + 1
    batch = {"topic": "t", "messages": [{"value": value, "envelope": {"target_topic": "y", "partition_override": 1}}]}
    assert by_value.post("/v2/produce", batch).json()["messages"][0]["partition"] == 1
    by_value.await_log("its decision cannot be followed")


def test_what_is_wrong_with_the_message_itself_is_not_the_routers_fault(by_value: ServerProcess) -> None:
    failed = by_value.metric("slipstream_router_failures_total")
    assert by_value.produce("t", "/", partition_override=7).status_code == 400
    assert by_value.produce("t", "x/", deadline="2001-01-01T00:00:00Z").status_code == 400
    assert by_value.metric("slipstream_router_failures_total") == failed


def test_a_router_that_hangs_is_paused_and_everybody_sees_it(start_server: StartServer) -> None:
    """A thread for each call that hangs, and half a second for each message, was the end of it."""
    server = start_server("--router", "tests.router.routers:hanging_for_some", "--router-timeout-ms", "50")
    server.create("t")
    assert server.get("/health/ready").json() == {"status": "ready"}
    for _ in range(20):
        assert server.produce("t", "hang").status_code == 200
    asked = server.metric("slipstream_router_failures_total")
    assert 3 <= asked < 10, "three, and one a second after that"
    assert server.metric("slipstream_router_skipped_total") == 20 - asked
    assert server.metric("slipstream_router_well") == 0
    ready = server.get("/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert "messages are stored without the router: it is paused" in ready.json()["conditions"][0]
    (condition,) = server.get("/v2/server").json()["conditions"]
    assert (condition["kind"], condition["level"]) == ("router", "warning")
    problem = server.problem()
    assert (problem["level"], problem["text"]) == ("warning", "messages are stored without the router")
    server.await_log("paused after 3 time-outs")
    lines = [line for line in server.log if "the router" in line]
    assert len(lines) == 2
    assert "longer than 50 ms" in lines[0]


@pytest.mark.parametrize("name", ["failing", "failing_async", "nonsense", "hanging", "hanging_async"])
def test_a_router_that_fails_does_not_stand_in_the_way(start_server: StartServer, name: str) -> None:
    server = start_server("--router", f"tests.router.routers:{name}", "--router-timeout-ms", "50")
    server.create("t", 3)
    assert server.produce("t", "v", key="user:1").status_code == 200
    item = server.take("t")[0]
    assert item["partition"] == 1
    assert "routing" not in item
    assert server.metric("slipstream_router_failures_total") == 1
    server.await_log("router")
    if name == "hanging":  # more calls than there are threads
        for number in range(12):
            assert server.produce("t", str(number)).status_code == 200
        assert server.is_well()


def test_dead_letters_skip_the_router(start_server: StartServer, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nthen = { label = "all", target_topic = "x" }\n')
    server = start_server("--router", str(rules))
    server.create("x")
    server.produce("x", "v", retry_policy={"max_attempts": 1})
    decided = server.metric("slipstream_router_decisions_total")
    server.nack("x", server.take("x")[0], "boom")
    letter = server.take("dlq.x")[0]
    assert letter["envelope"]["dlq"]["last_error"] == "boom"
    assert "target_topic" not in letter["envelope"]
    assert server.metric("slipstream_router_decisions_total") == decided == 1


def test_errors_are_answered_with_a_router_too(by_value: ServerProcess) -> None:
    assert by_value.produce("nowhere", "/").status_code == 400
    assert by_value.post("/v1/produce", {"topic": "t"}).status_code == 400
    assert by_value.produce("t", "/", deadline="2001-01-01T00:00:00Z").status_code == 400
