"""Staging in many requests, committing in one."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from tests.conftest import StartServer
from tests.server.conftest import StartMemory
from tests.server.v2.wire import MSGPACK, V2, values
from tests.server_process import ServerProcess


def stage(v2: V2, *messages: Any, writer: str, sequence: int, topic: str = "", expect: int = 200) -> Any:
    whole = [message if isinstance(message, dict) else {"value": message} for message in messages]
    path = f"/v2/staged?writer={writer}&sequence={sequence}&topic={topic or v2.topic}"
    answer = v2.call("POST", path, whole, expect)
    return answer["staged"] if expect == 200 else answer


def commit(v2: V2, writer: str, sequence: int, *staged: str, expect: int = 200) -> Any:
    answer = v2.call("POST", "/v2/commit", {"writer": writer, "sequence": sequence, "staged": [*staged]}, expect)
    return answer["committed"] if expect == 200 else answer


def last(v2: V2, writer: str) -> int | None:
    sequence: int | None = v2.call("GET", f"/v2/writers/{writer}")["sequence"]
    return sequence


@pytest.fixture
def writer(topic: str) -> str:
    """One of its own, as the topic is."""
    return f"writer-of-{topic}"


def test_what_is_staged_is_seen_by_nobody_until_it_is_committed(v2: V2, writer: str) -> None:
    parts = [stage(v2, "a", "b", writer=writer, sequence=1), stage(v2, "c", writer=writer, sequence=1)]
    assert (v2.read()["messages"], v2.fetch(), last(v2, writer)) == ([], [], None)
    assert commit(v2, writer, 1, *reversed(parts))
    assert [(m["value"], m["offset"]) for m in v2.read()["messages"]] == [("c", 0), ("a", 1), ("b", 2)]
    assert values(v2.fetch()) == ["c", "a", "b"]
    assert last(v2, writer) == 1


def test_a_commit_is_of_any_number_of_topics(v2: V2, writer: str) -> None:
    other = f"{v2.topic}-other"
    v2.call("POST", "/v2/topics", {"name": other, "partitions": 2}, 201)
    parts = [
        stage(v2, "a", {"value": "b", "envelope": {"target_topic": other}}, writer=writer, sequence=1),
        stage(v2, {"value": "c", "key": "user:1", "attributes": {"x": "y"}}, topic=other, writer=writer, sequence=1),
        stage(v2, "d", writer=writer, sequence=1),
    ]
    assert commit(v2, writer, 1, *parts)
    assert values(v2.read()["messages"]) == ["a", "d"]
    elsewhere = V2(v2.server, other)
    assert values(elsewhere.read(partition=0)["messages"]) == ["b"]
    (third,) = elsewhere.read(partition=1)["messages"]
    assert (third["value"], third["offset"], third["attributes"]) == ("c", 1, {"x": "y"})


def test_a_repeat_commits_nothing(v2: V2, writer: str) -> None:
    assert commit(v2, writer, 5, stage(v2, "a", writer=writer, sequence=5))
    for sequence in (5, 4, 0):
        assert not commit(v2, writer, sequence, stage(v2, "b", writer=writer, sequence=sequence))
        assert not commit(v2, writer, sequence, "no such part")
    assert (values(v2.read()["messages"]), last(v2, writer)) == (["a"], 5)
    assert commit(v2, writer, 7, stage(v2, "c", writer=writer, sequence=7)), "sequences may have gaps"


def test_a_commit_of_nothing_is_remembered(v2: V2, writer: str) -> None:
    assert commit(v2, writer, 0)
    assert not commit(v2, writer, 0)
    assert last(v2, writer) == 0


def test_writers_do_not_meet(v2: V2, writer: str) -> None:
    mine, theirs = stage(v2, "a", writer=writer, sequence=1), stage(v2, "b", writer=f"{writer}-2", sequence=1)
    assert commit(v2, writer, 1, mine)
    assert commit(v2, f"{writer}-2", 1, theirs)
    assert values(v2.read()["messages"]) == ["a", "b"]


def test_a_part_that_is_not_there_refuses_the_commit_and_leaves_the_others(v2: V2, writer: str) -> None:
    kept = stage(v2, "a", writer=writer, sequence=1)
    others = [stage(v2, "x", writer=writer, sequence=2), stage(v2, "y", writer=f"{writer}-2", sequence=1), "nothing"]
    for other in others:
        refused = commit(v2, writer, 1, kept, other, expect=409)
        assert refused["error"] == "FAILED_PRECONDITION"
        assert "stage its messages again" in refused["message"]
    assert "twice" in commit(v2, writer, 1, kept, kept, expect=400)["message"]
    assert (v2.read()["messages"], last(v2, writer)) == ([], None)
    assert commit(v2, writer, 1, kept)


def test_what_a_commit_leaves_out_is_forgotten_with_it(v2: V2, writer: str) -> None:
    """An attempt that was made again has left a part behind."""
    first, second = stage(v2, "a", writer=writer, sequence=1), stage(v2, "a", writer=writer, sequence=1)
    later = stage(v2, "b", writer=writer, sequence=2)
    assert commit(v2, writer, 1, second)
    assert commit(v2, writer, 3, first, expect=409)
    assert commit(v2, writer, 2, later), "what is for a later commit stays"
    assert values(v2.read()["messages"]) == ["a", "b"]


def test_a_message_that_cannot_be_stored_refuses_the_whole_commit(v2: V2, writer: str) -> None:
    good = stage(v2, "a", writer=writer, sequence=1)
    bad = stage(v2, "b", {"value": "c", "envelope": {"partition_override": 9}}, writer=writer, sequence=1)
    refused = commit(v2, writer, 1, good, bad, expect=400)
    assert f"part {bad}: message 1" in refused["message"]
    assert "partitions 0 to 0" in refused["message"]
    assert (v2.read()["messages"], last(v2, writer)) == ([], None)
    v2.call("PATCH", v2.path(), {"partitions": 10})
    assert commit(v2, writer, 1, good, bad), "both were kept"
    assert values(v2.read(partition=9)["messages"]) == ["c"]


def test_a_topic_that_is_deleted_meanwhile_refuses_the_whole_commit(v2: V2, writer: str) -> None:
    other = f"{v2.topic}-other"
    v2.call("POST", "/v2/topics", {"name": other}, 201)
    parts = [stage(v2, "a", writer=writer, sequence=1), stage(v2, "b", topic=other, writer=writer, sequence=1)]
    v2.call("DELETE", f"/v2/topics/{other}", expect=204)
    assert commit(v2, writer, 1, *parts, expect=404)["error"] == "NOT_FOUND"
    assert v2.read()["messages"] == []
    v2.call("POST", "/v2/topics", {"name": other}, 201)
    assert commit(v2, writer, 1, *parts)


def test_a_full_partition_refuses_the_whole_commit_until_there_is_room(v2: V2, writer: str) -> None:
    v2.call("PATCH", v2.path(), {"config": {"max_waiting_messages": 3}})
    v2.produce("x", "y")
    taken = v2.fetch()
    parts = [stage(v2, "a", writer=writer, sequence=1), stage(v2, "b", writer=writer, sequence=1)]
    response = v2.respond("POST", "/v2/commit", {"writer": writer, "sequence": 1, "staged": parts})
    assert (response.status_code, response.json()["reason"]) == (429, "overloaded")
    assert int(response.headers["Retry-After"]) >= 1
    assert values(v2.read()["messages"]) == ["x", "y"]
    v2.ack(*taken)
    assert commit(v2, writer, 1, *parts)


def test_a_known_message_is_not_stored_again_and_the_rest_is(v2: V2, writer: str) -> None:
    once = {"value": "a", "envelope": {"idempotency_key": "k"}}
    v2.produce(once)
    twice = [{"value": n, "envelope": {"idempotency_key": "two"}} for n in ("b", "b")]
    parts = [stage(v2, once, each, writer=writer, sequence=1) for each in twice]
    assert commit(v2, writer, 1, *parts)
    assert values(v2.read()["messages"]) == ["a", "b"]


def test_any_bytes_in_messagepack(v2: V2, writer: str) -> None:
    body = msgspec.msgpack.encode([{"value": b"\xff\x00", "key": b"\x80"}])
    path = f"/v2/staged?writer={writer}&sequence=1&topic={v2.topic}"
    answer = v2.respond("POST", path, body, headers={"Content-Type": MSGPACK})
    part = msgspec.msgpack.decode(answer.content)
    assert (part["messages"], part["bytes"]) == (1, len(body))
    assert commit(v2, writer, 1, part["staged"])
    (message,) = v2.read()["messages"]
    assert (message["value"], message["encoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("writer=w&sequence=1", 400),
        ("writer=w&topic=T", 400),
        ("sequence=1&topic=T", 400),
        ("writer=w&sequence=-1&topic=T", 400),
        ("writer=w&sequence=9223372036854775808&topic=T", 400),
        ("writer=a/b&sequence=1&topic=T", 400),
        ("writer=w&sequence=1&topic=T&colour=red", 400),
        ("writer=w&sequence=1&topic=nowhere", 404),
        ("writer=w&sequence=1&topic=dlq.x", 404),
    ],
)
def test_what_is_wrong_with_a_part_is_said(v2: V2, query: str, status: int) -> None:
    path = "/v2/staged?" + query.replace("=T", f"={v2.topic}")
    assert v2.call("POST", path, [{"value": "a"}], status)["message"]


@pytest.mark.parametrize(
    "body", [{}, {"writer": "w"}, {"writer": "w", "sequence": -1}, {"writer": "a b", "sequence": 1}]
)
def test_what_is_wrong_with_a_commit_is_said(v2: V2, body: dict[str, Any]) -> None:
    assert v2.call("POST", "/v2/commit", body, 400)["error"] == "INVALID_ARGUMENT"


def test_only_so_much_may_be_staged(start_memory: StartMemory) -> None:
    v2 = V2(start_memory(max_staged_bytes=1000), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    first = stage(v2, "x" * 600, writer="w", sequence=1)
    assert "max_staged_bytes" in stage(v2, "x" * 600, writer="w", sequence=1, expect=429)["message"]
    assert "max_staged_bytes" in stage(v2, "x" * 1_600, writer="w", sequence=1, expect=400)["message"]
    assert commit(v2, "w", 1, first)
    assert stage(v2, "x" * 600, writer="w", sequence=2)


def test_what_is_taken_back_is_never_stored_and_makes_room(start_memory: StartMemory) -> None:
    v2 = V2(start_memory(max_staged_bytes=1000), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    first = stage(v2, "x" * 300, writer="w", sequence=1)
    second = stage(v2, "x" * 300, writer="w", sequence=1)
    stage(v2, "x" * 600, writer="w", sequence=1, expect=429)
    assert v2.call("POST", "/v2/unstage", {"writer": "w", "sequence": 1, "staged": [first]})["parts"] == 1
    assert v2.call("POST", "/v2/unstage", {"writer": "w", "sequence": 2}) == {"parts": 0, "bytes": 0}
    freed = v2.call("POST", "/v2/unstage", {"writer": "w", "sequence": 1})
    assert (freed["parts"], freed["bytes"] > 300) == (1, True)
    assert commit(v2, "w", 1, second, expect=409)["error"] == "FAILED_PRECONDITION"
    assert commit(v2, "w", 1, stage(v2, "x" * 600, writer="w", sequence=1))
    assert v2.call("POST", "/v2/unstage", {"writer": "a b", "sequence": 1}, 400)["error"] == "INVALID_ARGUMENT"


def test_who_begins_anew_needs_no_room_for_what_was_given_up(start_memory: StartMemory) -> None:
    v2 = V2(start_memory(max_staged_bytes=1000), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    path = "/v2/staged?writer=w&sequence=1&topic=t&attempt="
    given_up = v2.call("POST", f"{path}first", [{"value": "x" * 600}])["staged"]
    assert v2.call("POST", f"{path}first", [{"value": "x" * 600}], 429)["message"]
    staged = v2.call("POST", f"{path}second", [{"value": "y" * 600}])["staged"]
    assert "another attempt" in commit(v2, "w", 1, given_up, expect=409)["message"]
    assert commit(v2, "w", 1, staged)
    assert values(v2.read()["messages"]) == ["y" * 600]


def test_a_router_is_asked_about_what_is_staged(start_server: StartServer, tmp_path: Any) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nthen = { label = "seen" }\n')
    v2 = V2(start_server("--router", str(rules)), "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    assert commit(v2, "w", 1, stage(v2, "a", writer="w", sequence=1))
    assert v2.read()["messages"][0]["routing"]["label"] == "seen"


def test_a_commit_that_was_answered_is_there_once_after_a_kill(start_server: StartServer) -> None:
    server = start_server()
    v2 = V2(server, "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    for sequence in range(3):
        parts = [stage(v2, f"{sequence}.{n}", writer="w", sequence=sequence) for n in range(3)]
        lost = stage(v2, "lost", writer="w", sequence=sequence + 1)
        assert commit(v2, "w", sequence, *parts)
        server.crash()
        server.start()
        assert last(v2, "w") == sequence
        assert not commit(v2, "w", sequence, *parts)
        assert commit(v2, "w", sequence + 1, lost, expect=409)["error"] == "FAILED_PRECONDITION"
    assert values(v2.read()["messages"]) == [f"{sequence}.{n}" for sequence in range(3) for n in range(3)]


@pytest.mark.parametrize("rounds", [4, pytest.param(12, marks=pytest.mark.long)])
def test_a_kill_at_any_time_leaves_all_of_a_commit_or_nothing(start_server: StartServer, rounds: int) -> None:
    """Each commit is of two topics; journal files are so small that kills meet rotation and checkpoints, too."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    server = start_server("--journal-bytes", "65536", "--no-compaction-process", "--max-batch-messages", "100000")
    topics = [V2(server, "a"), V2(server, "b")]
    for v2 in topics:
        v2.call("POST", "/v2/topics", {"name": v2.topic}, 201)
    sequence = 0
    for number in range(rounds):
        story = f"seed {seed}, round {number}"
        kill = threading.Timer(chance.uniform(0.02, 0.3), server.crash)
        kill.start()
        sequence = _commit_until_killed(server, topics, sequence)
        kill.join()
        server.start()
        known = last(topics[0], "w")
        # The one under way when the kill came may have been committed, or not.
        assert known in {sequence, sequence - 1 if sequence else None}, story
        sequence = 0 if known is None else known + 1
        for v2 in topics:
            assert values(v2.read(limit=100_000)["messages"]) == [
                f"{n}.{m}" for n in range(sequence) for m in range(20)
            ], story
    assert sequence > rounds, "the load was no load"


def _commit_until_killed(server: ServerProcess, topics: list[V2], sequence: int) -> int:
    """Returns the sequence of the commit that was not answered."""
    with ThreadPoolExecutor(len(topics)) as threads:
        while True:

            def put(v2: V2, sequence: int = sequence) -> str:
                part: str = stage(v2, *(f"{sequence}.{m}" for m in range(20)), writer="w", sequence=sequence)
                return part

            try:
                parts = list(threads.map(put, topics))
                assert commit(topics[0], "w", sequence, *parts)
            except httpx.TransportError:
                return sequence
            sequence += 1
